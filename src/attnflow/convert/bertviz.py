"""BertViz: the scores of all layers as the attention of one head, for `head_view` and others."""

from typing import Any

import numpy as np

from attnflow.arrays import to_numpy
from attnflow.attribution import Normalize, Offsets
from attnflow.convert.source import Source, compute_scores
from attnflow.errors import InputError
from attnflow.explanation import Explanation
from attnflow.optional import import_optional
from attnflow.selection import Layers


class BertVizArguments(dict[str, Any]):
    """The arguments of a view of BertViz: attention and tokens.

    offsets: where each token is in the text, if known; the views have no place for it.
    """

    offsets: Offsets | None = None


def to_bertviz(
    source: Source,
    *,
    method: str | None = None,
    layers: Layers = None,
    normalize: Normalize | None = None,
) -> BertVizArguments:
    """Convert scores to arguments of BertViz: `head_view(**to_bertviz(explanation))`.

    source: an Explanation, or an Attribution of all positions and tokens.
    method, layers, normalize: which scores; for an Explanation by default rollout at all layers.
    "raw" has the edges of the graph, with heads merged. Flow of all positions at all layers takes a
    while for long texts.
    Each layer becomes one head, [1, 1, positions, tokens]. BertViz counts layers from 0, so its
    layer 0 is our layer 1, or the first of `layers`.
    Raises InputError if positions or tokens are missing, MissingDependencyError without torch.
    """
    torch = import_optional("torch", "to_bertviz")
    selection: dict[str, Any] = {}
    if isinstance(source, Explanation):
        selection = {"positions": range(len(source.tokens))}
    scores = compute_scores(source, method=method, layers=layers, normalize=normalize, **selection)
    if scores.rows or sorted(scores.positions) != sorted(scores.columns):
        raise InputError(
            f"the attribution has {len(scores.positions)} positions and {len(scores.columns)} "
            "tokens",
            expected="the same positions and tokens, because BertViz draws lines between them",
            fix="Compute it with positions=range(n), where n is the number of tokens.",
        )
    order = [scores.positions.index(i) for i in scores.columns]
    values = np.asarray(to_numpy(scores.scores), dtype=np.float32)[:, order, :]
    arguments = BertVizArguments(
        attention=[torch.tensor(layer)[None, None] for layer in values],
        tokens=[scores.labels[i] for i in scores.columns],
    )
    arguments.offsets = scores.offsets
    return arguments
