"""pandas, polars and xarray: scores as tidy tables, or as an array with named axes.

Tables have the columns of `Attribution.to_columns`.
"""

import json
from typing import Any

from attnflow.arrays import to_numpy
from attnflow.attribution import Attribution, Normalize
from attnflow.convert.source import Source, compute_scores
from attnflow.explanation import Explanation
from attnflow.optional import import_optional
from attnflow.selection import Layers

UNKNOWN = -1  # the start and end of tokens that are not in the text


def to_pandas(
    source: Source,
    *,
    method: str | None = None,
    layers: Layers = None,
    normalize: Normalize | None = None,
) -> Any:
    """Convert scores to a pandas data frame: one row for each layer, position and token.

    method, layers, normalize: which scores; for an Explanation by default rollout at all layers.
    Method, model and settings are in `frame.attrs`. Columns: see `Attribution.to_columns`.
    Raises MissingDependencyError without pandas.
    """
    scores = _scores(source, method, layers, normalize)
    frame = scores.to_pandas()
    frame.attrs = _attributes(source, scores)
    return frame


def to_polars(
    source: Source,
    *,
    method: str | None = None,
    layers: Layers = None,
    normalize: Normalize | None = None,
) -> Any:
    """Convert scores to a polars data frame: one row for each layer, position and token.

    method, layers, normalize: as in `to_pandas`. Columns: see `Attribution.to_columns`.
    Raises MissingDependencyError without polars.
    """
    polars = import_optional("polars", "to_polars")
    columns = _scores(source, method, layers, normalize).to_columns()
    types = {"start": polars.Int64, "end": polars.Int64}
    types |= dict.fromkeys(("token", "piece", "label"), polars.String)
    return polars.DataFrame(
        [
            polars.Series(name, values.tolist() if name in types else values, types.get(name))
            for name, values in columns.items()
        ]
    )


def to_xarray(
    source: Source,
    *,
    method: str | None = None,
    layers: Layers = None,
    normalize: Normalize | None = None,
) -> Any:
    """Convert scores to an xarray DataArray with the axes layer, position and token.

    method, layers, normalize: as in `to_pandas`. A batch has a first axis, example.
    Axes have the numbers of layers and the indices of positions and tokens; further coordinates are
    `label` of each position, and `text`, `piece`, `start` and `end` of each token (-1 for tokens
    that are not in the text). Attributes: method, model, and settings as JSON, so that the array
    can be written to a file.
    Raises MissingDependencyError without xarray.
    """
    xarray = import_optional("xarray", "to_xarray")
    scores = _scores(source, method, layers, normalize)
    values = to_numpy(scores.scores)
    batch = [f"example_{i}" for i in range(values.ndim - 4)] + ["example"] * (values.ndim > 3)
    spans = scores.offsets or (None,) * len(scores.tokens)
    chosen = [spans[i] or (UNKNOWN, UNKNOWN) for i in scores.columns]
    return xarray.DataArray(
        values,
        dims=[*batch, "layer", "position", "token"],
        coords={
            "layer": list(scores.layers),
            "position": list(scores.positions),
            "token": list(scores.columns),
            "label": ("position", [scores.row_labels[i] for i in scores.positions]),
            "text": ("token", [scores.labels[i] for i in scores.columns]),
            "piece": ("token", [scores.tokens[i] for i in scores.columns]),
            "start": ("token", [start for start, _ in chosen]),
            "end": ("token", [end for _, end in chosen]),
        },
        name=scores.method,
        attrs=_attributes(source, scores),
    )


def _scores(
    source: Source, method: str | None, layers: Layers, normalize: Normalize | None
) -> Attribution:
    """The scores; an Attribution as it is, which may be a batch, unless options are given."""
    if isinstance(source, Attribution) and (method, layers, normalize) == (None, None, None):
        return source
    return compute_scores(source, method=method, layers=layers, normalize=normalize)


def _attributes(source: Source, scores: Attribution) -> dict[str, str]:
    model = source.model if isinstance(source, Explanation) else ""
    settings = json.dumps(dict(scores.settings), default=str)
    return {"method": scores.method, "model": model, "settings": settings}
