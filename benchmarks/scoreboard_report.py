"""Write docs/scoreboard.md from the results of `benchmarks.scoreboard`."""

import math
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np

from attnflow.evaluation.metrics import METRICS
from attnflow.study.explainers import explainer_title
from attnflow.study.table import SIGNIFICANT
from benchmarks import scoreboard_findings as findings
from benchmarks.scoreboard_findings import CIRCULAR, Result, read_results

PAGE = Path(__file__).parent.parent / "docs" / "scoreboard.md"
# Columns of the table of an entry; those that depend on the replacement come once for each.
COLUMNS = (
    "comprehensiveness", "sufficiency", "lerf_minus_morf", "mas", "spearman_loo",
    "reciprocal_rank", "relevance_mass",
)  # fmt: skip
MARKS = {"better": "*", "worse": "†", "": ""}
FEW = 30  # texts, below which a result is called preliminary
ENOUGH = 12  # texts, below which no difference can be significant after Holm's correction

KINDS = {
    "encoder": "encoder (BERT, MiniLM)",
    "decoder": "decoder (an LLM)",
    "encoder-decoder": "encoder-decoder (translation)",
    "vision": "vision model (ViT)",
}

INTRO = """\
# Scoreboard

Which explanation can you trust? Every method on every kind of edges is measured on real models, by
removing the tokens that it calls relevant and, where it is known which tokens decide, by whether
it finds them. `attnflow evaluate` measures the same for your model and your texts.

"""

READING = """\
## How to read the tables

This page is written by `python -m benchmarks.scoreboard report` from the numbers in
`benchmarks/results/scoreboard-*.json`. Each section under [Numbers](#numbers) names the command
that measured it, the day and the machine. DATA is a folder with the data sets that
`benchmarks/scoreboard_data.py` lists, OUT a folder for the studies.

- A *method on edges*, such as "rollout, ALTI", is `--method rollout --edges alti`. Other explainers
  are *opponents* (gradients, ALTI-Logit, AttnLRP, leave-one-out) and *baselines* (random, position,
  frequency), which know nothing of what the model does. [Edges](edges.md) and
  [References](references.md) define them, [Which explanation to trust](evaluation.md) the metrics.
- **Comprehensiveness** is how much the probability of the prediction drops without the tokens that
  an explainer calls most relevant (high is good); **sufficiency** how much it drops with only these
  (low is good); **evidence** is 1 / rank of the first token that is known to decide (high is good).
- Every comparison is paired by text. **\\*** is better and **†** worse than random order (Wilcoxon
  test with Holm's correction over all explainers of a table, p < .05). No mark is no proof of
  equality: the sets have {fewest} to {most} texts each.
- Removed tokens are replaced in two ways, named in every table, because rankings can depend on it.
- The leave-one-out score removes tokens, as the metrics do. It is shown, but never called the best.
- Methods on edges whose numbers are all equal, such as flow and joint flow on many models, are
  counted once. The tables at the end show all.
- Values of different models cannot be compared with each other, only their rankings.
- The test corrects for the explainers of one table, not for the number of tables.
"""


ANSWER = """\
These have the best mean place among all methods on edges, by comprehensiveness, sufficiency and
evidence ([details](#which-method-for-which-model)). Better than random: significantly, by
comprehensiveness, however tokens are removed. Opponents give one score per token and no graph to
look at; they are functions of `attnflow.importance` ([References](references.md)). Where only the
scores matter and an opponent does better ([how much](#opponents)), use the opponent.

No method wins everywhere, so check it on your model, which takes a few minutes for a small one:

```
attnflow evaluate texts.csv --model ./my-model --limit 30 --out trust    # also trust/report.html
attnflow explain "a text" --model ./my-model --method rollout --edges alti --check
```

The first command ranks all methods on your texts; an explanation without a star there is not better
than random order. The second tells for one text how far an explanation beats random orders, and
which method does best.
"""


