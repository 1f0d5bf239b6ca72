"""Attention captured from torch and Hugging Face models.

Importing this loads neither torch nor transformers; using a name does.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from attnflow.models.capture.api import capture_attentions, capture_graphs, capture_rollout

__all__ = ["capture_attentions", "capture_graphs", "capture_rollout"]

# Where each name lives, to be loaded when first used.
_HOME = {
    "capture_attentions": "capture.api",
    "capture_graphs": "capture.api",
    "capture_rollout": "capture.api",
}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'attnflow.models' has no attribute {name!r}")
    return getattr(import_module(f"attnflow.models.{_HOME[name]}"), name)


def __dir__() -> list[str]:
    return __all__
