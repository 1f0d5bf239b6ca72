import numpy as np
import pytest
import torch

from attnflow.arrays import rescale_rows
from attnflow.attentions import ROW_SUM_TOLERANCE, check_rows
from attnflow.errors import AttentionError
from tests.refusal import refusal
from tests.weights import random_attention


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("n", [1, 7, 2000])
def test_softmax_of_every_type_passes(dtype, n):
    weights = torch.as_tensor(random_attention(1, 3, n)).to(dtype)
    check_rows(weights, "layer 1", leading="head")


def test_float32_weights_widened_to_float64_pass():
    check_rows(random_attention(1, 3, 500).astype(np.float32).astype(np.float64), "", leading="")


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16, torch.bfloat16])
def test_rows_off_by_twice_the_tolerance_are_refused(dtype):
    tolerance = ROW_SUM_TOLERANCE[str(dtype).removeprefix("torch.")]
    weights = torch.as_tensor([[0.5, 0.5 + 2 * tolerance]], dtype=dtype)
    with refusal(AttentionError, "1", f"within {tolerance:g} for"):
        check_rows(weights, "layer 1", leading="head")


def test_the_row_is_named_and_dropout_suspected():
    weights = np.asarray([[[0.5, 0.5], [0.5, 0.5]], [[0.5, 0.5], [0.3, 0.3]]])
    with refusal(AttentionError, "0.6 (head 1", "1)", "model.eval()"):
        check_rows(weights, "layer 1", leading="head")


def test_transposed_weights_are_recognised():
    weights = np.asarray([[0.5, 0.0], [0.5, 1.0]])
    with refusal(AttentionError, "0.5 (query 0)"):
        check_rows(weights, "layer 1", leading="head")


def test_negative_weights_are_refused():
    weights = np.asarray([[[1.5, -0.5]]])
    with refusal(AttentionError, "-0.5 (head 0", "0", "1)"):
        check_rows(weights, "layer 1", leading="head")


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_weights_that_are_not_finite_are_refused(value):
    weights = np.asarray([[[value, 0.5]]])
    with refusal(AttentionError, f"{value} (head 0, query 0, key 0)", "padding_mask"):
        check_rows(weights, "layer 1", leading="head")


def test_rescaling_keeps_rows_of_zeros():
    # 1 / 4 and 3 / 4; a row of zeros has no sum to divide by.
    rescaled = rescale_rows(torch.as_tensor([[1.0, 3.0], [0.0, 0.0]]))
    assert rescaled.tolist() == [[0.25, 0.75], [0.0, 0.0]]