def title(name: str) -> str:
    """Return the name of an explainer for tables."""
    return explainer_title(name) if name else "-"


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a Markdown table."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def number(value: float, digits: int = 2) -> str:
    """Write a number; a dash for nan."""
    return f"{value:.{digits}f}" if math.isfinite(value) else "-"


def join(names: Sequence[str]) -> str:
    """Join names with commas and "and"."""
    return names[0] if len(names) < 2 else f"{', '.join(names[:-1])} and {names[-1]}"


def write_report() -> None:
    """Write the page."""
    from benchmarks.scoreboard import read_entries

    results = read_results(read_entries())
    if not results:
        raise SystemExit("no results; expected: scoreboard-*.json. Use run and collect first.")
    PAGE.write_text(render(results), encoding="utf-8")


def render(results: Sequence[Result]) -> str:
    """Return the page."""
    counts = [result.n for result in results]
    parts = [
        INTRO,
        render_answer([result for result in results if result.n >= ENOUGH]),
        READING.format(fewest=min(counts), most=max(counts)),
        "\n## Summary\n",
        render_summary(results),
        "\n## Findings\n",
        *render_findings(results),
        "\n## Numbers\n",
        *(render_entry(result) for result in results),
    ]
    return re.sub(r"\n{3,}", "\n\n", "\n".join(parts)).strip() + "\n"


def render_summary(results: Sequence[Result]) -> str:
    """Return the table of the best explainers of each model."""
    head = ["model", "texts", "removed tokens", "best by comprehensiveness", "best by sufficiency",
            "best by evidence", "methods on edges better than random"]  # fmt: skip
    rows = []
    for result in results:
        for replacement in result.replacements:
            first = replacement == result.replacements[0]
            cells = [_best(result, metric, replacement) for metric in findings.MAIN[:2]]
            evidence = _best(result, "reciprocal_rank", replacement) if first else ""
            rows.append(
                [
                    _name(result) if first else "",
                    str(result.n) if first else "",
                    replacement,
                    *cells,
                    evidence,
                    _count_better(result, replacement),
                ]
            )
    note = (
        'Best: the method on edges with the best mean, and after "/" the best other explainer '
        "(gradients, ALTI-Logit, AttnLRP, baselines). Evidence: reciprocal rank of the first token "
        "that is known to decide. Better than random: by comprehensiveness, of all methods on "
        "edges. Models marked (apart) take no part in the recommendations below."
    )
    return f"{table(head, rows)}\n\n{note}\n"


def _name(result: Result) -> str:
    return f"{result.title}{' (apart)' if result.apart else ''}"


def _best(result: Result, metric: str, replacement: str) -> str:
    """Return the best method on edges and the best other explainer, with their means."""
    others = [n for n in result.explainers if "/" not in n and n != CIRCULAR]
    cells = []
    for names in (result.graphs, others):
        name = result.best(metric, names, replacement)
        if not name:
            return "-"
        mark = MARKS[result.outcome(metric, name, replacement)]
        cells.append(
            f"{title(name)} {number(result.value(metric, name, 'mean', replacement))}{mark}"
        )
    return " / ".join(cells)


def _count_better(result: Result, replacement: str) -> str:
    outcomes = [result.outcome("comprehensiveness", n, replacement) for n in result.graphs]
    text = f"{outcomes.count('better')} of {len(outcomes)}"
    worse = outcomes.count("worse")
    return f"{text} ({worse} worse)" if worse else text


def render_answer(results: Sequence[Result]) -> str:
    """Return which method to use for which kind of model, and how to check it."""
    made = [result for result in results if not result.apart]
    rows = []
    for kind in dict.fromkeys(result.kind for result in made):
        same = [result for result in made if result.kind == kind]
        (name, _), *others = findings.recommend(same)
        better, worse, total = findings.count_outcomes(same, "comprehensiveness", name)
        outcome = f"{len(better)} of {total} sets" + (f", worse on {len(worse)}" if worse else "")
        rivals = [
            title(rival) + (f" (measured on {n} of {len(same)})" if n < len(same) else "")
            for rival, n in findings.rivals(same, name)
        ]
        rows.append(
            [
                KINDS[kind], f"**{title(name)}**: {_options(name)}", outcome,
                "; ".join(title(other) for other, _ in others), "; ".join(rivals) or "none",
            ]
        )  # fmt: skip
    head = ["your model", "start with", "better than random on", "close behind",
            "opponents that do better"]  # fmt: skip
    return f"## Which method for my model?\n\n{table(head, rows)}\n\n{ANSWER}"


