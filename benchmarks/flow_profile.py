"""The time of the solver by stages, and a lower limit of the time of a pair.

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
from attnflow.maxflow.greedy import BLOCKED, greedy_flow, order_source_edges
from attnflow.maxflow.jit import kernel
from attnflow.maxflow.network import PROOF_TOLERANCE, Pair, build_network
from attnflow.maxflow.pair import solve_pair
from attnflow.maxflow.proofs import guessed_cut
from attnflow.maxflow.residual import allocate_workspace, load_greedy_flow
from benchmarks import graphs

RESULTS = Path(__file__).parent / "results" / "flow_profile.json"
GREEDY, LOADED, GUESSED, PROVED, REPEATED = 0, 1, 2, 3, 4
TIMES_REPEATED = 10
REPEATS = 7


@kernel
def run_stages(stage: int, level: int, s: int, counts: Any, network: Any, memory: Any) -> None:
    """Solve one source to all sinks, up to a stage.

    GREEDY: the greedy flow only. LOADED: also its residual graph. GUESSED: the greedy flow and the
    guessed cut. PROVED: all stages. REPEATED: all stages, ten times for each pair.
    """
    order_source_edges(level, s, network, memory)
    for t in range(network.n):
        pair = Pair(level, s, t)
        if stage >= PROVED:
            for _ in range(TIMES_REPEATED if stage == REPEATED else 1):
                solve_pair(pair, 0.0, network, memory)
            continue
        value, end, pushes = greedy_flow(pair, network, memory)
        counts[0] += pushes
        if stage == LOADED:
            load_greedy_flow(pair, pushes, network, memory)
        if stage == GUESSED and end == BLOCKED:
            cut = guessed_cut(value, pair, network, memory)
            counts[1] += cut - value > PROOF_TOLERANCE


def profile(capacities: NDArray[np.float64], level: int) -> dict[str, float]:
    """Measure microseconds per pair of each stage, at one layer, over five positions."""
    n = capacities.shape[1]
    network, _, _ = build_network(capacities)
    memory = allocate_workspace(network.n, network.depth)
    counts = np.zeros(2)
    stages: list[list[float]] = [[] for _ in range(5)]
    positions = [0, n // 4, n // 2, 3 * n // 4, n - 1]
    for s in positions:
        for stage in (GREEDY, LOADED, GUESSED, PROVED, REPEATED):
            run_stages(stage, level, s, np.zeros(2), network, memory)
            times = []
            for _ in range(REPEATS):
                start = time.perf_counter()
                run_stages(stage, level, s, counts, network, memory)
                times.append(time.perf_counter() - start)
            stages[stage].append(statistics.median(times) / n * 1e6)
    pairs = n * len(positions) * REPEATS
    greedy, loaded, guessed, proved, repeated = (statistics.mean(stage) for stage in stages)
    pair = max_flow(capacities, layer=level, source=n // 2, sink=n // 3)
    return {
        "greedy": greedy,
        "guessing": max(guessed - greedy, 0.0),
        "searching": max(proved - guessed, 0.0),
        "repeated": repeated / TIMES_REPEATED,
        "loading": max(loaded - greedy, 0.0),
        "pushes": counts[0] / pairs / 3,
        "searched_share": counts[1] / pairs,
        "edges_of_one_flow": float((pair.edges > 0).sum()),
    }


def small_jobs() -> dict[str, Any]:
    """Measure microseconds for 16 tokens: the overhead of a call, and all pairs of each layer."""
    capacities = graphs.real_attention(16)

    def typical(**chosen: Any) -> float:
        times = []
        for _ in range(200):
            start = time.perf_counter()
            max_flows(capacities, threads=1, **chosen)
            times.append(time.perf_counter() - start)
        return float(statistics.median(times) * 1e6)

    call = typical(layers=[1], sources=[0])  # one layer needs no solving
    by_layer = [typical(layers=[layer]) for layer in range(1, len(capacities) + 1)]
    return {"call_overhead": call, "all_pairs_by_layer": by_layer}


def main() -> None:
    result: dict[str, Any] = {**small_jobs(), "rows": []}
    print(f"a call for 16 tokens has an overhead of {result['call_overhead']:.0f} us")
    print("tokens layer   greedy  guessing  searching  repeated   loading us per pair")
    for n in (16, 64, 150):
        capacities = graphs.real_attention(n)
        for level in (4, 6):
            row = profile(capacities, level)
            result["rows"].append({"tokens": n, "layer": level, **row})
            print(
                f"{n:6d} {level:5d} {row['greedy']:8.1f} {row['guessing']:9.1f} "
                f"{row['searching']:10.1f} {row['repeated']:9.1f} {row['loading']:9.1f}   "
                f"{row['pushes']:.0f} pushes, {row['edges_of_one_flow']:.0f} edges in one flow, "
                f"{row['searched_share']:.0%} searched"
            )
    RESULTS.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
