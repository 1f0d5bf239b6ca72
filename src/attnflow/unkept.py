"""The layers of a graph that was not kept, because it would take too much memory.

`UnkeptLayers` stands where an AttentionGraph has its weights. It knows their shape, and the rollout
of the positions that were asked for when the model ran; everything else is an error that says so.
"""

from collections.abc import Sequence
from typing import Any, NoReturn

from attnflow.arrays import Array
from attnflow.errors import InputError, SelectionError

BYTES_PER_WEIGHT = 8  # weights and attention, both in float32


class UnkeptLayers:
    """Stands for weights [layers, queries, keys].

    rows: the rollout [positions, tokens] of some positions at the last layer. positions: which.
    """

    def __init__(self, n_layers: int, rows: Array, positions: Sequence[int]) -> None:
        self.rows = rows
        self.positions = tuple(positions)
        self.shape = (n_layers, int(rows.shape[-1]), int(rows.shape[-1]))
        self.ndim = 3

    def rollout_rows(self, layers: Sequence[int], positions: Sequence[int], bottom: int) -> Array:
        """The rollout [layers, positions, tokens] of some layers and positions.

        Raises SelectionError unless they are the last layer, and positions that were asked for.
        """
        missing = [position for position in positions if position not in self.positions]
        if missing or tuple(layers) != (self.shape[0],) or bottom:
            where = f"position {missing[0]}" if missing else f"layers {list(layers)}"
            raise SelectionError(
                f"the rollout of {where} was not computed, and {self._describe()}",
                expected=f"layer {self.shape[0]} and positions {_list_some(self.positions)}",
                fix="Select the position when the model runs: explain(..., position=17); or use "
                "explain(..., keep_graph=True).",
            )
        indices = [self.positions.index(position) for position in positions]
        rows: Array = self.rows[indices, :]
        return rows[None]

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # what copy, pickle and others look for
            raise AttributeError(name)
        self._refuse()

    def __getitem__(self, index: Any) -> NoReturn:
        self._refuse()

    def __array__(self, *_: Any, **__: Any) -> NoReturn:
        self._refuse()

    def __array_namespace__(self, **_: Any) -> NoReturn:
        self._refuse()

    def _refuse(self) -> NoReturn:
        raise InputError(
            self._describe(),
            expected="rollout of the explained position, which needs no graph",
            fix="Shorten the input, or use explain(..., keep_graph=True) where memory suffices.",
        )

    def _describe(self) -> str:
        n_layers, n, _ = self.shape
        size = n_layers * n * n * BYTES_PER_WEIGHT / 2**30
        return f"the graph of {n} tokens and {n_layers} layers ({size:.3g} GiB) was not kept"


def _list_some(positions: Sequence[int]) -> str:
    text = ", ".join(map(str, positions[:5]))
    return f"{text}, ..." if len(positions) > 5 else text