def _options(explainer: str) -> str:
    """Return the options of a method on edges."""
    method, _, edges = explainer.partition("/")
    edges, _, weight = edges.partition(":")
    residual = f" --residual-weight {weight}" if weight else ""
    return f"`--method {method} --edges {edges}{residual}`"


def render_findings(results: Sequence[Result]) -> list[str]:
    """Return the findings, one part each."""
    enough = [result for result in results if result.n >= ENOUGH]
    few = [result.title for result in results if result.n < ENOUGH]
    note = f"Left out, with fewer than {ENOUGH} texts: {join(few)}.\n" if few else ""
    parts = (
        _headlines, _which_method, _opponents, _dependence, _paper, _baselines, _signs_and_ties,
        _costs,
    )  # fmt: skip
    return [note, *(part(enough) for part in parts)] if enough else [note]


def _headlines(results: Sequence[Result]) -> str:
    """Return the findings in a line each."""
    edges, methods, total = findings.best_parts(results)
    wins, measures = findings.count_opponent_wins(results)
    best = (
        "Over all models and sets, both replacements, and comprehensiveness, sufficiency and "
        f"evidence ({total} rankings), the best method on edges is most often on "
        f"{_most(edges, 'edges')}, and most often {_most(methods, 'methods')}."
    )
    opponents = (
        "An opponent (gradients, ALTI-Logit, AttnLRP) has a better mean than every "
        f"method on edges in {wins} of {measures} of these rankings."
    )
    lines = [best, opponents]
    for name in ("raw/attention", "rollout/attention", "flow/attention", "rollout/alti"):
        lines.append(_headline(results, name))
    for name in ("alti_logit", "attn_lrp", "frequency", "recency"):
        lines.append(_headline(results, name))
    return "\n".join(f"- {line}" for line in lines) + "\n"


def _most(counts: Counter[str], kind: str) -> str:
    """Return the three most frequent names with their counts."""
    titles = {
        name: title(f"raw/{name}").removeprefix("raw, ") if kind == "edges" else name
        for name in counts
    }
    return join([f"{titles[name].replace('_', ' ')} ({n})" for name, n in counts.most_common(3)])


def _headline(results: Sequence[Result], name: str) -> str:
    """Return on how many models an explainer beats random, by comprehensiveness."""
    better, worse, total = findings.count_outcomes(results, "comprehensiveness", name)
    label = title(name)
    text = (
        f"{label[0].upper()}{label[1:]} is better than random by comprehensiveness with both "
        f"replacements on {len(better)} of {total} sets"
    )
    if worse:
        text += f", and worse with at least one on {join([result.title for result in worse])}"
    return text + "."


def _which_method(results: Sequence[Result]) -> str:
    made = [result for result in results if not result.apart]
    rows = []
    for kind in dict.fromkeys(result.kind for result in made):
        same = [result for result in made if result.kind == kind]
        best = findings.recommend(same)
        names = [f"{title(name)} ({number(place)})" for name, place in best]
        rows.append([kind, join([result.title for result in same]), ", ".join(names)])
    text = (
        "### Which method for which model\n\n"
        "The place of a method among all methods on edges, from 0 (last) to 1 (first), averaged "
        "over comprehensiveness, sufficiency and reciprocal rank of the evidence, both "
        "replacements, and the models of a kind:\n\n"
        + table(["kind", "models", "first three methods"], rows)
    )
    apart = findings.transfer(made, [result for result in results if result.apart])
    if apart:
        lines = [
            [
                r.title, title(name), number(place), number(rho),
                "yes" if r.beats_random("comprehensiveness", name) else "no",
            ]
            for r, name, place, rho in apart
        ]  # fmt: skip
        text += (
            "\n\nThe same on models kept apart. Agreement is the Spearman correlation between the "
            "places of all methods there and on the models above (of the same kind, if there is "
            "one):\n\n"
            + table(
                ["model", "first method above", "its place here", "agreement", "beats random here"],
                lines,
            )
            + "\n\n"
            + _statements(made, [row[0] for row in apart])
        )
    return text + "\n"


