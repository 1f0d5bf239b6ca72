"""The scoreboard: studies of real models, collected into results; written as docs/scoreboard.md.

    python -m benchmarks.scoreboard list
    python -m benchmarks.scoreboard run NAME [--model FOLDER] --data FOLDER --out FOLDER [--limit N]
        [--processes N] [--device cuda]
    python -m benchmarks.scoreboard collect --out FOLDER [--machine NAME]
    python -m benchmarks.scoreboard report

NAME: an entry of benchmarks/scoreboard.toml, or several. --model: the folder of a model that does
not come with attnflow. --data: see `benchmarks.scoreboard_data`. `run` writes the data set to
OUT/NAME.jsonl (digits: OUT/NAME-images), unless it is there, and the study to OUT/NAME; interrupted
runs resume. `run --prepare` writes the data set only, for a run on another machine, which then
needs no data. --processes: each computes a part of the texts. On a GPU, most of the time goes into
small steps, so many processes are faster than one. `collect` writes
benchmarks/results/scoreboard-NAME.json for each study in OUT; --machine says where it ran.

AttnLRP needs the package lxt, which has its own license: pip install --no-deps lxt.
The model of `digits` is made by `python examples/digits_vit.py --out FOLDER`.
"""

import argparse
import json
import math
import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import pairwise
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np

from attnflow.evaluation.metrics import METRICS
from attnflow.study.study import Study, evaluate, open_study
from benchmarks.scoreboard_findings import RESULTS
from benchmarks.scoreboard_report import write_report

TABLE = Path(__file__).with_suffix(".toml")
# A value of the results: these numbers of an explainer, in this order. n is that of the study,
# unless "n" of the metric says otherwise.
NUMBERS = ("mean", "low", "high", "gain", "p")
CLAIMS = ("rollout", "flow", "joint_flow")  # compared with raw on the same edges
COMPARED = ("comprehensiveness", "sufficiency", "spearman_loo", "reciprocal_rank")
SIGNED = ("comprehensiveness", "sufficiency")  # metrics that are given for positive orders, too
# Metrics that are left out of the results: others say the same. The studies have them.
REDUNDANT = ("morf", "lerf", "kendall_loo")


@dataclass(frozen=True)
class Entry:
    """An entry of scoreboard.toml. about: the set. weights: where those of the model come from.

    design: options of the study.
    """

    name: str
    title: str
    kind: str
    set: str
    about: str
    count: int
    model: str
    weights: str
    apart: bool
    design: Mapping[str, Any]


def read_entries() -> dict[str, Entry]:
    """Read the table of entries."""
    table = tomllib.loads(TABLE.read_text(encoding="utf-8"))
    entries = {}
    for name, values in table["entries"].items():
        options = {key: values[key] for key in ("metrics", "explainers") if key in values}
        design = {**table["choices"][values["choice"]], **options}
        entries[name] = Entry(
            name, values["title"], values["kind"], values["set"], table["sets"][values["set"]],
            values["count"], values.get("model", ""),
            table["weights"].get(values.get("weights"), ""), values.get("apart", False), design,
        )  # fmt: skip
    return entries


def prepare(entry: Entry, model: str, data: Path | None, out: Path, count: int) -> Path:
    """Write the data set of an entry unless it is there, and return its path."""
    from benchmarks.scoreboard_data import write_digits, write_set

    if entry.set == "digits":
        folder = out / f"{entry.name}-images"
        if not folder.exists():
            write_digits(count, folder)
        return folder
    path = out / f"{entry.name}.jsonl"
    if not path.exists():
        from attnflow import load_model

        if data is None:
            raise SystemExit(f"{path} does not exist; expected: --data. Name the folder of data.")
        write_set(entry.set, load_model(model), data, count, path)
    return path


def run(
    entry: Entry, options: argparse.Namespace, part: tuple[int, int | None] | None = None
) -> None:
    """Run the study of an entry, or the shards of a part of it."""
    from benchmarks.scoreboard_data import columns_of

    model = options.model or entry.model
    if not model:
        raise SystemExit(f"{entry.name} needs a model; expected: --model. Name its folder.")
    count = options.limit or entry.count
    path = prepare(entry, model, options.data, options.out, max(count, entry.count))
    if options.prepare:
        print(f"{entry.name}: {path}")
        return
    columns: dict[str, Any] = {} if path.is_dir() else columns_of(path)
    summary = evaluate(
        str(path),
        options.out / entry.name,
        model=model,
        limit=count,
        shard_size=options.shard_size,
        shards=part,
        threads=options.threads,
        device=options.device,
        on_status=lambda status: print(status, flush=True),
        **columns,
        **entry.design,
    )
    print(summary, flush=True)


