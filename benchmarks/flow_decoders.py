"""Exact flow in decoders: time from the last position to all tokens, and the ratio to OR-tools.

    python -m benchmarks.flow_decoders MODEL ... [--tokens 64,128,256,512] [--edges attention,alti]
    python -m benchmarks.flow_decoders MODEL --tokens 2048,4096 --pairs 0 --threads 2
    python -m benchmarks.flow_decoders MODEL --answer 20 --words 3

With --answer or --words, flow goes from the last positions together, or to words of so many tokens.

MODEL is the folder of a decoder, or one with the files of stories260K. Prints a table in Markdown,
in processor time, and checks the values of the pairs that OR-tools solves.
"""

import argparse
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnflow.maxflow import group_flows, max_flows
from attnflow.maxflow.groups import merge_sinks, merge_sources
from attnflow.models.capture.api import capture_graphs
from attnflow.optional import import_optional
from benchmarks import peers
from benchmarks.graphs import TEXTS

Floats = NDArray[np.float64]


def load(folder: str) -> tuple[Any, Any]:
    """Return a model and its tokenizer."""
    if (Path(folder) / "stories260K.bin").is_file():
        from attnflow.paper.minilm.texts import load_stories

        return load_stories(folder)
    transformers: Any = import_optional("transformers", "the benchmark")
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, attn_implementation="eager")
    return model.float().eval(), transformers.AutoTokenizer.from_pretrained(folder)


def decoder_graph(model: Any, tokenizer: Any, n: int, edges: str) -> Floats:
    """Return capacities [layers, n, n] for the first tokens of the texts."""
    ids = tokenizer(" ".join(TEXTS * 8), return_tensors="pt").input_ids[:, :n]
    graph: Any = capture_graphs(model, {"input_ids": ids}, edges=edges)
    while isinstance(graph, list | tuple):
        graph = graph[0]
    return np.asarray(graph.capacities())


def microseconds(job: Callable[[], Any], repeats: int) -> float:
    """Return the least processor time of some runs."""
    times = []
    for _ in range(repeats):
        start = time.process_time()
        job()
        times.append(time.process_time() - start)
    return min(times) * 1e6


def measure(capacities: Floats, answer: int, word: int, pairs: int, threads: int) -> str:
    """Return microseconds a pair of both, their ratio, proofs, and the largest difference.

    answer, word: how many positions are the source together, and how many tokens each sink.
    pairs: how many of them OR-tools solves, spread evenly.
    """
    depth, n, _ = capacities.shape
    words = [tuple(range(t, min(t + word, n))) for t in range(0, n, word)]
    top = tuple(range(n - answer, n))
    solve = partial(max_flows, capacities, layers=[depth], sources=[n - 1], threads=threads)
    if answer > 1 or word > 1:
        solve = partial(
            group_flows, capacities, layers=[depth], sources=[top], sinks=words, threads=threads
        )
    flows = solve()  # compiles
    ours = microseconds(solve, 3) / len(words)
    searched = (flows.proofs["searched_cut"] + flows.proofs["augmented"]) / len(words)
    if not pairs:
        return f"{ours:,.1f} | - | {searched:.0%} | -"
    chosen = [int(k) for k in np.linspace(0, len(words) - 1, min(len(words), pairs))]
    merged = merge_sources(merge_sinks(capacities, words), [top])
    start = time.process_time()
    expected = peers.or_tools(merged, depth, n - 1, [words[k][0] for k in chosen])
    theirs = (time.process_time() - start) * 1e6 / len(chosen)
    difference = np.abs(flows.values[0, 0, chosen] - expected).max()
    return f"{ours:,.1f} | {theirs:,.0f} ({theirs / ours:.0f}x) | {searched:.0%} | {difference:.0e}"


def main() -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("models", nargs="+", metavar="MODEL")
    parser.add_argument("--tokens", default="64,128,256,512")
    parser.add_argument("--edges", default="attention,alti")
    parser.add_argument("--answer", type=int, default=1, help="last positions, the source together")
    parser.add_argument("--words", type=int, default=1, help="tokens of a word")
    parser.add_argument("--pairs", type=int, default=32, help="pairs that OR-tools solves")
    parser.add_argument("--threads", type=int, default=1, help="of attnflow")
    options = parser.parse_args()
    print("| model | edges | tokens | layers | attnflow | OR-tools | searched | difference |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- |")
    for folder in options.models:
        model, tokenizer = load(folder)
        for edges in options.edges.split(","):
            for n in map(int, options.tokens.split(",")):
                graph = decoder_graph(model, tokenizer, n, edges)
                name = Path(folder).name
                cells = measure(
                    graph, options.answer, options.words, options.pairs, options.threads
                )
                print(f"| {name} | {edges} | {n} | {len(graph)} | {cells} |", flush=True)


if __name__ == "__main__":
    main()