def _statements(made: Sequence[Result], apart: Sequence[Result]) -> str:
    """Return on how many models each statement holds, and whether on those kept apart."""
    rows = []
    for text, holds in findings.STATEMENTS.items():
        known = [holds(result) for result in made]
        counted = [answer for answer in known if answer is not None]
        answers = [{True: "yes", False: "no", None: "-"}[holds(result)] for result in apart]
        rows.append([text, f"{sum(counted)} of {len(counted)}", *answers])
    head = ["statement", "holds on the models above", *(result.title for result in apart)]
    return (
        "Statements that hold on most of the models above, and whether they hold on those kept "
        "apart:\n\n" + table(head, rows)
    )


def _opponents(results: Sequence[Result]) -> str:
    names = list(dict.fromkeys(name for result in results for name in result.challengers))
    rows = []
    for result in results:
        places = findings.shares(result, [*result.graphs, *result.challengers])
        best = max(result.graphs, key=lambda name: places[name])
        cells = [number(places.get(name, math.nan)) for name in names]
        rows.append([_name(result), f"{title(best)} {number(places[best])}", *cells])
    counts = findings.count_first(results)
    firsts = [
        f"{title(name) if name else 'a method on edges'} on {first} of {total}"
        for name, (first, total) in sorted(counts.items(), key=lambda item: -item[1][0])
        if first
    ]
    return (
        "### Opponents\n\n"
        f"The best of all by its mean place: {join(firsts)} sets where it was measured.\n\n"
        "The place among all methods on edges and opponents, from 0 (last) to 1 (first), averaged "
        "over the same measures: of the best method on edges of each model, which was chosen after "
        "seeing the numbers, and of each opponent. A dash: not measured. "
        "[AttnLRP](evaluation.md) is computed by the package lxt, which has its own license, for "
        "the decoders that it supports.\n\n"
        + table(["model", "best method on edges", *map(title, names)], rows)
        + "\n"
    )


def _dependence(results: Sequence[Result]) -> str:
    rows = []
    for result in results:
        names = [*result.graphs, *result.opponents]
        pairs = [findings.agreement(result, metric, names) for metric in COLUMNS[:3]]
        comp, suff, evidence = (result.means(metric, names) for metric in findings.MAIN)
        pairs += [findings.correlate(comp, suff), findings.correlate(comp, evidence)]
        rows.append([_name(result), " and ".join(result.replacements), *map(number, pairs)])
    head = ["model", "replacements", "comprehensiveness", "sufficiency", "LeRF - MoRF",
            "comprehensiveness with sufficiency", "comprehensiveness with evidence"]  # fmt: skip
    middle = [
        findings.agreement(r, "comprehensiveness", [*r.graphs, *r.opponents]) for r in results
    ]
    return (
        "### What a ranking depends on\n\n"
        "Spearman correlation of the means of all methods and opponents: between the two "
        "replacements (three columns), and between metrics with the first replacement. 1 is the "
        "same ranking, 0 none. Between replacements, the median for comprehensiveness is "
        f"{number(float(np.nanmedian(middle)))}; a ranking with one replacement should not be "
        "trusted where it is low.\n\n" + table(head, rows) + "\n"
    )


