"""Attention weights for tests: a few worked out by hand, and strategies for the rest."""

from typing import Any

import numpy as np
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from numpy.typing import NDArray

# Two tokens, two layers. With residual weight 0.5 they become
# A1 = 0.5 W1 + 0.5 I = [[0.75, 0.25], [0, 1]] and A2 = [[0.5, 0.5], [0.5, 0.5]].
TWO_LAYERS = np.asarray([[[0.5, 0.5], [0.0, 1.0]], [[0.0, 1.0], [1.0, 0.0]]])
# A2 A1: both rows are 0.5 * [0.75, 0.25] + 0.5 * [0, 1].
TWO_LAYERS_ROLLOUT = np.asarray([[0.375, 0.625], [0.375, 0.625]])


@st.composite
def stochastic(
    draw: st.DrawFn, *leading: int | tuple[int, int], n: tuple[int, int] = (1, 5)
) -> NDArray[np.float64]:
    """Arrays [*leading, n, n] with rows that sum to 1; a pair stands for a range of sizes."""
    sizes = [size if isinstance(size, int) else draw(st.integers(*size)) for size in leading]
    width = draw(st.integers(*n))
    counts = draw(arrays(np.int64, (*sizes, width, width), elements=st.integers(0, 9)))
    weights = counts.astype(np.float64)
    weights[..., 0] += weights.sum(-1) == 0
    return np.asarray(weights / weights.sum(-1, keepdims=True))


def random_attention(*shape: int, seed: int = 0) -> NDArray[np.float64]:
    """Softmax of random numbers over the last axis."""
    scores = np.exp(2 * np.random.default_rng(seed).normal(size=shape))
    return np.asarray(scores / scores.sum(-1, keepdims=True))


class OnlyDLPack:
    """An array of a library that attnflow does not know, seen through DLPack only."""

    def __init__(self, array: Any) -> None:
        self.array = array

    def __dlpack__(self, **options: Any) -> Any:
        return self.array.__dlpack__(**options)

    def __dlpack_device__(self) -> Any:
        return self.array.__dlpack_device__()
