"""Corpus runs in comparison: the authors' implementation, memory, and workers on Ray."""

import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from attnflow.corpus.example import Example, Scored
from attnflow.corpus.job import run
from attnflow.corpus.scorer import Scorer
from attnflow.corpus.settings import Settings
from benchmarks.corpus_texts import cut, iterate_texts

ROOT = Path(__file__).parent.parent


def authors_way(model: str, texts: list[str]) -> dict[str, Any]:
    """Time all flows of one position at all layers, and a sample in the authors' way."""
    from attnflow import AttentionGraph, explain
    from benchmarks.peers import solve_as_authors as edmonds_karp

    scorer = Scorer(Settings(model=model, methods=("flow",), truncate="cut"), 1)
    shard = [Example(i, str(i), text) for i, text in enumerate(texts)]
    scorer.score(shard)
    start = time.perf_counter()
    results = scorer.score(shard)
    ours = time.perf_counter() - start
    theirs, done, pairs = 0.0, 0, 0
    for one in results:
        assert isinstance(one, Scored)
        graph: AttentionGraph = explain(
            one.example.text, scorer.loaded, keep_heads=False, truncate="cut"
        ).graph
        n, depth = len(one.tokens), graph.n_layers
        sample = [(k, one.position, t) for k in range(1, depth + 1) for t in (0, n // 2)]
        start = time.perf_counter()
        values = edmonds_karp(graph.capacities(), sample)
        theirs += (time.perf_counter() - start) / len(sample) * depth * n
        found = [one.scores["flow"][k - 1, 0, t] for k, _, t in sample]
        assert max(abs(a - b) for a, b in zip(values, found, strict=True)) < 1e-5
        done, pairs = done + len(sample), pairs + depth * n
    return {
        "sentences": len(texts),
        "pairs": pairs,
        "pairs_timed": done,
        "seconds": ours,
        "authors_seconds": theirs,
        "ratio": theirs / ours,
    }


def measure_memory(folder: Path) -> dict[str, int]:
    """Return the peak resident memory of runs with 1,000 and 10,000 sentences, in bytes."""
    peaks = {}
    for n in (1_000, 10_000):
        command = [sys.executable, "-m", "benchmarks.corpus", "--memory", str(n)]
        done = subprocess.run(
            [*command, "--data", str(folder)], capture_output=True, text=True, check=True, cwd=ROOT
        )
        peaks[str(n)] = int(done.stdout.split()[-1])
    return peaks


def print_peak(n: int, folder: Path) -> None:
    """Run n sentences from a file, and print the peak resident memory."""
    import resource

    with tempfile.TemporaryDirectory() as made:
        given = Path(made) / "texts.txt"
        with given.open("w", encoding="utf-8") as file:
            file.writelines(f"{text}\n" for text in iterate_texts(folder, "SST-2", n))
        run(given, Path(made) / "out", methods=("rollout", "flow"), truncate="cut")
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024)


def measure_ray(texts: list[str], rounds: int = 2) -> dict[str, Any]:
    """Measure examples per second with one and with two workers, after they have started."""
    from attnflow.corpus.ray_engine import connect, run_on_cluster

    settings = Settings(methods=("rollout", "flow"), truncate="cut")
    rates: dict[int, list[float]] = {1: [], 2: []}
    with connect("local"):
        for _ in range(rounds):
            for workers, found in rates.items():
                results = run_on_cluster(settings, cut(texts), lambda *_: None, workers=workers)
                for _ in range(2 * workers):
                    next(results)  # models are loaded now
                start = time.perf_counter()
                n = sum(len(shard) for shard in results)
                found.append(n / (time.perf_counter() - start))
    one, two = (statistics.median(found) for found in rates.values())
    return {"one": one, "two": two, "ratio": two / one, "examples": len(texts)}
