"""Attribution: the one result object, whatever the method.

Ways to scale scores: each a named step from one Attribution to another.

Special tokens such as [CLS] and [SEP] in results: shown, hidden, or left out of ranks.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from os import PathLike
from typing import Any, ClassVar, Literal, TypeAlias

import numpy as np
from array_api_compat import array_namespace
from array_api_compat import device as device_of
from numpy.typing import NDArray

from attnflow import storage
from attnflow.arrays import Array, as_array, shape_text, to_numpy
from attnflow.attentions import label_tokens, rescale_rows
from attnflow.errors import FileError, InputError, SelectionError, ShapeError
from attnflow.selection import Position, pick_example, resolve_position

KIND = "attribution"


@dataclass(frozen=True, eq=False, repr=False)
class Attribution:
    """How much each input token reaches each position at each layer.

    scores: [..., layers, positions, tokens], NumPy or torch as computed. Leading axes are a batch.
    tokens: the text of every token of the input.
    method: "rollout", "flow", and so on. settings: its options, as JSON can write them.
    layers: the numbers, from 1, of the layers on the first axis.
    positions: the indices of the positions on the second axis.
    columns: the indices of the tokens on the last axis; all tokens if not given.
    Raises ShapeError if scores do not have these sizes.

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

    # Positions may be a choice, so attribution[0], attribution[1], ... would skip some.
    __iter__: ClassVar[None] = None

    def __post_init__(self) -> None:
        if not self.columns:
            object.__setattr__(self, "columns", tuple(range(len(self.tokens))))
        expected = (len(self.layers), len(self.positions), len(self.columns))
        if tuple(self.scores.shape[-3:]) != expected:
            raise ShapeError(
                f"scores has shape {shape_text(self.scores)}",
                expected=f"[..., layers, positions, tokens], here {list(expected)}",
                fix="Label each axis with what it stands for.",
            )

    def __getitem__(self, position: Position) -> Array:
        """The scores [..., layers, tokens] of a position, by its index or the text of its token."""
        return self.scores[..., :, self._axis_of_position(position), :]

    def row(self, *, position: Position, layer: int = -1) -> Array:
        """The scores [..., tokens] of one position at one layer.

        layer: its number from 1; negative numbers count back from the last one held.
        Raises SelectionError for a layer or position that is not held.
        """
        return self[position][..., self._axis_of_layer(layer), :]

    def top(self, k: int, *, position: Position, layer: int = -1) -> list[tuple[str, int, float]]:
        """The k tokens with the highest scores, as (token, index, score), highest first.

        Equal scores keep the order of the tokens. Raises ShapeError for a batch.
        """
        row = to_numpy(self.row(position=position, layer=layer))
        if row.ndim != 1:
            raise ShapeError(
                f"the scores have shape {shape_text(self.scores)}, a batch",
                expected="one example",
                fix="Take one with attribution.example(i).",
            )
        best = np.argsort(-row, kind="stable")[: max(k, 0)]
        return [(self.tokens[self.columns[i]], self.columns[i], float(row[i])) for i in best]

    def example(self, index: int | tuple[int, ...]) -> "Attribution":
        """One example of a batch.

        Raises ShapeError if there is no batch, SelectionError if there is no such example.
        """
        return replace(self, scores=pick_example(self.scores, index))

    def to_numpy(self) -> NDArray[Any]:
        """The scores on the host."""
        return to_numpy(self.scores)

    def save(self, path: str | PathLike[str]) -> None:
        """Write scores, labels and settings to a safetensors file."""
        header = {
            "tokens": list(self.tokens),
            "method": self.method,
            "layers": list(self.layers),
            "positions": list(self.positions),
            "columns": list(self.columns),
            "settings": dict(self.settings),
        }
        storage.write(path, kind=KIND, arrays={"scores": self.scores}, header=header)

    @classmethod
    def load(cls, path: str | PathLike[str]) -> "Attribution":
        """Read what `save` wrote, with scores as a NumPy array.

        Raises FileError if the file is something else.
        """
        arrays, header = storage.read(path, kind=KIND)
        try:
            tokens = header["tokens"]
            return cls(
                scores=as_array(arrays["scores"], "scores"),
                tokens=label_tokens(tokens, len(tokens)),
                method=str(header["method"]),
                layers=tuple(header["layers"]),
                positions=tuple(header["positions"]),
                columns=tuple(header["columns"]),
                settings=dict(header["settings"]),
            )
        except (KeyError, TypeError) as error:
            raise FileError(
                f"{path} lacks part of an attribution ({error})",
                expected="scores, tokens, method, layers, positions, columns and settings",
                fix="Save it again with Attribution.save.",
            ) from error

    def _axis_of_position(self, position: Position) -> int:
        index = resolve_position(self.tokens, len(self.tokens), position)
        if index not in self.positions:
            raise SelectionError(
                f"position {index} was not computed",
                expected=f"one of {', '.join(map(str, self.positions))}",
                fix="Compute it, or ask for one of these.",
            )
        return self.positions.index(index)

    def _axis_of_layer(self, layer: int) -> int:
        number = self.layers[layer] if -len(self.layers) <= layer < 0 else layer
        if number not in self.layers:
            raise SelectionError(
                f"layer {layer} was not computed",
                expected=f"one of {', '.join(map(str, self.layers))}",
                fix="Compute it, or ask for one of these.",
            )
        return self.layers.index(number)

    def __repr__(self) -> str:
        batch = "".join(f"{size} x " for size in self.scores.shape[:-3])
        numbers = ", ".join(map(str, self.layers))
        if len(self.layers) > 3:
            numbers = f"{self.layers[0]} to {self.layers[-1]}"
        layers = f"layer{'s' if len(self.layers) > 1 else ''} {numbers}"
        positions = f"{len(self.positions)} position{'s' if len(self.positions) > 1 else ''}"
        tokens = f"{len(self.columns)} token{'s' if len(self.columns) > 1 else ''}"
        return f"Attribution({batch}{self.method}: {layers}, {positions}, {tokens})"


