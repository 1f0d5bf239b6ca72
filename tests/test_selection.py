import numpy as np
import pytest

from attnflow.errors import SelectionError, ShapeError
from attnflow.selection import pick_example, resolve_layers, resolve_positions
from tests.refusal import refusal

TOKENS = ["the", "key", "to", "the", "cabinets"]


@pytest.mark.parametrize(
    ("layers", "numbers"),
    [(None, (1, 2, 3)), (2, (2,)), (-1, (3,)), ([3, 1], (3, 1)), (np.int64(2), (2,))],
)
def test_layers_are_numbered_from_one(layers, numbers):
    assert resolve_layers(3, layers) == numbers


@pytest.mark.parametrize("layer", [0, 4, -4])
def test_a_layer_that_does_not_exist_is_refused(layer):
    with refusal(SelectionError, f"no layer {layer};", "expected 1 to 3", "numbered from 1"):
        resolve_layers(3, layer)


@pytest.mark.parametrize(
    ("positions", "indices"),
    [
        (None, (0, 1, 2, 3, 4)),
        (0, (0,)),
        (-1, (4,)),
        ("key", (1,)),
        (["cabinets", 0], (4, 0)),
        (range(2), (0, 1)),
    ],
)
def test_positions_are_indices_or_tokens(positions, indices):
    assert resolve_positions(TOKENS, 5, positions) == indices


@pytest.mark.parametrize("position", [5, -6])
def test_a_position_that_does_not_exist_is_refused(position):
    with refusal(SelectionError, f"no position {position};", "0 to 4, or -5 to -1", "from 0"):
        resolve_positions(TOKENS, 5, position)


def test_a_token_that_occurs_twice_is_refused_with_its_positions():
    with refusal(SelectionError, "'the' occurs at positions 0, 3", "position as a number"):
        resolve_positions(TOKENS, 5, "the")


def test_an_unknown_token_is_refused_with_close_matches():
    with refusal(SelectionError, "there is no token 'cabinet'", "such as 'cabinets'."):
        resolve_positions(TOKENS, 5, "cabinet")


def test_an_unknown_token_like_no_other_is_refused_with_the_first_tokens():
    with refusal(SelectionError, "no token 'zzz'", "such as 'the', 'key', 'to', 'cabinets'."):
        resolve_positions(TOKENS, 5, "zzz")


def test_nothing_and_twice_the_same_are_refused():
    with refusal(SelectionError, "no layer was given", "Give None for all"):
        resolve_layers(3, [])
    with refusal(SelectionError, "position 1 was asked for twice", "Remove one"):
        resolve_positions(TOKENS, 5, ["key", 1])


def test_an_example_of_a_batch():
    batch = np.arange(2 * 3 * 1 * 1 * 1).reshape(2, 3, 1, 1, 1)
    assert pick_example(batch, (1, -1)).item() == 5
    with refusal(SelectionError, "no example 2;", "expected 0 to 1", "count from 0"):
        pick_example(batch[:, 0], 2)
    with refusal(ShapeError, "example 0 was asked for", "[1, 1, 1]", "no batch to choose from"):
        pick_example(batch[0, 0], 0)
