"""Selections: layers, positions and examples, by number or by the text of a token.

Layers are numbered from 1, as in the paper; 0 is the input. Positions, heads and examples count
from 0.
"""

from collections.abc import Iterable, Sequence
from difflib import get_close_matches
from operator import index
from typing import Any, TypeAlias

from attnflow.arrays import Array, shape_text
from attnflow.errors import SelectionError, ShapeError, quote
from attnflow.token_text import readable_tokens

Layers: TypeAlias = int | Sequence[int] | None
Position: TypeAlias = int | str
Positions: TypeAlias = Position | Sequence[Position] | None


def resolve_layers(n_layers: int, layers: Layers = None) -> tuple[int, ...]:
    """Return the numbers, from 1, of the selected layers, in the given order.

    layers: None for all, one number, or several; -1 is the last layer.
    Raises SelectionError for a layer that does not exist or is repeated, and for no layer at all.

    >>> resolve_layers(6, [1, -1])
    (1, 6)
    """
    if layers is None:
        return tuple(range(1, n_layers + 1))
    asked = _as_items(layers, "layer")
    return _distinct([resolve_layer(n_layers, layer) for layer in asked], "layer")


def resolve_layer(n_layers: int, layer: int) -> int:
    """Return the number, from 1, of one layer; negative numbers count from the last.

    >>> resolve_layer(6, -2)
    5
    """
    number = as_index(layer, "layer")
    if number < 0:
        number += n_layers + 1
    if not 1 <= number <= n_layers:
        raise SelectionError(
            f"layer is {layer}",
            expected=f"1 to {n_layers}, or -{n_layers} to -1",
            fix="Layers are numbered from 1.",
        )
    return number


def resolve_positions(
    tokens: Sequence[str], n: int, positions: Positions = None
) -> tuple[int, ...]:
    """Return the indices of the selected positions, in the given order.

    tokens: the text at each of the n positions.
    positions: None for all, an index, the text of a token, or several of these.
    Raises SelectionError for a position that does not exist, an ambiguous text or a repeated
    position, and for no position at all.

    >>> resolve_positions(["the", "key", "is"], 3, ["key", -1])
    (1, 2)
    """
    if positions is None:
        return tuple(range(n))
    asked = _as_items(positions, "position")
    return _distinct([resolve_position(tokens, n, position) for position in asked], "position")


def resolve_position_sets(tokens: Sequence[str], positions: Any) -> tuple[tuple[int, ...], ...]:
    """Return the indices of each set in a list with sets of positions; none for plain positions.

    >>> resolve_position_sets(["the", "key", "is"], [["the", "key"], 2])
    ((0, 1), (2,))
    >>> resolve_position_sets(["the", "key", "is"], ["the", "key"])
    ()
    """
    is_list = isinstance(positions, list | tuple)
    if not is_list or not any(isinstance(item, list | tuple | range) for item in positions):
        return ()
    sets = [item if isinstance(item, list | tuple | range) else [item] for item in positions]
    return tuple(resolve_positions(tokens, len(tokens), places) for places in sets)


def resolve_position(tokens: Sequence[str], n: int, position: Position) -> int:
    """Return the index of one position, given as an index or as the text of its token.

    The exact token comes first, then its readable text.

    >>> resolve_position(["the", "\u0120key"], 2, "key")
    1
    """
    if isinstance(position, str):
        return _find_token(tokens, position)
    number = as_index(position, "position")
    if not -n <= number < n:
        raise SelectionError(
            f"position is {position}",
            expected=f"0 to {n - 1}, or -{n} to -1",
            fix="Positions count from 0.",
        )
    return number % n


def _find_token(tokens: Sequence[str], text: str) -> int:
    found = [i for i, token in enumerate(tokens) if token == text]
    labels = readable_tokens(tokens)
    if not found:
        found = [i for i, label in enumerate(labels) if label == (text.strip() or text)]
    if len(found) == 1:
        return found[0]
    if found:
        raise SelectionError(
            f"the token {text!r} occurs at positions {', '.join(map(str, found))}",
            expected="a token that occurs once",
            fix=f"Give the position as a number, such as {found[0]}.",
        )
    close = get_close_matches(text, labels, cutoff=0.5) or list(dict.fromkeys(labels))[:8]
    raise SelectionError(
        f"there is no token {text!r}",
        expected=f"the text of a token, such as {', '.join(map(repr, close))}",
        fix="Use the exact text of a token, or the position as a number.",
    )


def _as_items(value: Any, what: str) -> list[Any]:
    """One or several layers or positions as a list; arrays may have one axis.

    Raises SelectionError for anything without an order, such as a set.
    """
    if hasattr(value, "tolist"):
        try:
            value = value.tolist()
        except Exception:  # such as a tensor without values
            raise _not_an_index(value, what) from None
    if isinstance(value, str | bytes) or not isinstance(value, Iterable):
        return [value]
    if not isinstance(value, Sequence):
        raise SelectionError(
            f"{what}s are a {type(value).__name__}",
            expected="a list, a tuple, a range or an array",
            fix=f"Pass a list, which has an order: list({what}s).",
        )
    return list(value)


def as_index(value: object, what: str) -> int:
    """Return a whole number. Raises SelectionError for anything else, booleans included."""
    try:
        if isinstance(value, bool):
            raise TypeError
        return index(value)  # type: ignore[arg-type]
    except Exception:  # `__index__` may be code of other packages
        raise _not_an_index(value, what) from None


def _not_an_index(value: object, what: str) -> SelectionError:
    return SelectionError(
        f"{what} is {quote(value)}, a {type(value).__name__}",
        expected="a whole number" + (" or the text of a token" if what == "position" else ""),
        fix=f"Pass a number such as {what}=-1, which is the last one.",
    )


def _distinct(numbers: list[int], what: str) -> tuple[int, ...]:
    if not numbers:
        raise SelectionError(
            f"no {what} is selected",
            expected="at least one",
            fix="Use None for all.",
        )
    for i, number in enumerate(numbers):
        if number in numbers[:i]:
            raise SelectionError(
                f"{what} {number} is selected twice",
                expected=f"each {what} once",
                fix="Remove one.",
            )
    return tuple(numbers)


def pick_example(array: Array, example: int | tuple[int, ...]) -> Array:
    """Select one example of a batch [..., layers, rows, columns]; one index per leading axis.

    Raises ShapeError for another number of indices, SelectionError for an invalid index.
    """
    numbers = tuple(
        as_index(number, "example")
        for number in (example if isinstance(example, tuple) else (example,))
    )
    batch = tuple(int(size) for size in array.shape[:-3])
    if len(numbers) != len(batch):
        raise ShapeError(
            f"example is {example} for an array of shape {shape_text(array)}",
            expected=f"one index for each of the {len(batch)} axes before the last three",
            fix="An array without such an axis is not a batch: use it as it is.",
        )
    for number, size in zip(numbers, batch, strict=True):
        if not -size <= number < size:
            raise SelectionError(
                f"example is {number}",
                expected=f"0 to {size - 1}, or -{size} to -1",
                fix="Examples count from 0.",
            )
    return array[numbers]
