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
    with refusal(SelectionError, f"layer is {layer};", "1", "3"):
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
    with refusal(SelectionError, f"position is {position};", "0", "4", "-5", "-1"):
        resolve_positions(TOKENS, 5, position)


def test_a_token_that_occurs_twice_is_refused_with_its_positions():
    with refusal(SelectionError, "'the'", "0", "3"):
        resolve_positions(TOKENS, 5, "the")


def test_an_unknown_token_is_refused_with_close_matches():
    with refusal(SelectionError, "'cabinet'", "'cabinets'"):
        resolve_positions(TOKENS, 5, "cabinet")


def test_an_unknown_token_like_no_other_is_refused_with_the_first_tokens():
    with refusal(SelectionError, "'zzz'", "'the'", "'key'", "'to'", "'cabinets'"):
        resolve_positions(TOKENS, 5, "zzz")


def test_nothing_and_twice_the_same_are_refused():
    with refusal(SelectionError, "layer", "None"):
        resolve_layers(3, [])
    with refusal(SelectionError, "1"):
        resolve_positions(TOKENS, 5, ["key", 1])


def test_an_example_of_a_batch():
    batch = np.arange(2 * 3 * 1 * 1 * 1).reshape(2, 3, 1, 1, 1)
    assert pick_example(batch, (1, -1)).item() == 5
    with refusal(SelectionError, "2", "0", "1"):
        pick_example(batch[:, 0], 2)
    with refusal(ShapeError, "0", "[1, 1, 1]"):
        pick_example(batch[0, 0], 0)


def test_a_token_is_found_by_its_readable_text():
    tokens = ["The", "\u0120caf\u00c3\u00a9", "\u0120The"]
    assert resolve_positions(tokens, 3, ["caf\u00e9", "The", "\u0120The"]) == (1, 0, 2)
    assert resolve_positions(tokens, 3, " caf\u00e9") == (1,)
    with refusal(SelectionError, "'coffee'", "'caf\u00e9'"):
        resolve_positions(tokens, 3, "coffee")
