"""What capturing costs: time and peak memory of a forward pass, with and without.

Compared on a BERT of MiniLM's size with random weights: the plain pass with SDPA attention; eager
attention with output_attentions=True, which is how weights are usually had, alone and followed by
a rollout; and what attnflow.models offers. Memory is measured in a process of its own for each:
the peak of resident memory during one pass above what was resident before it, after a plain pass
has warmed everything up. Run: python benchmarks/capture.py
"""

import argparse
import json
import os
import platform
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from importlib.metadata import version
from pathlib import Path
from statistics import median
from typing import Any

RESULTS = Path(__file__).parent / "results" / "capture.json"
METHODS = (
    "plain",
    "output_attentions",
    "output_attentions+rollout",
    "capture_attentions",
    "capture_graphs",
    "capture_rollout",
)


def make(options: argparse.Namespace) -> tuple[Any, Mapping[str, Any]]:
    from importlib import import_module

    import torch

    transformers: Any = import_module("transformers")  # typed only in part
    torch.set_num_threads(options.threads)
    torch.manual_seed(0)
    config = transformers.BertConfig(
        hidden_size=384,
        num_hidden_layers=options.layers,
        num_attention_heads=12,
        intermediate_size=1536,
        max_position_embeddings=max(512, options.tokens),
    )
    config._attn_implementation = "sdpa"
    model = transformers.BertModel(config, add_pooling_layer=False).eval()
    ids = torch.randint(5, 30000, (1, options.tokens))
    return model, {"input_ids": ids, "attention_mask": torch.ones_like(ids)}


def passes(model: Any, inputs: Mapping[str, Any]) -> dict[str, Callable[[], Any]]:
    import torch

    from attnflow import AttentionGraph, Attentions, rollout
    from attnflow.models import capture_attentions, capture_graphs, capture_rollout

    def plain() -> Any:
        with torch.no_grad():
            return model(**inputs)

    def eager() -> Any:
        model.set_attn_implementation("eager")
        try:
            with torch.no_grad():
                return model(**inputs, output_attentions=True)
        finally:
            model.set_attn_implementation("sdpa")

    def eager_rollout() -> Any:
        graph = AttentionGraph.from_attentions(Attentions(eager().attentions))
        return rollout(graph, layers=-1)

    return {
        "plain": plain,
        "output_attentions": eager,
        "output_attentions+rollout": eager_rollout,
        "capture_attentions": lambda: capture_attentions(model, inputs),
        "capture_graphs": lambda: capture_graphs(model, inputs),
        "capture_rollout": lambda: capture_rollout(model, inputs),
    }


def resident(field: str) -> int:
    """VmRSS or VmHWM of this process, in bytes."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(field):
            return int(line.split()[1]) * 1024
    raise OSError(f"/proc/self/status has no {field}; expected Linux")


def measure_memory(options: argparse.Namespace) -> None:
    """Print the bytes that one pass needs at its peak."""
    model, inputs = make(options)
    chosen = passes(model, inputs)
    chosen["plain"]()
    if options.method not in ("plain", "output_attentions"):
        # Load the code that is used, on two tokens.
        few = {name: value[:, :2] for name, value in inputs.items()}
        passes(model, few)[options.method]()
    Path("/proc/self/clear_refs").write_text("5")  # forget the peak so far
    before = resident("VmRSS")
    result = chosen[options.method]()
    print(resident("VmHWM") - before)
    del result


def measure_time(options: argparse.Namespace) -> dict[str, list[float]]:
    """Seconds of each pass, taking turns so that disturbances hit all alike."""
    model, inputs = make(options)
    chosen = passes(model, inputs)
    seconds: dict[str, list[float]] = {name: [] for name in METHODS}
    for turn in range(options.repeats + 2):
        for name in METHODS:
            start = time.perf_counter()
            result = chosen[name]()
            taken = time.perf_counter() - start
            del result
            if turn >= 2:  # the first turns warm up
                seconds[name].append(taken)
    return seconds


def in_a_process(options: argparse.Namespace, method: str) -> float:
    command = [sys.executable, __file__, "--method", method]
    for name in ("tokens", "layers", "threads"):
        command += [f"--{name}", str(getattr(options, name))]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return float(done.stdout.strip())


def compare(options: argparse.Namespace) -> dict[str, Any]:
    memory = {
        name: median(in_a_process(options, name) for _ in range(options.processes))
        for name in METHODS
    }
    seconds = measure_time(options)
    rows = {}
    for name in METHODS:
        # Within each turn, so that a slow moment of the machine slows both.
        ratios = [mine / plain for mine, plain in zip(seconds[name], seconds["plain"], strict=True)]
        rows[name] = {
            "seconds": median(seconds[name]),
            "fastest": min(seconds[name]),
            "times_plain": median(ratios),
            "fastest_times_plain": min(seconds[name]) / min(seconds["plain"]),
            "peak_bytes": memory[name],
            "extra_bytes": memory[name] - memory["plain"],
        }
    return rows


def show(rows: Mapping[str, Mapping[str, float]]) -> None:
    print(f"{'':28}{'ms':>8}{'x plain':>9}{'fastest':>9}{'peak MB':>10}{'extra MB':>10}")
    for name, row in rows.items():
        print(
            f"{name:28}{row['seconds'] * 1e3:8.1f}{row['times_plain']:9.2f}"
            f"{row['fastest_times_plain']:9.2f}{row['peak_bytes'] / 1e6:10.1f}"
            f"{row['extra_bytes'] / 1e6:10.1f}"
        )
    usual = rows["output_attentions"]["extra_bytes"]
    for name in ("capture_graphs", "capture_rollout"):
        extra = rows[name]["extra_bytes"]
        times = f"{usual / extra:.1f} times less" if extra > 0 else "no more memory than plain:"
        print(f"{name}: {times} extra memory than output_attentions=True")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tokens", type=int, default=512)
    parser.add_argument("--layers", type=int, default=6)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--repeats", type=int, default=11)
    parser.add_argument("--processes", type=int, default=3)
    parser.add_argument("--method", choices=METHODS, help="measure the memory of this one only")
    options = parser.parse_args()
    if options.method:
        measure_memory(options)
        return
    rows = compare(options)
    show(rows)
    result = {
        "date": time.strftime("%Y-%m-%d"),
        "machine": f"{platform.machine()}, {os.cpu_count()} processors",
        "versions": {name: version(name) for name in ("torch", "transformers")},
        "tokens": options.tokens,
        "layers": options.layers,
        "threads": options.threads,
        "methods": rows,
    }
    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
