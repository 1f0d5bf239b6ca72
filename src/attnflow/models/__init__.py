"""Models: loading them, encoding inputs, reading predictions, and capturing attention.

A text or image and a model enter; inputs, predictions and attention graphs leave. Read `loading`,
`inputs` and `prediction` first, then `vision` for images, `multimodal` for texts with images, and
`capture` for attention. `checkpoint`, `wrappers`, `gguf` and `adapters` are about the forms in
which models come, `model_state` about running them. `builtin` holds the models that come with
attnflow. Importing this package loads neither torch nor transformers; the functions below do when
they are first used.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from attnflow.models.capture.api import (
        capture_attentions,
        capture_contributions,
        capture_graphs,
    )
    from attnflow.models.capture.graphs import Storage
    from attnflow.models.capture.rollout_capture import capture_rollout
    from attnflow.models.capture.row_rollout import Memory

# Where functions are, in modules that import torch.
_CAPTURE = "attnflow.models.capture."
_PLACES = {
    "Memory": _CAPTURE + "row_rollout",
    "Storage": _CAPTURE + "graphs",
    "capture_attentions": _CAPTURE + "api",
    "capture_contributions": _CAPTURE + "api",
    "capture_graphs": _CAPTURE + "api",
    "capture_rollout": _CAPTURE + "rollout_capture",
}

__all__ = [
    "Memory",
    "Storage",
    "capture_attentions",
    "capture_contributions",
    "capture_graphs",
    "capture_rollout",
]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'attnflow.models' has no attribute {name!r}")
    return getattr(import_module(_PLACES[name]), name)


def __dir__() -> list[str]:
    return __all__
