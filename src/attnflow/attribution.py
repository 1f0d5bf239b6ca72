"""Attribution: the result of every method, and the steps from one Attribution to another.

Steps: normalize rows or by the receptive field, and hide or unrank special tokens. Merging tokens
into words is in `attnflow.units`. Nothing here computes a method.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from os import PathLike
from typing import Any, ClassVar, Literal, TypeAlias

import numpy as np
from array_api_compat import array_namespace
from array_api_compat import device as device_of
from numpy.typing import NDArray

from attnflow.arrays import Array, as_array, rescale_rows, shape_text, to_numpy
from attnflow.attentions import label_tokens
from attnflow.errors import (
    FileError,
    InputError,
    SelectionError,
    ShapeError,
    check_choice,
    check_type,
    quote,
)
from attnflow.optional import import_optional
from attnflow.selection import Position, as_index, pick_example, resolve_position
from attnflow.token_text import readable_tokens

KIND = "attribution"

Normalize: TypeAlias = Literal["none", "rows", "receptive_field"]
NORMALIZATIONS = ("none", "rows", "receptive_field")
Special: TypeAlias = Literal["show", "hide", "rank_out"]
SPECIAL_OPTIONS = ("show", "hide", "rank_out")
# The first character of each token in the text and the one after its last; None for special tokens.
Offsets: TypeAlias = tuple[tuple[int, int] | None, ...]


@dataclass(frozen=True)
class Row:
    """A set of positions that share a row of scores, such as those that predict an answer."""

    label: str
    positions: tuple[int, ...]


@dataclass(frozen=True, eq=False, repr=False)
class Attribution:
    """How much each input token reaches each position at each layer.

    scores: [..., layers, positions, tokens], NumPy or torch. Leading axes are a batch.
    tokens: every input token, as the vocabulary spells it. labels: the same as readable text.
    method: the name of the method. settings: its options, as JSON values.
    layers: the numbers, from 1, of the layers on the first axis.
    positions: the indices of the positions on the second axis; of the rows, if there are rows.
    columns: the indices of the tokens on the last axis; all tokens by default.
    offsets: where each token is in the text, if known.
    rows: the sets of positions on the second axis, if these are not single tokens.
    Raises ShapeError if the shape of scores does not match.

    >>> attribution = Attribution(
    ...     np.asarray([[[0.75, 0.25], [0.5, 0.5]]]), ("a", "b"), "rollout", (1,), (0, 1)
    ... )
    >>> attribution
    Attribution(rollout: layer 1, 2 positions, 2 tokens)
    >>> attribution["a"]
    array([[0.75, 0.25]])
    >>> attribution.top(1, position="a")
    [('a', 0, 0.75)]
    """

    scores: Array
    tokens: tuple[str, ...]
    method: str
    layers: tuple[int, ...]
    positions: tuple[int, ...]
    columns: tuple[int, ...] = ()
    settings: Mapping[str, Any] = field(default_factory=dict)
    offsets: Offsets | None = None
    rows: tuple[Row, ...] = ()

    # Iteration by index would be wrong: attribution[i] is position i, which may not be selected.
    __iter__: ClassVar[None] = None

    def __post_init__(self) -> None:
        if not self.columns:
            object.__setattr__(self, "columns", tuple(range(len(self.tokens))))
        expected = (len(self.layers), len(self.positions), len(self.columns))
        if tuple(self.scores.shape[-3:]) != expected:
            raise ShapeError(
                f"scores has shape {shape_text(self.scores)}",
                expected=f"[..., layers, positions, tokens], here {list(expected)}",
                fix="Pass one label for each entry of each axis.",
            )

    @cached_property
    def labels(self) -> tuple[str, ...]:
        """The text of each token, without the marks of the vocabulary; see `readable_tokens`.

        >>> scores = np.asarray([[[0.75, 0.25]]])
        >>> Attribution(scores, ("\u0120caf\u00c3\u00a9", "s"), "raw", (1,), (0,)).labels
        ('café', 's')
        """
        return self.tokens if self.settings.get("words") else readable_tokens(self.tokens)

    @property
    def row_labels(self) -> tuple[str, ...]:
        """The labels that `positions` count: those of the rows, or else of the tokens."""
        return tuple(row.label for row in self.rows) or self.labels

    def __getitem__(self, position: Position) -> Array:
        """The scores [..., layers, tokens] of a position, by its index or the text of its token."""
        return self.scores[..., :, self._position_axis(position), :]

    def row(self, *, position: Position | None = None, layer: int = -1) -> Array:
        """The scores [..., tokens] of one position at one layer.

        position: may be omitted if the attribution has one position only.
        layer: its number from 1; negative numbers count from the last layer of the attribution.
        Raises SelectionError for a layer or position that the attribution does not have.
        """
        return self[self._one_position(position)][..., self._layer_axis(layer), :]

    def top(
        self, k: int, *, position: Position | None = None, layer: int = -1
    ) -> list[tuple[str, int, float]]:
        """The k tokens with the highest scores, as (label, index, score), highest first.

        Position and layer are those of `row`. Ties keep the order of the tokens. Special tokens
        that `special="rank_out"` excludes are left out.
        Raises ShapeError for a batch.

        >>> scores = np.asarray([[[0.75, 0.25]]])
        >>> Attribution(scores, ("a", "b"), "rollout", (1,), (0,)).top(1)
        [('a', 0, 0.75)]
        """
        k = as_index(k, "k")
        row = to_numpy(self.row(position=position, layer=layer))
        if row.ndim != 1:
            raise ShapeError(
                f"scores has shape {shape_text(self.scores)}, a batch",
                expected="one example",
                fix="Select one with attribution.example(i).",
            )
        unranked = set(self.settings.get("unranked", ()))
        ranking = [i for i in np.argsort(-row, kind="stable") if self.columns[i] not in unranked]
        return [
            (self.labels[self.columns[i]], self.columns[i], float(row[i]))
            for i in ranking[: max(k, 0)]
        ]

    def example(self, index: int | tuple[int, ...]) -> "Attribution":
        """Select one example of a batch.

        Raises ShapeError if there is no batch, SelectionError for an invalid index.
        """
        return replace(self, scores=pick_example(self.scores, index))

    def to_numpy(self) -> NDArray[Any]:
        """The scores as a NumPy array."""
        return to_numpy(self.scores)

    def to_columns(self) -> dict[str, NDArray[Any]]:
        """The scores as columns of a tidy table: one row for each layer, position and token.

        Columns: layer, position (the index of the target position), label (of a row, if there are
        rows), index, token and piece (of the input token: its text, and its name in the
        vocabulary), start and end (its character offsets in the text; None if unknown), score; for
        a batch also example, first.
        Raises ShapeError for nested batches.
        """
        scores = self.to_numpy()
        if scores.ndim > 4:
            raise ShapeError(
                f"scores has shape {shape_text(scores)}, a nested batch",
                expected="[layers, positions, tokens], or one leading axis",
                fix="Select one example with attribution.example(i).",
            )
        axes = {"layer": self.layers, "position": self.positions, "index": self.columns}
        if scores.ndim == 4:
            axes = {"example": tuple(range(scores.shape[0])), **axes}
        grid = np.meshgrid(*axes.values(), indexing="ij")
        columns = {name: values.ravel() for name, values in zip(axes, grid, strict=True)}
        index = columns["index"]
        if self.rows:
            columns["label"] = np.asarray(self.row_labels, dtype=object)[columns["position"]]
        offsets = self.offsets or (None,) * len(self.tokens)
        spans = [span or (None, None) for span in offsets]
        columns["token"] = np.asarray(self.labels, dtype=object)[index]
        columns["piece"] = np.asarray(self.tokens, dtype=object)[index]
        for name, values in zip(("start", "end"), zip(*spans, strict=True), strict=True):
            columns[name] = np.asarray(values, dtype=object)[index]
        columns["score"] = scores.ravel()
        return columns

    def to_pandas(self) -> Any:
        """The scores as a data frame with the columns of `to_columns`.

        Raises MissingDependencyError if pandas is not installed, ShapeError for nested batches.

        >>> scores = np.asarray([[[0.75, 0.25]]])
        >>> attribution = Attribution(scores, ("a", "b"), "rollout", (2,), (0,))
        >>> attribution.to_pandas()[["layer", "position", "index", "token", "score"]]
           layer  position  index token  score
        0      2         0      0     a   0.75
        1      2         0      1     b   0.25
        """
        pandas = import_optional("pandas", "Attribution.to_pandas")
        columns = self.to_columns()
        columns |= {name: pandas.array(columns[name], dtype="Int64") for name in ("start", "end")}
        return pandas.DataFrame(columns)

    def save(self, path: str | PathLike[str]) -> None:
        """Write scores, labels and settings to a safetensors file."""
        from attnflow import storage

        header = {
            "tokens": list(self.tokens),
            "method": self.method,
            "layers": list(self.layers),
            "positions": list(self.positions),
            "columns": list(self.columns),
            "settings": dict(self.settings),
            "offsets": self.offsets,
            "rows": [[row.label, list(row.positions)] for row in self.rows],
        }
        storage.write(path, kind=KIND, arrays={"scores": self.scores}, header=header)

    @classmethod
    def load(cls, path: str | PathLike[str]) -> "Attribution":
        """Load a file written by `save`, with scores as a NumPy array.

        Raises FileError if the file has another format.
        """
        from attnflow import storage

        arrays, header = storage.read(path, kind=KIND)
        try:
            tokens = header["tokens"]
            offsets = read_offsets(header.get("offsets"))
            if not all(0 <= column < len(tokens) for column in header["columns"]):
                raise ValueError(f"columns of other than {len(tokens)} tokens")
            if offsets is not None and len(offsets) != len(tokens):
                raise ValueError(f"{len(offsets)} offsets for {len(tokens)} tokens")
            return cls(
                scores=as_array(arrays["scores"], "scores"),
                tokens=label_tokens(tokens, len(tokens)),
                method=str(header["method"]),
                layers=tuple(as_index(i, "layers") for i in header["layers"]),
                positions=tuple(as_index(i, "positions") for i in header["positions"]),
                columns=tuple(as_index(i, "columns") for i in header["columns"]),
                settings=dict(header["settings"]),
                offsets=offsets,
                rows=tuple(Row(label, tuple(places)) for label, places in header.get("rows", ())),
            )
        except (KeyError, TypeError, IndexError, ValueError, OverflowError) as error:
            raise FileError(
                f"{path} is not a complete attribution ({type(error).__name__}: {error})",
                expected="scores, tokens, method, layers, positions, columns and settings",
                fix="Save it again with Attribution.save.",
            ) from error

    def _one_position(self, position: Position | None) -> Position:
        if position is not None:
            return position
        if len(self.positions) == 1:
            return self.positions[0]
        raise SelectionError(
            f"the attribution has {len(self.positions)} positions, and none is selected",
            expected="position=, an index or the text of a token",
            fix=f"Use position={self.positions[-1]} or another of {_listed(self.positions)}.",
        )

    def _position_axis(self, position: Position) -> int:
        names = tuple(row.label for row in self.rows) or self.tokens
        index = resolve_position(names, len(names), position)
        if index not in self.positions:
            raise SelectionError(
                f"position {position!r} is not in the attribution",
                expected=f"one of {_listed(self.positions)}",
                fix="Compute it, or select one of these.",
            )
        return self.positions.index(index)

    def _layer_axis(self, layer: int) -> int:
        layer = as_index(layer, "layer")
        if -len(self.layers) <= layer < 0:
            return layer % len(self.layers)
        if layer not in self.layers:
            raise SelectionError(
                f"layer {layer} is not in the attribution",
                expected=f"one of {_listed(self.layers)}",
                fix="Compute it, or select one of these.",
            )
        return self.layers.index(layer)

    def __repr__(self) -> str:
        batch = "".join(f"{size} x " for size in self.scores.shape[:-3])
        numbers = _listed(self.layers)
        if len(self.layers) > 3:
            numbers = f"{self.layers[0]} to {self.layers[-1]}"
        layers = f"layer{'s' if len(self.layers) > 1 else ''} {numbers}"
        positions = f"{len(self.positions)} position{'s' if len(self.positions) > 1 else ''}"
        tokens = f"{len(self.columns)} token{'s' if len(self.columns) > 1 else ''}"
        return f"Attribution({batch}{self.method}: {layers}, {positions}, {tokens})"


def _listed(numbers: Sequence[int]) -> str:
    return ", ".join(map(str, numbers))


def read_offsets(values: Any) -> Offsets | None:
    """Offsets from the lists that JSON makes of them."""
    if values is None:
        return None
    return tuple(None if span is None else (int(span[0]), int(span[1])) for span in values)


def normalize_rows(attribution: Attribution) -> Attribution:
    """Scale the scores of each position to sum to 1; rows of zeros stay zero.

    >>> scores = np.asarray([[[1.0, 3.0]]])
    >>> normalize_rows(Attribution(scores, ("a", "b"), "flow", (2,), (0,))).scores
    array([[[0.25, 0.75]]])
    """
    check_type(attribution, Attribution, "Pass the result of a method, such as rollout(graph).")
    return replace(
        attribution,
        scores=rescale_rows(attribution.scores),
        settings={**attribution.settings, "normalize": "rows"},
    )


def normalize_by_receptive_field(attribution: Attribution, baseline: Attribution) -> Attribution:
    """Divide scores by those under uniform attention, then scale rows to sum to 1 (paper §5).

    baseline: the same method on `graph.uniform()`; its scores broadcast.
    A token outside the receptive field has score 0 in both, and stays 0.

    >>> def at(scores): return Attribution(np.asarray([[scores]]), ("a", "b"), "raw", (1,), (1,))
    >>> normalize_by_receptive_field(at([0.75, 0.25]), at([0.5, 0.5])).scores
    array([[[0.75, 0.25]]])
    """
    xp = array_namespace(attribution.scores)
    uniform = baseline.scores
    outside = uniform == 0
    ratio = attribution.scores / xp.where(outside, xp.ones_like(uniform), uniform)
    ratio = xp.where(outside, xp.zeros_like(ratio), ratio)
    return replace(
        attribution,
        scores=rescale_rows(ratio),
        settings={**attribution.settings, "normalize": "receptive_field"},
    )


def normalize_scores(
    attribution: Attribution, normalize: Normalize, baseline: Callable[[], Attribution]
) -> Attribution:
    """Apply the `normalize` option of a method.

    baseline: computes the method for uniform attention; called for "receptive_field" only.
    Raises InputError for an unknown option.
    """
    check_normalize(normalize)
    if normalize == "rows":
        return normalize_rows(attribution)
    if normalize == "receptive_field":
        return normalize_by_receptive_field(attribution, baseline())
    return replace(attribution, settings={**attribution.settings, "normalize": normalize})


def check_normalize(normalize: str) -> None:
    """Raise InputError for an invalid `normalize` option; call it before a long computation."""
    check_choice("normalize", normalize, NORMALIZATIONS)


_SPECIAL_TOKEN = re.compile(
    r"\[(CLS|SEP|PAD|BOS|EOS)\]|</?s>|<(cls|sep|pad|bos|eos)>|<\|[^<>|]{1,40}\|>"
)


def looks_special(token: str) -> bool:
    """Whether a token has the form of a special token: [CLS], <s>, </s>, <|endoftext|>.

    [MASK] is not one: it is part of the text.

    >>> [looks_special(token) for token in ("[CLS]", "</s>", "<|end|>", "<b>", "[MASK]", "key")]
    [True, True, True, False, False, False]
    """
    return _SPECIAL_TOKEN.fullmatch(token) is not None


def check_marks(special: Any, n_tokens: int) -> tuple[bool, ...]:
    """Return whether each token is special, as True and False.

    special: a list or array of True and False, or of 0 and 1.
    Raises InputError for anything else, ShapeError for another number of them.
    """
    is_list = isinstance(special, Sequence) or (
        isinstance(special, np.ndarray) and special.ndim == 1
    )
    kinds = (bool, np.bool_, int, np.integer)
    if not is_list or not all(isinstance(value, kinds) for value in special):
        raise InputError(
            f"special is {quote(special)}",
            expected="True or False for each token",
            fix="Pass such a list, or leave it out.",
        )
    if len(special) != n_tokens:
        raise ShapeError(
            f"special has {len(special)} values for {n_tokens} tokens",
            expected=f"{n_tokens} values",
            fix="Pass True or False for each token.",
        )
    return tuple(bool(value) for value in special)


def apply_special(
    attribution: Attribution, special: Special, is_special: Sequence[bool]
) -> Attribution:
    """Apply the `special` option.

    special: "show" changes nothing. "hide" removes the columns of special tokens without rescaling
    the others, so rows sum to the share of ordinary tokens. "rank_out" keeps all scores, and
    excludes special tokens from `top`.
    is_special: whether each token is special.
    Raises InputError for an invalid option, or if no token would be left.

    >>> scores = np.asarray([[[0.75, 0.25]]])
    >>> attribution = Attribution(scores, ("[CLS]", "key"), "rollout", (1,), (0,))
    >>> apply_special(attribution, "hide", [True, False]).scores
    array([[[0.25]]])
    >>> apply_special(attribution, "rank_out", [True, False]).top(1)
    [('key', 1, 0.25)]
    """
    check_special(special)
    if special == "show":
        return attribution
    settings = {**attribution.settings, "special": special}
    if special == "rank_out":
        unranked = [i for i in attribution.columns if is_special[i]]
        return replace(attribution, settings={**settings, "unranked": unranked})
    kept = [axis for axis, i in enumerate(attribution.columns) if not is_special[i]]
    if not kept:
        raise InputError(
            "all tokens are special, and special is 'hide'",
            expected="at least one ordinary token",
            fix="Use special='show'.",
        )
    xp = array_namespace(attribution.scores)
    axes = xp.asarray(kept, device=device_of(attribution.scores))
    return replace(
        attribution,
        scores=xp.take(attribution.scores, axes, axis=-1),
        columns=tuple(attribution.columns[axis] for axis in kept),
        settings=settings,
    )


def check_special(special: str) -> None:
    """Raise InputError for an invalid `special` option; call it before a long computation."""
    check_choice("special", special, SPECIAL_OPTIONS)
