"""Where the solver's time goes: its stages one after the other, and what a pair takes at least.

    python -m benchmarks.flow_profile

Prints a table and saves benchmarks/results/flow_profile.json.
"""

import json
import statistics
import time
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnflow.maxflow import max_flow, max_flows
from attnflow.maxflow.greedy import STUCK, greedy_flow, sort_edges
from attnflow.maxflow.jit import kernel
from attnflow.maxflow.layout import CERTIFIED, build_network, build_scratch
from attnflow.maxflow.pair import solve_pair
from attnflow.maxflow.proofs import guessed_cut
from attnflow.maxflow.residual import load_greedy
from benchmarks import graphs

RESULTS = Path(__file__).parent / "results" / "flow_profile.json"
GREEDY, WRITTEN, GUESSED, PROVED, AGAIN = 0, 1, 2, 3, 4
TIMES_AGAIN = 10
REPEATS = 7


@kernel
def run_stages(stage: int, level: int, s: int, counts: Any, network: Any, scratch: Any) -> None:
    """One source to all sinks, up to a stage.

    The greedy flow; that, and every flow written down edge by edge; that, and the guessed cut;
    all there is; or all there is, ten times for each pair before the next.
    """
    sort_edges(level, s, network, scratch)
    for t in range(network.n):
        if stage >= PROVED:
            for _ in range(TIMES_AGAIN if stage == AGAIN else 1):
                solve_pair(level, s, t, 0.0, network, scratch)
            continue
        value, end, pushes = greedy_flow(level, s, t, network, scratch)
        counts[0] += pushes
        if stage == WRITTEN:
            load_greedy(level, s, t, pushes, network, scratch)
        if stage == GUESSED and end == STUCK:
            cut = guessed_cut(level, s, t, value, network, scratch)
            counts[1] += cut - value > CERTIFIED


def profile(capacities: NDArray[np.float64], level: int) -> dict[str, float]:
    """Microseconds a pair of each stage, at one layer, over a few positions."""
    n = capacities.shape[1]
    network, _, _ = build_network(capacities)
    scratch = build_scratch(network.n, network.depth)
    counts = np.zeros(2)
    stages: list[list[float]] = [[] for _ in range(5)]
    positions = [0, n // 4, n // 2, 3 * n // 4, n - 1]
    for s in positions:
        for stage in (GREEDY, WRITTEN, GUESSED, PROVED, AGAIN):
            run_stages(stage, level, s, np.zeros(2), network, scratch)
            times = []
            for _ in range(REPEATS):
                start = time.perf_counter()
                run_stages(stage, level, s, counts, network, scratch)
                times.append(time.perf_counter() - start)
            stages[stage].append(statistics.median(times) / n * 1e6)
    pairs = n * len(positions) * REPEATS
    greedy, written, guessed, proved, again = (statistics.mean(stage) for stage in stages)
    pair = max_flow(capacities, layer=level, source=n // 2, sink=n // 3)
    return {
        "greedy": greedy,
        "guessing": max(guessed - greedy, 0.0),
        "searching": max(proved - guessed, 0.0),
        "again": again / TIMES_AGAIN,
        "writing": max(written - greedy, 0.0),
        "pushes": counts[0] / pairs / 3,
        "searched_share": counts[1] / pairs,
        "edges_of_one_flow": float((pair.edges > 0).sum()),
    }


def small_jobs() -> dict[str, Any]:
    """Microseconds for 16 tokens: a call besides solving, and all pairs of each layer."""
    capacities = graphs.real_attention(16)

    def typical(**chosen: Any) -> float:
        times = []
        for _ in range(200):
            start = time.perf_counter()
            max_flows(capacities, threads=1, **chosen)
            times.append(time.perf_counter() - start)
        return float(statistics.median(times) * 1e6)

    call = typical(layers=[1], sources=[0])  # one layer: nothing to solve
    by_layer = [typical(layers=[layer]) for layer in range(1, len(capacities) + 1)]
    return {"call_overhead": call, "all_pairs_by_layer": by_layer}


def main() -> None:
    result: dict[str, Any] = {**small_jobs(), "rows": []}
    print(f"a call for 16 tokens takes {result['call_overhead']:.0f} us besides solving")
    print("tokens layer   greedy  guessing  searching     again   writing us a pair")
    for n in (16, 64, 150):
        capacities = graphs.real_attention(n)
        for level in (4, 6):
            row = profile(capacities, level)
            result["rows"].append({"tokens": n, "layer": level, **row})
            print(
                f"{n:6d} {level:5d} {row['greedy']:8.1f} {row['guessing']:9.1f} "
                f"{row['searching']:10.1f} {row['again']:9.1f} {row['writing']:9.1f}   "
                f"{row['pushes']:.0f} pushes, {row['edges_of_one_flow']:.0f} edges in one flow, "
                f"{row['searched_share']:.0%} searched"
            )
    RESULTS.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
