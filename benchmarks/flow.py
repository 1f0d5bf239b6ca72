"""Exact attention flow against general solvers: medians, ratios, growth.

    python -m benchmarks.flow [--quick]

Prints tables, saves benchmarks/results/flow.json, and writes docs/flow-speed.md and its figure
from that file. All solvers run in one process on the same graphs, and every value is compared
with that of OR-tools.
"""

import argparse
import datetime
import json
import os
import platform
import statistics
import time
from collections.abc import Callable
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnflow.maxflow import max_flows
from benchmarks import flow_profile, graphs, peers
from benchmarks.flow_report import write_report

Floats = NDArray[np.float64]
RESULTS = Path(__file__).parent / "results" / "flow.json"
MIN_SECONDS = 0.2


def median_seconds(job: Callable[[], Any], repeats: int) -> float:
    """Return the median time of a job, after a warm-up run.

    Short jobs are repeated for MIN_SECONDS, so that brief load on the machine has little effect.
    """
    job()
    times: list[float] = []
    while len(times) < repeats or sum(times) < MIN_SECONDS:
        start = time.perf_counter()
        job()
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def compare_at(capacities: Floats, size: int, repeats: int, name: str) -> dict[str, Any]:
    """Measure every solver on flows from several positions of the top layer to all tokens.

    Solvers alternate at each position, so that load on the machine affects all of them. Ratios
    are medians over positions.
    """
    depth, n, _ = capacities.shape
    positions = [0, n // 4, n // 2, 3 * n // 4, n - 1]
    solvers = {"attnflow": peers.attnflow, **peers.GENERAL}
    solvers = {k: v for k, v in solvers.items() if size <= peers.LARGEST.get(k, size)}
    times: dict[str, list[float]] = {solver: [] for solver in solvers}
    worst = dict.fromkeys(solvers, 0.0)
    for i, p in enumerate(positions):
        reference = peers.or_tools(capacities, depth, p, range(n))
        for solver, job in solvers.items():
            quick = solver in ("attnflow", "OR-tools")
            if i > 1 and not quick:
                continue
            count = peers.TOKENS.get(solver, {}).get(size) or n
            tokens = [int(t) for t in np.linspace(0, n - 1, count)]
            seconds = median_seconds(
                partial(job, capacities, depth, p, tokens), repeats if quick else 1
            )
            times[solver].append(seconds / len(tokens) * 1e6)
            difference = np.abs(job(capacities, depth, p, tokens) - reference[tokens])
            worst[solver] = max(worst[solver], float(difference.max()))
    row: dict[str, Any] = {"graph": name, "tokens": n, "layers": depth}
    row["solvers"] = {
        solver: {
            "microseconds_per_pair": statistics.median(by_position),
            "by_position": by_position,
            "largest_difference": worst[solver],
            "times_slower": times_slower(by_position, times["attnflow"]),
        }
        for solver, by_position in times.items()
    }
    print_row(row)
    return row


def times_slower(theirs: list[float], ours: list[float]) -> float:
    """Return the ratio of times: the median over positions, if all were measured."""
    if len(theirs) < len(ours):
        return statistics.median(theirs) / statistics.median(ours)
    return statistics.median(their / our for their, our in zip(theirs, ours, strict=True))


def print_row(row: dict[str, Any]) -> None:
    print(f"\n{row['graph']}, {row['tokens']} tokens, {row['layers']} layers: one position to all")
    for solver, entry in row["solvers"].items():
        print(
            f"  {solver:45s} {entry['microseconds_per_pair']:12.1f} us per pair "
            f"{entry['times_slower']:9.1f}x   differs by {entry['largest_difference']:.0e}"
        )


def compare_with_authors(repeats: int) -> dict[str, Any]:
    """Measure all pairs of 16 tokens at all layers: attnflow, and the authors' Edmonds-Karp."""
    capacities = graphs.real_attention(16)
    depth, n, _ = capacities.shape
    ours = median_seconds(lambda: max_flows(capacities, threads=1), repeats * 40)
    pairs = [(k + 1, p, t) for k, p, t in np.ndindex(depth, n, n)]
    start = time.perf_counter()
    values = peers.solve_as_authors(capacities, pairs)
    theirs = time.perf_counter() - start
    assert np.allclose(values, max_flows(capacities).values.reshape(-1), rtol=0, atol=1e-9)
    row = {"pairs": depth * n * n, "seconds": ours, "authors_seconds": theirs}
    row["ratio"] = theirs / ours
    print(
        f"\nAll {row['pairs']} pairs of 16 tokens: {ours:.4f} s, "
        f"the authors' method {theirs:.0f} s: {row['ratio']:.0f}x"
    )
    return row


def measure_threads(repeats: int) -> dict[str, Any]:
    """Measure all pairs of 128 tokens: six layers on one and two threads, twelve on two."""
    six = graphs.real_attention(128)
    one = median_seconds(lambda: max_flows(six, threads=1), repeats)
    two = median_seconds(lambda: max_flows(six, threads=2), repeats)
    twelve = graphs.deep_attention(128, 12)
    start = time.perf_counter()
    flows = max_flows(twelve, threads=2)
    seconds = time.perf_counter() - start
    row: dict[str, Any] = {"one": one, "two": two, "ratio": one / two, "twelve_layers": seconds}
    row["proofs"] = {
        "layer 6 of 6": dict(max_flows(six, layers=[6]).proofs),
        "layers 1 to 6": dict(max_flows(six).proofs),
        "layers 1 to 12": dict(flows.proofs),
    }
    print(
        f"\nAll pairs, 128 tokens, 6 layers: {one:.2f} s on one thread, {two:.2f} s on two "
        f"({row['ratio']:.2f}x); 12 layers on two: {seconds:.2f} s"
    )
    return row


def measure_growth(quick: bool) -> dict[str, Any]:
    """Measure time per pair by number of tokens and of layers, and fit exponents."""
    sizes = [16, 32, 64, 128, 256] + ([] if quick else [512])
    depths = [3, 6, 12, 24]
    by_tokens, by_layers = [], []
    for n in sizes:
        by_tokens.append(time_per_pair(graphs.real_attention(n)))
    for depth in depths:
        by_layers.append(time_per_pair(graphs.deep_attention(64, depth)))
    result = {
        "tokens": sizes,
        "microseconds_by_tokens": by_tokens,
        "exponent_of_tokens": exponent(sizes, by_tokens),
        "exponent_from_64": exponent(sizes[2:], by_tokens[2:]),
        "layers": depths,
        "microseconds_by_layers": by_layers,
        "exponent_of_layers": exponent(depths, by_layers),
    }
    print(
        f"\nTime per pair grows as tokens^{result['exponent_of_tokens']:.2f} "
        f"(from 64 tokens: {result['exponent_from_64']:.2f}) and "
        f"layers^{result['exponent_of_layers']:.2f}"
    )
    return result


def time_per_pair(capacities: Floats) -> float:
    """Return microseconds per pair, one position to all tokens, median over four positions."""
    depth, n, _ = capacities.shape
    times = [
        median_seconds(partial(peers.attnflow, capacities, depth, p, range(n)), 5)
        for p in (0, n // 3, n // 2, n - 1)
    ]
    return float(statistics.median(times) / n * 1e6)


def exponent(x: list[int], y: list[float]) -> float:
    return float(np.polyfit(np.log(x), np.log(y), 1)[0])


def describe_machine() -> dict[str, Any]:
    model = platform.processor()
    info = Path("/proc/cpuinfo")
    if info.exists():
        lines = [line for line in info.read_text().splitlines() if line.startswith("model name")]
        model = lines[0].split(":", 1)[1].strip() if lines else model
    packages = ("numba", "numpy", "ortools", "igraph", "scipy", "networkx")
    return {
        "processor": model,
        "processors": os.cpu_count(),
        "python": platform.python_version(),
        "versions": {name: version(name) for name in packages},
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="fewer sizes and repeats; not saved")
    quick = parser.parse_args().quick
    repeats = 1 if quick else 3
    sizes = [16, 64] if quick else [16, 64, 128, 150, 256]
    rows = [compare_at(graphs.real_attention(n), n, repeats, "real attention") for n in sizes]
    kinds: list[tuple[str, Floats]] = [
        ("real attention made causal", graphs.made_causal(graphs.real_attention(64))),
        ("sharp random rows", graphs.random_rows(64, 6, 0.05)),
        ("flat random rows", graphs.random_rows(64, 6, 5.0)),
        ("real attention of two texts", graphs.deep_attention(64, 12)),
        ("real attention of four texts", graphs.deep_attention(64, 24)),
    ]
    rows += [compare_at(capacities, 65, repeats, name) for name, capacities in kinds]
    result = {
        "date": datetime.date.today().isoformat(),
        "machine": describe_machine(),
        "one_position": rows,
        "authors_way": compare_with_authors(repeats),
        "threads": measure_threads(repeats),
        "growth": measure_growth(quick),
    }
    if not quick:
        flow_profile.main()
        RESULTS.parent.mkdir(exist_ok=True)
        RESULTS.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
        write_report(result)


if __name__ == "__main__":
    main()
