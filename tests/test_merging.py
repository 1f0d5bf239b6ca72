import numpy as np
import pytest
import torch

from attnflow.errors import AttentionError, InputError, SelectionError, ShapeError
from attnflow.head_merge import describe_heads, merge_heads
from attnflow.layers import mix_residual, resolve_residual
from tests.refusal import refusal
from tests.weights import random_attention

# Two heads, one query: rows [0.8, 0.2, 0] and [0.2, 0.4, 0.4].
HEADS = np.asarray([[[0.8, 0.2, 0.0]], [[0.2, 0.4, 0.4]]])


@pytest.mark.parametrize(
    ("heads", "expected"),
    [
        ("mean", [0.5, 0.3, 0.2]),
        ("max", [0.8 / 1.6, 0.4 / 1.6, 0.4 / 1.6]),  # the maxima sum to 1.6
        ("min", [0.5, 0.5, 0.0]),  # the minima are 0.2, 0.2 and 0
        (0, [0.8, 0.2, 0.0]),
        (-1, [0.2, 0.4, 0.4]),
        (lambda layer: layer[0] + layer[1], [0.5, 0.3, 0.2]),
    ],
)
@pytest.mark.parametrize("convert", [np.asarray, torch.as_tensor])
def test_heads_are_merged_and_rows_rescaled(heads, expected, convert):
    merged = merge_heads(convert(HEADS), heads, "layer 1")
    assert type(merged) is type(convert(HEADS))
    np.testing.assert_allclose(np.asarray(merged), [expected], rtol=1e-15)


@pytest.mark.parametrize("heads", ["mean", "max", "min", 1, lambda layer: layer[0]])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_merged_in_float32(heads, dtype):
    layer = torch.as_tensor(random_attention(4, 5, 5)).to(dtype)
    merged = merge_heads(layer, heads, "layer 1")
    assert merged.dtype == torch.float32
    np.testing.assert_allclose(merged.sum(-1).numpy(), 1, atol=1e-6)


def test_a_head_that_does_not_exist_is_refused():
    with refusal(SelectionError, "1", "2", "0"):
        merge_heads(HEADS, 2, "layer 1")


def test_an_unknown_way_to_merge_is_refused():
    with refusal(InputError, "'sum'", "'mean'", "'max'", "'min'"):
        merge_heads(HEADS, "sum", "layer 1")  # type: ignore[arg-type]


def test_a_function_that_does_not_merge_is_refused():
    with refusal(ShapeError, "[2, 1, 3]", "1", "[1, 3]"):
        merge_heads(HEADS, lambda layer: layer, "layer 1")


def test_heads_that_share_no_key_have_no_minimum():
    layer = np.asarray([[[1.0, 0.0]], [[0.0, 1.0]]])
    with refusal(AttentionError, "heads='min'", "1"):
        merge_heads(layer, "min", "layer 1")


def test_functions_are_recorded_by_name():
    def best(layer):
        return layer

    assert describe_heads(best) == "best"
    assert describe_heads(3) == 3


@pytest.mark.parametrize("convert", [np.asarray, torch.as_tensor])
def test_the_residual_connection_is_mixed_in_by_layer(convert):
    swap = [[0.0, 1.0], [1.0, 0.0]]
    mixed = mix_residual(convert(np.asarray([swap, swap])), [0.25, 1.0])
    # 0.75 * swap + 0.25 * I, and the identity.
    assert mixed.tolist() == [[[0.25, 0.75], [0.75, 0.25]], [[1.0, 0.0], [0.0, 1.0]]]


def test_positions_without_residual_connection_keep_their_row():
    swap = np.asarray([[[0.0, 1.0], [1.0, 0.0]]])
    mixed = mix_residual(swap, [0.5], np.asarray([[True, False]]))
    assert mixed.tolist() == [[[0.5, 0.5], [1.0, 0.0]]]


@pytest.mark.parametrize("value", [-0.1, 1.1, float("nan"), "much"])
def test_a_residual_weight_out_of_range_is_refused(value):
    with refusal(InputError, f"residual_weight is {value!r}", "0", "1"):
        resolve_residual(value, 2)


def test_as_many_residual_weights_as_layers_are_expected():
    with refusal(ShapeError, "residual_weight", "3", "2"):
        resolve_residual([0.1, 0.2, 0.3], 2)
