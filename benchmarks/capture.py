"""Time and peak memory of a forward pass, with and without capture.

The model is a BERT of the size of MiniLM with random weights. Compared are the plain forward pass
with SDPA attention; eager attention with output_attentions=True, the usual way to get weights,
alone and followed by rollout; and the three functions of attnflow.models. Memory is measured in a
separate process for each: the peak of resident memory during one pass, minus the resident memory
before it, after a plain pass for warm-up. Run: python benchmarks/capture.py
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
PASSES = (
    "plain",
    "output_attentions",
    "output_attentions+rollout",
    "capture_attentions",
    "capture_graphs",
    "capture_rollout",
)


def make_model(options: argparse.Namespace) -> tuple[Any, Mapping[str, Any]]:
    """Return the model and its inputs."""
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


def make_passes(model: Any, inputs: Mapping[str, Any]) -> dict[str, Callable[[], Any]]:
    """Return a function for each of PASSES."""
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


def read_memory(field: str) -> int:
    """Return VmRSS or VmHWM of this process, in bytes."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(field):
            return int(line.split()[1]) * 1024
    raise OSError(f"/proc/self/status has no {field}; expected Linux")


def measure_memory(options: argparse.Namespace) -> None:
    """Print the peak memory of one pass, in bytes."""
    model, inputs = make_model(options)
    passes = make_passes(model, inputs)
    passes["plain"]()
    if options.method not in ("plain", "output_attentions"):
        # Warm up the code on two tokens.
        few = {name: value[:, :2] for name, value in inputs.items()}
        make_passes(model, few)[options.method]()
    Path("/proc/self/clear_refs").write_text("5")  # reset the peak
    before = read_memory("VmRSS")
    result = passes[options.method]()
    print(read_memory("VmHWM") - before)
    del result


def measure_time(options: argparse.Namespace) -> dict[str, list[float]]:
    """Return the seconds of each pass; passes alternate, so that disturbances affect all."""
    model, inputs = make_model(options)
    passes = make_passes(model, inputs)
    seconds: dict[str, list[float]] = {name: [] for name in PASSES}
    for turn in range(options.repeats + 2):
        for name in PASSES:
            start = time.perf_counter()
            result = passes[name]()
            elapsed = time.perf_counter() - start
            del result
            if turn >= 2:  # the first turns are warm-up
                seconds[name].append(elapsed)
    return seconds


def memory_in_new_process(options: argparse.Namespace, method: str) -> float:
    """Return the peak memory of one pass, measured in a new process."""
    command = [sys.executable, __file__, "--method", method]
    for name in ("tokens", "layers", "threads"):
        command += [f"--{name}", str(getattr(options, name))]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return float(done.stdout.strip())


def compare(options: argparse.Namespace) -> dict[str, Any]:
    """Return time and memory of each pass, also relative to the plain pass."""
    memory = {
        name: median(memory_in_new_process(options, name) for _ in range(options.processes))
        for name in PASSES
    }
    seconds = measure_time(options)
    rows = {}
    for name in PASSES:
        # Ratios within each turn, so that a slow moment of the machine affects both.
        pairs = zip(seconds[name], seconds["plain"], strict=True)
        ratios = [elapsed / plain for elapsed, plain in pairs]
        rows[name] = {
            "seconds": median(seconds[name]),
            "fastest": min(seconds[name]),
            "times_plain": median(ratios),
            "fastest_times_plain": min(seconds[name]) / min(seconds["plain"]),
            "peak_bytes": memory[name],
            "extra_bytes": memory[name] - memory["plain"],
        }
    return rows


def print_table(rows: Mapping[str, Mapping[str, float]]) -> None:
    """Print a line for each pass."""
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
    parser.add_argument("--method", choices=PASSES, help="print the peak memory of this pass only")
    options = parser.parse_args()
    if options.method:
        measure_memory(options)
        return
    rows = compare(options)
    print_table(rows)
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
