"""Time and memory of edge weightings on a decoder, next to the bare model.

    python -m benchmarks.edges_speed [--tokens 64,256,512] [--size small|8b]

"8b" has the shape of Llama 3 8B with random weights in bfloat16, and needs a GPU; "small" has that
of SmolLM2 135M in float32. Prints seconds, ratios to the bare model, and on a GPU the memory that
the edges need in addition.
"""

import argparse
from collections.abc import Callable
from statistics import median
from time import perf_counter
from typing import Any

import torch

from attnflow.models.capture.api import capture_graphs
from attnflow.optional import import_optional

EDGES = ("attention", "norm", "contribution", "alti")
SHAPES: dict[str, dict[str, int]] = {
    "8b": {
        "hidden_size": 4096,
        "intermediate_size": 14336,
        "num_hidden_layers": 32,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "vocab_size": 128256,
    },
    "small": {
        "hidden_size": 576,
        "intermediate_size": 1536,
        "num_hidden_layers": 30,
        "num_attention_heads": 9,
        "num_key_value_heads": 3,
        "vocab_size": 49152,
    },
}


def seconds(run: Callable[[], Any]) -> float:
    """The median time of three runs, after one that warms up."""
    times = []
    for _ in range(4):
        start = perf_counter()
        run()
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        times.append(perf_counter() - start)
    return median(times[1:])


def main() -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tokens", default="64,256,512")
    parser.add_argument("--size", choices=SHAPES, default="small")
    options = parser.parse_args()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    torch.manual_seed(0)
    transformers: Any = import_optional("transformers", "the benchmark")
    with torch.device(device):
        model = transformers.LlamaForCausalLM(
            transformers.LlamaConfig(**SHAPES[options.size])
        ).eval()
    if options.size == "8b":
        model = model.to(torch.bfloat16)
    for n in map(int, options.tokens.split(",")):
        inputs = {"input_ids": torch.randint(5, 1000, (1, n), device=device)}
        with torch.no_grad():
            bare = seconds(lambda inputs=inputs: model(**inputs))  # type: ignore[misc]
        cells = [f"{n:5} tokens, bare {bare:.3f} s"]
        for edges in EDGES:
            if device == "cuda":
                torch.cuda.reset_peak_memory_stats()
                before = torch.cuda.memory_allocated()
            taken = seconds(
                lambda inputs=inputs, edges=edges: capture_graphs(  # type: ignore[misc]
                    model, inputs, edges=edges
                )
            )
            cell = f"{edges} {taken:.2f} s ({taken / bare:.1f}x)"
            if device == "cuda":
                cell += f" {(torch.cuda.max_memory_allocated() - before) / 2**30:.1f} GiB"
            cells.append(cell)
        print("; ".join(cells), flush=True)


if __name__ == "__main__":
    main()