def _paper(results: Sequence[Result]) -> str:
    lines = []
    for method in ("rollout", "flow", "joint_flow"):
        plain = findings.count_claims(results, method, "attention")
        every = findings.count_claims(results, method)
        lines.append(
            [
                method.replace("_", " "),
                *(f"{b} better, {w} worse, of {n}" for b, w, n in (plain, every)),
            ]
        )
    rows = []
    for result in results:
        cells = [_name(result)]
        for method in ("rollout", "flow"):
            for metric in ("comprehensiveness", "spearman_loo", "reciprocal_rank"):
                cells.append(_claim(result, method, metric))
        rows.append(cells)
    head = ["model", *(f"{m}, {c}" for m in ("rollout", "flow")
            for c in ("comprehensiveness", "leave-one-out", "evidence"))]  # fmt: skip
    return (
        "### Rollout and flow against raw attention\n\n"
        "Abnar and Zuidema (2020) find that rollout and flow correlate better with blank-out and "
        "gradients than raw attention of the last layer. Counted over models, replacements, "
        "comprehensiveness, sufficiency, Spearman with leave-one-out and evidence, significant "
        "differences from raw attention on the same edges:\n\n"
        + table(["method", "on attention", "on all edges"], lines)
        + "\n\nClosest to what the paper measures is Spearman with leave-one-out, on attention "
        "edges. "
        + " ".join(_name_claims(results, method) for method in ("rollout", "flow"))
        + "\n\nThe gain over raw attention on attention edges with the first replacement, and the "
        "texts won and lost:\n\n" + table(head, rows) + "\n"
    )


def _name_claims(results: Sequence[Result], method: str) -> str:
    """Return the models on which a method correlates better, or worse, than raw attention."""
    outcomes: dict[str, list[str]] = {"better": [], "worse": []}
    for result in results:
        cell = _claim(result, method, "spearman_loo")
        for outcome, names in outcomes.items():
            if MARKS[outcome] in cell:
                names.append(result.title)
    parts = [
        f"{outcome} on {join(names) if names else 'none'}" for outcome, names in outcomes.items()
    ]
    return f"{method.capitalize()} is significantly {' and '.join(parts)}."


def _claim(result: Result, method: str, metric: str) -> str:
    """Return the gain of a method over raw attention, with wins and losses."""
    rows = result.claims.get(metric, {}).get(result.replacements[0], {})
    gain, p, wins, losses = rows.get(f"{method}/attention", [None] * 4)
    if gain is None:
        return "-"
    mark = "" if p is None or p >= SIGNIFICANT else MARKS["better" if gain > 0 else "worse"]
    return f"{gain:+.2f}{mark} ({wins}:{losses})"


def _baselines(results: Sequence[Result]) -> str:
    rows = []
    for result in results:
        for metric in findings.MAIN:
            for replacement in result.replacements_of(metric):
                name = findings.best_baseline(result, metric, replacement)
                if not name:
                    continue
                value = result.value(metric, name, "mean", replacement)
                chance = result.value(metric, "random", "mean", replacement)
                mark = MARKS[result.outcome(metric, name, replacement)]
                rows.append(
                    [
                        _name(result), METRICS[metric].title,
                        replacement if len(result.replacements_of(metric)) > 1 else "any",
                        f"{title(name)} {number(value)}{mark}", number(chance),
                        _count_above(result, metric, replacement),
                    ]
                )  # fmt: skip
    head = ["model", "metric", "removed tokens", "best baseline", "random", "methods above it"]
    return (
        "### Baselines that are hard to beat\n\n"
        "Position, frequency and the length of embeddings know nothing of what the model does. A "
        "decoder predicts from its last token, which is ranked and removed like the others: later "
        "tokens do well there by construction. The best baseline, and how many methods on edges "
        "have a better mean:\n\n" + table(head, rows) + "\n"
    )


def _count_above(result: Result, metric: str, replacement: str) -> str:
    above = findings.above_baseline(result, metric, replacement)
    return f"{above} of {len(result.graphs)}"


