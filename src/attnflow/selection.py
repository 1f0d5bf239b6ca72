"""Which layers, positions and examples the caller means, by number or by the text of a token.

Layers are numbered from 1, as in the paper; 0 stands for the input. Positions count from 0.
"""

from collections.abc import Sequence
from difflib import get_close_matches
from operator import index
from typing import TypeAlias

from attnflow.arrays import Array, shape_text
from attnflow.errors import SelectionError, ShapeError

Layers: TypeAlias = int | Sequence[int] | None
Position: TypeAlias = int | str
Positions: TypeAlias = Position | Sequence[Position] | None


def resolve_layers(n_layers: int, layers: Layers = None) -> tuple[int, ...]:
    """The numbers, from 1, of the layers asked for, in the order asked for.

    layers: None for all, one number, or several; -1 is the last layer.
    Raises SelectionError for a layer that does not exist, is asked for twice, or for none at all.

    >>> resolve_layers(6, [1, -1])
    (1, 6)
    """
    if layers is None:
        return tuple(range(1, n_layers + 1))
    asked = layers if isinstance(layers, Sequence) else [layers]
    return _distinct([resolve_layer(n_layers, layer) for layer in asked], "layer")


def resolve_layer(n_layers: int, layer: int) -> int:
    """The number, from 1, of one layer; negative numbers count from the last.

    >>> resolve_layer(6, -2)
    5
    """
    number = index(layer)
    if number < 0:
        number += n_layers + 1
    if not 1 <= number <= n_layers:
        raise SelectionError(
            f"there is no layer {layer}",
            expected=f"1 to {n_layers}, or -{n_layers} to -1",
            fix="Layers are numbered from 1.",
        )
    return number


def resolve_positions(
    tokens: Sequence[str], n: int, positions: Positions = None
) -> tuple[int, ...]:
    """The indices of the positions asked for, in the order asked for.

    tokens: the text at each of the n positions.
    positions: None for all, an index, the text of a token, or several of these.
    Raises SelectionError for one that does not exist or is not unique, or for none at all.

    >>> resolve_positions(["the", "key", "is"], 3, ["key", -1])
    (1, 2)
    """
    if positions is None:
        return tuple(range(n))
    asked: Sequence[Position]
    several = isinstance(positions, Sequence) and not isinstance(positions, str)
    asked = positions if several else [positions]  # type: ignore[assignment, list-item]
    return _distinct([resolve_position(tokens, n, position) for position in asked], "position")


def resolve_position(tokens: Sequence[str], n: int, position: Position) -> int:
    """The index of one position, given as an index or as the text of its token.

    >>> resolve_position(["the", "key"], 2, "the")
    0
    """
    if isinstance(position, str):
        return _find_token(tokens, position)
    number = index(position)
    if not -n <= number < n:
        raise SelectionError(
            f"there is no position {position}",
            expected=f"0 to {n - 1}, or -{n} to -1",
            fix="Positions count from 0.",
        )
    return number % n


def _find_token(tokens: Sequence[str], text: str) -> int:
    found = [i for i, token in enumerate(tokens) if token == text]
    if len(found) == 1:
        return found[0]
    if found:
        raise SelectionError(
            f"the token {text!r} occurs at positions {', '.join(map(str, found))}",
            expected="one that occurs once",
            fix="Give the position as a number.",
        )
    close = get_close_matches(text, tokens, cutoff=0.5) or list(dict.fromkeys(tokens))[:8]
    raise SelectionError(
        f"there is no token {text!r}",
        expected=f"the text of a token, such as {', '.join(map(repr, close))}",
        fix="Give it as it is written, or give the position as a number.",
    )


def _distinct(numbers: list[int], what: str) -> tuple[int, ...]:
    if not numbers:
        raise SelectionError(
            f"no {what} was given",
            expected="at least one",
            fix="Give None for all.",
        )
    for i, number in enumerate(numbers):
        if number in numbers[:i]:
            raise SelectionError(
                f"{what} {number} was asked for twice",
                expected=f"each {what} once",
                fix="Remove one.",
            )
    return tuple(numbers)


def pick_example(array: Array, example: int | tuple[int, ...]) -> Array:
    """One example of a batch [..., layers, rows, columns]; one number for each leading axis.

    Raises ShapeError if the numbers are not as many as the leading axes, SelectionError if there is
    no such example.
    """
    numbers = example if isinstance(example, tuple) else (example,)
    batch = tuple(int(size) for size in array.shape[:-3])
    if len(numbers) != len(batch):
        raise ShapeError(
            f"example {example} was asked for of shape {shape_text(array)}, which has "
            f"{len(batch)} axes before its last three",
            expected="as many numbers",
            fix="Without such an axis there is no batch to choose from.",
        )
    for number, size in zip(numbers, batch, strict=True):
        if not -size <= number < size:
            raise SelectionError(
                f"there is no example {number}",
                expected=f"0 to {size - 1}, or -{size} to -1",
                fix="Examples count from 0.",
            )
    return array[numbers]
