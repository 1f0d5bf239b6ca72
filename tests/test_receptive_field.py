import numpy as np
import pytest
import torch

from attnflow.errors import AttentionError
from attnflow.layers import causal_field, is_causal, resolve_causal, uniform_attention
from tests.refusal import refusal

BACK = np.asarray([[1.0, 0.0], [0.5, 0.5]])
FORWARD = np.asarray([[0.5, 0.5], [0.0, 1.0]])


@pytest.mark.parametrize("convert", [np.asarray, torch.as_tensor])
def test_a_single_weight_on_a_later_key_looks_forward(convert):
    assert is_causal(convert(BACK))
    assert not is_causal(convert(np.stack([BACK, FORWARD])))


def test_causal_is_found_out_unless_told():
    assert resolve_causal(BACK[None], None)
    assert not resolve_causal(BACK[None], False)
    assert not resolve_causal(FORWARD[None], None)
    assert not resolve_causal(np.ones((1, 1, 1)), None)
    assert resolve_causal(np.ones((1, 1, 1)), True)


def test_one_example_of_a_batch_that_looks_forward_is_enough():
    batch = np.stack([[BACK, BACK], [BACK, FORWARD]])
    assert not resolve_causal(batch, None)
    with refusal(AttentionError, "2", "(query 0", "1)"):
        resolve_causal(batch, True)


def test_even_attention_over_a_field():
    even = uniform_attention(causal_field(3), like=torch.zeros(1, dtype=torch.float32))
    assert even.dtype == torch.float32
    np.testing.assert_allclose(even.numpy(), [[1.0, 0.0, 0.0], [0.5, 0.5, 0.0], [1 / 3] * 3])


def test_an_empty_field_has_no_attention():
    assert uniform_attention(np.zeros((1, 2), dtype=bool), like=np.zeros(1)).tolist() == [
        [0.0, 0.0]
    ]