def run_parts(entry: Entry, options: argparse.Namespace) -> None:
    """Run the study of an entry in several processes."""
    count = options.limit or entry.count
    prepare(entry, options.model or entry.model, options.data, options.out, count)
    shards = math.ceil(count / options.shard_size)
    bounds = np.linspace(0, shards, min(options.processes, shards) + 1).round().astype(int)
    workers = [
        get_context("spawn").Process(target=run, args=(entry, options, (int(a), int(b))))
        for a, b in pairwise(bounds)
    ]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    if any(worker.exitcode for worker in workers):
        raise SystemExit(f"{entry.name}: a process failed; run the same command again to resume")
    run(entry, options)  # nothing is left to compute; it writes that the study is complete


def collect(entry: Entry, out: Path, machine: str = "") -> dict[str, Any]:
    """Return the numbers of a study, for the results."""
    study = open_study(out / entry.name)
    tried = out / f"{entry.name}{'-images' if entry.set == 'digits' else ''}.tried.json"
    manifest = json.loads((out / entry.name / "manifest.json").read_text(encoding="utf-8"))
    model = entry.model or Path(study.design.model).name
    # An interrupted study has the first rows: a study of so many rows is the same.
    limit = study.design.limit if study.complete else study.n_texts + study.rejected
    given = "" if entry.model else f" --model {model}"
    return {
        "name": entry.name,
        "title": entry.title,
        "kind": entry.kind,
        "set": entry.set,
        "about": entry.about,
        "apart": entry.apart,
        "command": f"python -m benchmarks.scoreboard run {entry.name}{given} "
        f"--data DATA --out OUT --limit {limit}",
        "model": model,
        "weights": entry.weights,
        "n": study.n_texts,
        "rejected": study.rejected,
        "complete": study.complete,
        "data": json.loads(tried.read_text(encoding="utf-8")) if tried.exists() else {},
        "tokens": _round(np.mean([len(tokens) for tokens in study.columns["tokens"]])),
        "probability": _round(study.columns["probability"].mean()),
        "device": study.design.device or "default",
        "machine": machine,
        "date": _last_day(out / entry.name / "shards"),
        "versions": manifest["versions"],
        "sha256": manifest["model"]["sha256"],
        "explainers": list(study.explainers),
        "numbers": list(NUMBERS),
        "costs": _costs(study),
        "values": {name: _values(study, name) for name in study.replacements},
        "claims": _claims(study),
        "positive": _positive(study),
        "scores": _describe_scores(study),
    }


def _last_day(folder: Path) -> str:
    """Return the day on which the newest file of a folder was written."""
    newest = max(path.stat().st_mtime for path in folder.iterdir())
    return datetime.fromtimestamp(newest, UTC).date().isoformat()


def depends_on_replacement(metric: str) -> bool:
    """Whether values of a metric differ between replacements: not of evidence, nor soft ones."""
    return METRICS[metric].needs not in ("nothing", "soft")


def _values(study: Study, replacement: str) -> dict[str, Any]:
    """Return the rows of all explainers by metric."""
    values = {}
    first = replacement == study.replacements[0]
    for metric in (name for name in study.metrics if name not in REDUNDANT):
        if not first and not depends_on_replacement(metric):
            continue
        table = study.table(metric, replacement=replacement)
        rows = []
        for name in study.explainers:
            row = table.row(name)
            rows.append([_round(v) for v in (row.mean, row.low, row.high, row.gain, row.p)])
        known = [table.row(name).n for name in study.explainers]
        values[metric] = {"n": min(known), "rows": rows}
    return values


def _claims(study: Study) -> dict[str, Any]:
    """Compare methods with raw on the same edges: gain, p, wins and losses.

    By metric, replacement and explainer.
    """
    claims: dict[str, Any] = {}
    edges = dict.fromkeys(name.partition("/")[2] for name in study.explainers if "/" in name)
    for metric in (name for name in COMPARED if name in study.metrics):
        claims[metric] = {}
        for replacement in study.replacements:
            if replacement != study.replacements[0] and not depends_on_replacement(metric):
                continue
            claims[metric][replacement] = rows = {}
            for name in edges:
                table = study.table(metric, against=f"raw/{name}", replacement=replacement)
                for explainer in (f"{method}/{name}" for method in CLAIMS):
                    if explainer in study.explainers:
                        row = table.row(explainer)
                        rows[explainer] = [_round(row.gain), _round(row.p), row.wins, row.losses]
    return claims