Normalize: TypeAlias = Literal["none", "rows", "receptive_field"]


def scale_rows(attribution: Attribution) -> Attribution:
    """Scale the scores of each position to sum to 1; rows of zeros stay zero.

    >>> import numpy as np
    >>> scores = np.asarray([[[1.0, 3.0]]])
    >>> scale_rows(Attribution(scores, ("a", "b"), "flow", (2,), (0,))).scores
    array([[[0.25, 0.75]]])
    """
    return replace(
        attribution,
        scores=rescale_rows(attribution.scores),
        settings={**attribution.settings, "normalize": "rows"},
    )


def normalize_by_receptive_field(attribution: Attribution, baseline: Attribution) -> Attribution:
    """Divide scores by those under uniform attention, then scale rows to sum to 1 (paper §5).

    baseline: what the same method gives for `graph.uniform()`; its scores broadcast to the others.
    A token outside the receptive field scores 0 in both, and stays 0.

    >>> import numpy as np
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
    attribution: Attribution, how: Normalize, baseline: Callable[[], Attribution]
) -> Attribution:
    """Apply the `normalize` option of a method.

    baseline: computes the method for uniform attention; called for "receptive_field" only.
    Raises InputError for an unknown option.
    """
    check_normalize(how)
    if how == "rows":
        return scale_rows(attribution)
    if how == "receptive_field":
        return normalize_by_receptive_field(attribution, baseline())
    return replace(attribution, settings={**attribution.settings, "normalize": how})


def check_normalize(how: str) -> None:
    """Raise InputError unless `how` is an option of `normalize`; call it before a long run."""
    if how not in ("none", "rows", "receptive_field"):
        raise InputError(
            f"normalize is {how!r}",
            expected="'none', 'rows' or 'receptive_field'",
            fix="Choose one of these.",
        )


Special: TypeAlias = Literal["show", "hide", "rank_out"]

_LOOKS_SPECIAL = re.compile(
    r"\[(CLS|SEP|PAD|BOS|EOS)\]|</?s>|<(cls|sep|pad|bos|eos)>|<\|[^<>|]{1,40}\|>"
)


@dataclass(frozen=True, eq=False, repr=False)
class RankedAttribution(Attribution):
    """An Attribution that holds special tokens, but leaves them out of `top`.

    settings["unranked"] lists their indices. Saved and loaded again, it is a plain Attribution.
    """

    def top(self, k: int, *, position: Position, layer: int = -1) -> list[tuple[str, int, float]]:
        """The k tokens with the highest scores among those that are not special."""
        unranked = set(self.settings["unranked"])
        everything = super().top(len(self.columns), position=position, layer=layer)
        return [found for found in everything if found[1] not in unranked][: max(k, 0)]


def looks_special(token: str) -> bool:
    """Whether a token is written as special ones are: [CLS], <s>, </s>, <|endoftext|>.

    The mask is none of them: it is part of the text.

    >>> [looks_special(token) for token in ("[CLS]", "</s>", "<|end|>", "<b>", "[MASK]", "key")]
    [True, True, True, False, False, False]
    """
    return _LOOKS_SPECIAL.fullmatch(token) is not None


def treat_special(attribution: Attribution, how: Special, special: Sequence[bool]) -> Attribution:
    """Apply the `special` option.

    special: whether each token is special.
    how: "show" leaves scores as they are. "hide" drops the columns of special tokens; the others
    are not rescaled, so that rows then sum to what ordinary tokens hold. "rank_out" keeps all
    scores, and leaves special tokens out of `top`.
    Raises InputError for an unknown option, or if hiding would leave nothing.

    >>> import numpy as np
    >>> scores = np.asarray([[[0.75, 0.25]]])
    >>> attribution = Attribution(scores, ("[CLS]", "key"), "rollout", (1,), (0,))
    >>> treat_special(attribution, "hide", [True, False]).scores
    array([[[0.25]]])
    >>> treat_special(attribution, "rank_out", [True, False]).top(1, position=0)
    [('key', 1, 0.25)]
    """
    check_special(how)
    if how == "show":
        return attribution
    settings = {**attribution.settings, "special": how}
    if how == "rank_out":
        unranked = [i for i in attribution.columns if special[i]]
        return RankedAttribution(
            scores=attribution.scores,
            tokens=attribution.tokens,
            method=attribution.method,
            layers=attribution.layers,
            positions=attribution.positions,
            columns=attribution.columns,
            settings={**settings, "unranked": unranked},
        )
    kept = [axis for axis, i in enumerate(attribution.columns) if not special[i]]
    if not kept:
        raise InputError(
            "every token is special, so that hiding them leaves nothing",
            expected="some text",
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


def check_special(how: str) -> None:
    """Raise InputError unless `how` is an option of `special`; call it before a long run."""
    if how not in ("show", "hide", "rank_out"):
        raise InputError(
            f"special is {how!r}",
            expected="'show', 'hide' or 'rank_out'",
            fix="Choose one of these.",
        )