def _signs_and_ties(results: Sequence[Result]) -> str:
    rows = []
    for result in results:
        name, change = findings.sign_change(result)
        scores = result.scores
        different = [number(scores[n][0]) for n in ("raw/attention", "rollout/attention",
                     "flow/attention") if n in scores]  # fmt: skip
        last = scores.get("flow/attention", [math.nan] * 3)
        rows.append(
            [
                _name(result), " / ".join(different), f"{number(last[1])} / {number(last[2])}",
                f"{title(name)} {change:+.3f}" if name else "-",
            ]
        )  # fmt: skip
    head = [
        "model",
        "different scores: raw / rollout / flow",
        "flow highest at first / last token",
        "largest change without negative scores",
    ]
    return (
        "### Ties, ends and signs\n\n"
        "The share of different scores in a text on attention edges (1: no ties; ties are "
        "averaged over orders); the share of texts in which flow is highest at the first or last "
        "ranked token; and the largest change of comprehensiveness if negative scores are "
        "ranked as zeros.\n\n" + table(head, rows) + "\n"
    )


def _costs(results: Sequence[Result]) -> str:
    methods = ("raw/attention", "rollout/attention", "flow/attention", "rollout/alti")
    names = [*methods, "input_gradients", "integrated_gradients", "alti_logit", "attn_lrp",
             "leave_one_out"]  # fmt: skip
    rows = []
    for result in results:
        seconds = [1000 * (result.costs.get(name, [None])[0] or math.nan) for name in names]
        rows.append(
            [
                _name(result),
                result.device,
                number(result.tokens, 0),
                *(number(s, 0) for s in seconds),
            ]
        )
    return (
        "### Cost\n\n"
        "Median milliseconds per text, with the capture of the graph, in the same run as the other "
        "numbers. Compare within a line: machines and loads differ, and several processes shared a "
        "GPU.\n\n" + table(["model", "device", "tokens", *map(title, names)], rows) + "\n"
    )


def render_entry(result: Result) -> str:
    """Return the section of an entry."""
    head = ["explainer"]
    columns = []
    for metric in COLUMNS:
        for replacement in result.replacements_of(metric):
            several = len(result.replacements_of(metric)) > 1
            arrow = "↑" if METRICS[metric].better == "high" else "↓"
            head.append(f"{METRICS[metric].title}{f', {replacement}' if several else ''} {arrow}")
            columns.append((metric, replacement))
    best = [result.best(metric, result.graphs, replacement) for metric, replacement in columns]
    rows = []
    for name in result.explainers:
        cells = [_cell(result, name, *column) for column in columns]
        cells = [f"**{c}**" if name == b else c for c, b in zip(cells, best, strict=True)]
        rows.append([title(name), *cells])
    data = result.data
    kept = ""
    if data and data["tried"] > data["kept"]:
        share = f"{data['kept']} of {data['tried']}"
        kept = f" The model gave the known answer on {share} texts; these are used."
    few = " **Preliminary: few texts.**" if result.n < FEW else ""
    return (
        f"### {_name(result)}\n\n"
        f"{f'{result.about} {result.weights}'.strip()}\n\n"
        f"`{result.command}`\n\n{_origin(result)}\n\n"
        f"{result.n} texts of {number(result.tokens, 0)} ranked tokens; mean probability of the "
        f"explained prediction {number(result.probability)}. Removed tokens are replaced by "
        f"{' and '.join(repr(r) for r in result.replacements)}.{kept}{few} Bold: best method on "
        f"edges.\n\n{table([*head], rows)}\n"
    )


def _origin(result: Result) -> str:
    """Return when, where and with which versions a result was measured."""
    versions = result.versions[0]
    names = ("python", "torch", "transformers")
    machine = result.machine or {"cuda": "a GPU"}.get(result.device, "a CPU")
    return (
        f"Measured on {result.date} on {machine}, with "
        f"{join([f'{name} {versions[name]}' for name in names if name in versions])}."
    )


def _cell(result: Result, name: str, metric: str, replacement: str) -> str:
    value = number(result.value(metric, name, "mean", replacement))
    return value + MARKS[result.outcome(metric, name, replacement)]