def _positive(study: Study) -> dict[str, dict[str, Any]]:
    """Return means with negative scores tied at 0, of explainers that have such scores."""
    if "positive" not in study.design.signs:
        return {}
    signed = [name for name in study.explainers if _least_score(study, name) < 0]
    means: dict[str, dict[str, Any]] = {}
    for metric in (name for name in SIGNED if name in study.metrics):
        table = study.table(metric, sign="positive")
        means[metric] = {name: _round(table.row(name).mean) for name in signed}
    return means


def _scores(study: Study, explainer: str) -> list[Any]:
    """Return the scores of each text."""
    columns = study.columns
    chosen = (
        (columns["explainer"] == explainer)
        & (columns["replacement"] == study.replacements[0])
        & (columns["sign"] == study.design.signs[0])
    )
    return [scores for scores in columns["scores"][chosen] if scores is not None]


def _least_score(study: Study, explainer: str) -> float:
    return min((float(scores.min()) for scores in _scores(study, explainer)), default=0.0)


def _describe_scores(study: Study) -> dict[str, Any]:
    """Return how many scores of a text are different, and how often the first or last is highest.

    Shares of the texts, and of the tokens of a text.
    """
    described = {}
    for name in study.explainers:
        scores = _scores(study, name)
        if not scores:
            continue
        best = [int(values.argmax()) for values in scores]
        described[name] = [
            _round(np.mean([len(np.unique(v.round(9))) / len(v) for v in scores])),
            _round(np.mean([i == 0 for i in best])),
            _round(
                np.mean([i == len(v) - 1 for i, v in zip(best, scores, strict=True)]),
            ),
        ]
    return described


def _costs(study: Study) -> dict[str, Any]:
    """Return the median seconds and megabytes of each explainer."""
    costs = {}
    for i, name in enumerate(study.explainers):
        pair = (study.matrix(column)[:, i] for column in ("seconds", "megabytes"))
        costs[name] = [
            _round(np.median(v[np.isfinite(v)]) if np.isfinite(v).any() else math.nan) for v in pair
        ]
    return costs


def _round(value: Any, digits: int = 3) -> float | None:
    """Round to significant digits; None for nan."""
    number = float(value)
    if not math.isfinite(number):
        return None
    return float(f"{number:.{digits}g}")


def write_results(path: Path, results: Mapping[str, Any]) -> None:
    """Write results as JSON with one line for each row of numbers, and no other spaces."""
    text = json.dumps(results, indent=0, ensure_ascii=False, separators=(",", ":"))
    flat = re.compile(r"[\[{][^\[\]{}]*[\]}]")
    text = flat.sub(lambda match: match.group().replace("\n", ""), text)
    path.write_text(text + "\n", encoding="utf-8")


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("action", choices=("list", "run", "collect", "report"))
    parser.add_argument("names", nargs="*")
    parser.add_argument("--model")
    parser.add_argument("--data", type=Path)
    parser.add_argument("--out", type=Path, default=Path("scoreboard"))
    parser.add_argument("--limit", type=int)
    parser.add_argument("--device")
    parser.add_argument("--threads", type=int)
    parser.add_argument("--shard-size", type=int, default=5)
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--machine", default="")
    parser.add_argument("--prepare", action="store_true", help="write the data set only")
    options = parser.parse_intermixed_args(arguments)
    entries = read_entries()
    unknown = [name for name in options.names if name not in entries]
    if unknown:
        raise SystemExit(f"no entry {unknown[0]}; expected one of {', '.join(entries)}")
    if options.action == "list":
        for entry in entries.values():
            print(f"{entry.name:20} {entry.count:4} {entry.set:12} {entry.model or '--model'}")
    elif options.action == "run":
        for name in options.names:
            (run if options.processes == 1 else run_parts)(entries[name], options)
    elif options.action == "collect":
        for name in options.names or entries:
            if (options.out / name / "manifest.json").exists():
                results = collect(entries[name], options.out, options.machine)
                write_results(RESULTS / f"scoreboard-{name}.json", results)
                print(f"collected {name}")
    else:
        write_report()


if __name__ == "__main__":
    main()
