"""Cases for the kernels of `triton_kernels`, compared with torch.

Run on a GPU by test_triton_kernels.py, or without pytest by `python -m
tests.models.capture.kernel_cases`, which prints the largest difference of each case. Under Triton's
interpreter (TRITON_INTERPRET=1) both also run on a CPU, on smaller cases.
"""

import os
import sys
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from attnflow.models.capture.call import DotProductCall
from attnflow.models.capture.merge import as_shares

IS_INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
DEVICE = "cpu" if IS_INTERPRETED else "cuda"
# On a CPU few positions, and two bytes are float16: the interpreter cannot multiply bfloat16.
SIZE = 75 if IS_INTERPRETED else 401
TOLERANCE = 2e-5


@dataclass(frozen=True)
class Case:
    """One attention layer: sizes, and the options of a DotProductCall.

    shape: batch, heads, key heads, queries, keys, width. mask: "window", "padding" or "additive".
    """

    name: str
    shape: tuple[int, int, int, int, int, int]
    dtype: torch.dtype = torch.float32
    mask: str = ""
    causal: bool = False
    softcap: float | None = None
    sinks: bool = False

    def call(self) -> DotProductCall:
        """A call with random queries and keys; those of long vectors have larger scores."""
        batch, heads, key_heads, n_queries, n_keys, width = self.shape
        generator = torch.Generator().manual_seed(0)

        def draw(*shape: int) -> Tensor:
            return torch.randn(*shape, generator=generator).to(DEVICE, self.dtype)

        mask, window = None, None
        if self.mask == "window":
            window = 9
            mask = torch.ones(n_queries, n_keys, dtype=torch.bool).tril().triu(1 - window)
            mask = mask[None, None].to(DEVICE)
        elif self.mask == "padding":
            lengths = torch.arange(batch)[:, None] * (n_keys // 3) + n_keys // 4
            mask = (torch.arange(n_keys) < lengths)[:, None, None, :].to(DEVICE)
        elif self.mask == "additive":
            mask = draw(batch, 1, n_queries, n_keys)
            mask[..., 0] = torch.finfo(self.dtype).min
        return DotProductCall(
            None,
            draw(batch, n_queries, heads, width).transpose(1, 2),
            2 * draw(batch, key_heads, n_keys, width),
            draw(batch, key_heads, n_keys, width),
            scaling=width**-0.5,
            mask=mask,
            window=window,
            causal=self.causal,
            softcap=self.softcap,
            sinks=draw(heads) if self.sinks else None,
        )


HALF = torch.float16 if IS_INTERPRETED else torch.bfloat16
N = SIZE
CASES = [
    Case("causal, grouped queries, width 128", (1, 4, 2, N, N, 128), HALF, causal=True),
    Case("full, width 64", (2, 3, 3, N, N, 64), HALF),
    Case("float16, causal, width 256", (1, 2, 1, N, N, 256), torch.float16, causal=True),
    Case("float32, causal, width 32", (2, 4, 1, N, N, 32), causal=True),
    Case("float32, full, width 24", (1, 2, 2, N, N, 24)),
    Case("float32, width 256", (1, 2, 1, N, N, 256), causal=True),
    Case("window", (1, 4, 2, N, N, 64), HALF, mask="window"),
    Case("window, soft cap, sinks", (1, 2, 1, N, N, 64), HALF, "window", False, 5.0, True),
    Case("float32, window, sinks", (2, 2, 1, N, N, 32), mask="window", sinks=True),
    Case("padding", (3, 2, 2, N, N, 64), HALF, mask="padding"),
    Case("float32, padding, short", (3, 3, 3, 40, 40, 32), mask="padding"),
    Case("short", (2, 4, 2, 33, 33, 64), HALF, causal=True),
    Case("cross, additive mask", (2, 2, 2, 50, N, 64), HALF, mask="additive"),
    Case("causal, soft cap", (1, 2, 2, N, N, 96), HALF, causal=True, softcap=20.0),
]


MODELS = [
    *((name, "attention", torch.float32) for name in ("llama", "gemma2", "gpt-oss", "bert", "t5")),
    ("llama", "attention", torch.bfloat16),
    ("llama", "alti", torch.float16),
    ("llama", "alti", torch.float32),
    ("bert", "alti", torch.float16),
    ("gemma2", "alti", torch.float16),
    ("bart", "alti", torch.float16),
    ("t5", "alti", torch.float32),
    ("mistral", "alti", torch.bfloat16),
]


def compare_weights(case: Case) -> dict[str, float]:
    """The largest differences from torch, of all kernels of a layer."""
    from attnflow.models.capture import triton_kernels

    call = case.call()
    expected = as_shares(call, call.weights()).mean(1)
    visible = call.visible()
    if visible is not None:  # torch spreads the weight of queries that see no key over all keys
        expected = expected * visible.any(-1).any(1)[..., None]
    generator = torch.Generator().manual_seed(1)
    rows = torch.rand(case.shape[0], 3, case.shape[3], generator=generator).to(DEVICE)
    rows[..., ::5] = 0
    rows = rows / rows.sum(-1, keepdim=True)
    found: dict[str, tuple[Tensor, Tensor]] = {}
    with torch.no_grad():
        found["mean"] = triton_kernels.average_heads(call), expected
        few = triton_kernels.multiply_rows(rows, call)
        found["rows"] = few, rows @ expected
        found["row"] = triton_kernels.multiply_rows(rows[:, :1], call), rows[:, :1] @ expected
    return {name: _difference(*pair) for name, pair in found.items()}


def compare_attend(dtype: torch.dtype, key_heads: int, width: int) -> dict[str, float]:
    """The largest differences of the output and log-sum-exp of torch's own kernels."""
    from attnflow.models.capture.fused_attention import attend

    case = Case("attend", (2, 4, key_heads, SIZE, SIZE, width), dtype, causal=True)
    call, plain = case.call(), case.call()
    with torch.no_grad():
        if not attend(call):
            return {"skipped": 0.0}
        scores = plain._scores(slice(None), slice(None), None)
        expected = plain.compute_output()
    assert call.output is not None
    assert call.logsumexp is not None
    rounding = {torch.bfloat16: 3e-2, torch.float16: 1e-2, torch.float32: 1e-5}[dtype]
    tolerance = TOLERANCE / rounding
    return {
        "output": _difference(call.output.float(), expected.float()) * tolerance,
        "log-sum-exp": _difference(call.logsumexp, scores.logsumexp(-1)) / 10,
    }


def compare_proximity(half: bool, causal: bool, cross: bool) -> dict[str, float]:
    """The largest difference of ALTI scores, relative to the length of the sum."""
    from attnflow.models.capture import triton_proximity

    batch, heads, n_queries, n_keys, hidden = 2, 5, SIZE // 4, SIZE // 2, 200
    first = n_keys // 3
    generator = torch.Generator().manual_seed(0)

    def draw(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator).to(DEVICE)

    weights = (2 * draw(batch, heads, n_queries, n_keys)).softmax(-1)
    weights[..., n_keys // 2 : n_keys // 2 + 20] = 0
    if causal:
        weights = weights.tril(first)
    values, total = draw(batch, heads, n_keys, hidden), 5 * draw(batch, n_queries, hidden)
    factor = draw(batch, n_queries).exp()
    own = None if cross else draw(batch, n_queries, hidden)
    parts = torch.einsum("bq,bhqk,bhkd->bqkd", factor, weights, values)
    unseen = (parts == 0).all(-1)
    if own is not None:
        places = torch.arange(n_queries, device=DEVICE)
        parts[:, places, first + places] += own
        unseen[:, places, first + places] = False
    length = total.abs().sum(-1, keepdim=True)
    expected = (length - (total.unsqueeze(2) - parts).abs().sum(-1)).clamp_min(0) / length
    dtype = torch.float16 if half else torch.float32
    scores = triton_proximity.score_proximity(
        weights.to(dtype).transpose(2, 3).contiguous(),
        values.to(dtype),
        own,
        total,
        factor,
        first=first,
        causal=causal,
    )
    assert unseen.any()
    return {
        "scores": _difference(scores / length, expected) / (50 if half else 1),
        "unseen": float(scores[unseen].abs().max()),
    }


def compare_head_weights(case: Case) -> dict[str, float]:
    """The largest difference of the weights of heads from torch."""
    from attnflow.models.capture import triton_proximity

    call = case.call()
    rows = slice(case.shape[3] // 3, case.shape[3] - 1)
    expected = call.weights(rows=rows).transpose(2, 3)
    with torch.no_grad():
        exact = triton_proximity.head_weights(call, rows, torch.float32, 1.0)
        rounded = triton_proximity.head_weights(call, rows, torch.float16, 4096.0)
    if call.causal:  # some of the keys that no query sees are not written
        positions = torch.arange(case.shape[4], device=DEVICE)
        hidden = positions[:, None] > positions[rows]
        exact, rounded = exact.masked_fill(hidden, 0), rounded.masked_fill(hidden, 0)
    return {
        "float32": _difference(exact, expected),
        "float16": _difference(rounded.float() / 4096, expected) / 50,
    }


def compare_model(name: str, edges: str, dtype: torch.dtype) -> dict[str, float]:
    """The largest differences of a model on the GPU from the same model in float32 on the CPU."""
    from attnflow.models import capture_graphs, capture_rollout
    from attnflow.models.capture import contributions
    from tests.models.tiny import TINY

    tiny = TINY[name]
    model = tiny.make("eager" if name in ("gemma2", "gpt-oss") else "sdpa").to(dtype)
    inputs = tiny.inputs((7, 4))
    work, contributions.FUSED_WORK = contributions.FUSED_WORK, 0
    try:
        expected, _ = capture_graphs(model.float(), inputs, edges=edges)
        model, inputs = model.to(DEVICE, dtype), {k: v.to(DEVICE) for k, v in inputs.items()}
        graphs, _ = capture_graphs(model, inputs, edges=edges)
    finally:
        contributions.FUSED_WORK = work
    rounding = 1 if dtype == torch.float32 else 1000  # of the model itself
    pairs = zip(graphs, expected, strict=True)
    found = max(_difference(graph.weights.cpu(), other.weights) for graph, other in pairs)
    result = {"graph": found / rounding}
    if edges == "attention":
        whole, _ = capture_rollout(model, inputs)
        few, _ = capture_rollout(model, inputs, positions=[0, -1])
        result["rollout"] = max(
            _difference(some.scores[:, [0, -1]], every.scores[:, [0, -1]])
            for some, every in zip(few, whole, strict=True)
        )
    return result


def _difference(result: Tensor, expected: Tensor) -> float:
    assert result.shape == expected.shape
    return float((result.float() - expected.float()).abs().nan_to_num(nan=1e9).max())


def all_checks() -> dict[str, Callable[[], dict[str, float]]]:
    """Every comparison by its name; differences must be at most TOLERANCE."""
    checks: dict[str, Callable[[], dict[str, float]]] = {}
    for case in CASES:
        checks[case.name] = lambda case=case: compare_weights(case)  # type: ignore[misc]
    for half in (False, True):
        for causal, cross in ((False, False), (True, False), (False, True)):
            kind = ", cross" if cross else ", causal" if causal else ""
            name = f"proximity, {'float16' if half else 'float32'}{kind}"
            checks[name] = lambda options=(half, causal, cross): compare_proximity(*options)  # type: ignore[misc]
    for case in CASES:
        if not case.sinks and case.mask != "padding":  # torch gives padding even weights
            name = f"weights of heads, {case.name}"
            checks[name] = lambda case=case: compare_head_weights(case)  # type: ignore[misc]
    if not IS_INTERPRETED:
        for model, edges, dtype in MODELS:
            checks[f"{model}, {edges}, {dtype}"] = lambda model=model, edges=edges, dtype=dtype: (  # type: ignore[misc]
                compare_model(model, edges, dtype)
            )
        for options in (
            (torch.bfloat16, 4, 64),
            (torch.bfloat16, 2, 128),
            (torch.float16, 1, 96),
            (torch.float32, 4, 64),
            (torch.float32, 2, 32),
            (torch.bfloat16, 4, 36),
        ):
            name = f"attend, {options[0]}, {options[1]} key heads, width {options[2]}"
            checks[name] = lambda options=options: compare_attend(*options)  # type: ignore[misc]
    return checks


def use_small_tiles() -> None:
    """Make tiles small enough for the sizes of the interpreter to have several."""
    from attnflow.models.capture import triton_kernels, triton_proximity

    triton_kernels.ROW_TILES = {2: (32, 32, 4, 1), 4: (16, 32, 4, 1)}
    triton_kernels.ONE_ROW_TILES = triton_kernels.ROW_TILES
    triton_kernels.MEAN_TILES = {2: (32, 16, 4, 1), 4: (16, 32, 4, 1)}
    triton_kernels.WIDE_TILES = triton_kernels.MEAN_TILES
    triton_kernels.SHORT = 64
    triton_proximity.TILES = {2: (32, 64, 4, 1), 4: (16, 64, 4, 1)}
    triton_proximity.WEIGHT_TILES = {2: (32, 16, 4, 1), 4: (16, 32, 4, 1)}
    triton_proximity.SUM_TILE = (16, 8)


def main() -> int:
    """Print every comparison, also after one fails; the number of those that failed.

    Arguments: this process's number and the number of processes that share the cases.
    """
    if IS_INTERPRETED:
        use_small_tiles()
    share, n_shares = map(int, sys.argv[1:3]) if len(sys.argv) > 2 else (0, 1)
    failures = 0
    for i, (name, check) in enumerate(all_checks().items()):
        if i % n_shares != share:
            continue
        result: Any
        try:
            result = check()
            is_good = all(value <= TOLERANCE for value in result.values())
        except Exception:
            result, is_good = traceback.format_exc(), False
        failures += not is_good
        print(f"{'ok  ' if is_good else 'FAIL'} {name}: {result}", flush=True)
    return failures


if __name__ == "__main__":
    sys.exit(main())
