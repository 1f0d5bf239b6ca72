"""Attribution: the one result object, whatever the method."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from os import PathLike
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from attnflow import storage
from attnflow.arrays import Array, as_array, shape_text, to_numpy
from attnflow.attentions import label_tokens
from attnflow.errors import FileError, SelectionError, ShapeError
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
                f"scores has shape {shape_text(self.scores)}; expected [..., layers, positions, "
                f"tokens], here {list(expected)}. Label each axis with what it stands for."
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
                f"the scores have shape {shape_text(self.scores)}, a batch; expected one example. "
                "Take one with attribution.example(i)."
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
                f"{path} lacks part of an attribution ({error}); expected scores, tokens, method, "
                "layers, positions, columns and settings. Save it again with Attribution.save."
            ) from error

    def _axis_of_position(self, position: Position) -> int:
        index = resolve_position(self.tokens, len(self.tokens), position)
        if index not in self.positions:
            raise SelectionError(
                f"position {index} was not computed; expected one of "
                f"{', '.join(map(str, self.positions))}. Compute it, or ask for one of these."
            )
        return self.positions.index(index)

    def _axis_of_layer(self, layer: int) -> int:
        number = self.layers[layer] if -len(self.layers) <= layer < 0 else layer
        if number not in self.layers:
            raise SelectionError(
                f"layer {layer} was not computed; expected one of "
                f"{', '.join(map(str, self.layers))}. Compute it, or ask for one of these."
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
