"""Explain the predictions of Transformers by raw attention, attention rollout and exact flow.

model + input ── explain ──► Explanation
model + data set ── evaluate ──► Study: which explanation to trust
attention weights ── Attentions ── AttentionGraph ── raw_attention | rollout | flow ──► Attribution
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from attnflow.attentions import Attentions
    from attnflow.attribution import Attribution, normalize_rows
    from attnflow.edges.registry import register_edges
    from attnflow.errors import (
        AttentionError,
        AttnflowError,
        FileError,
        InputError,
        MissingDependencyError,
        SelectionError,
        ShapeError,
    )
    from attnflow.explainer import explain, explain_image
    from attnflow.explanation import Explanation
    from attnflow.graph import AttentionGraph
    from attnflow.methods.flow import flow, flow_bounds, flow_path, group_flow, saturation
    from attnflow.methods.heads import head_flow, head_rollout
    from attnflow.methods.joint_flow import joint_flow
    from attnflow.methods.raw import raw_attention
    from attnflow.methods.registry import register_method
    from attnflow.methods.rollout import rollout
    from attnflow.models.loading import load_model
    from attnflow.study.study import evaluate, open_study
    from attnflow.viewer.notebook import show
    from attnflow.viewer.page import to_html

    __version__: str

__all__ = [
    "AttentionError",
    "AttentionGraph",
    "Attentions",
    "AttnflowError",
    "Attribution",
    "Explanation",
    "FileError",
    "InputError",
    "MissingDependencyError",
    "SelectionError",
    "ShapeError",
    "__version__",
    "evaluate",
    "explain",
    "explain_image",
    "flow",
    "flow_bounds",
    "flow_path",
    "group_flow",
    "head_flow",
    "head_rollout",
    "joint_flow",
    "load_model",
    "normalize_rows",
    "open_study",
    "raw_attention",
    "register_edges",
    "register_method",
    "rollout",
    "saturation",
    "show",
    "to_html",
]

# The module of each name. Names are loaded when first used, so `import attnflow` is fast.
_HOME = {
    "AttentionError": "errors",
    "AttentionGraph": "graph",
    "Attentions": "attentions",
    "AttnflowError": "errors",
    "Attribution": "attribution",
    "Explanation": "explanation",
    "FileError": "errors",
    "InputError": "errors",
    "MissingDependencyError": "errors",
    "SelectionError": "errors",
    "ShapeError": "errors",
    "evaluate": "study.study",
    "explain": "explainer",
    "explain_image": "explainer",
    "flow": "methods.flow",
    "flow_bounds": "methods.flow",
    "flow_path": "methods.flow",
    "group_flow": "methods.flow",
    "head_flow": "methods.heads",
    "head_rollout": "methods.heads",
    "joint_flow": "methods.joint_flow",
    "load_model": "models.loading",
    "normalize_rows": "attribution",
    "open_study": "study.study",
    "raw_attention": "methods.raw",
    "register_edges": "edges.registry",
    "register_method": "methods.registry",
    "rollout": "methods.rollout",
    "saturation": "methods.flow",
    "show": "viewer.notebook",
    "to_html": "viewer.page",
}


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib.metadata import version

        value: Any = version("attnflow")
    elif name in _HOME:
        value = getattr(import_module(f"attnflow.{_HOME[name]}"), name)
    else:
        raise AttributeError(f"module 'attnflow' has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
