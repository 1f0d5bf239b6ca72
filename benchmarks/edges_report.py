"""Write docs/edges.md from the results of `benchmarks.edges`."""

import json
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parent / "results"
PAGE = Path(__file__).parent.parent / "docs" / "edges.md"


SUMMARY = """\
- **On the LLM, ALTI rollout is the best attention graph.** Its Spearman correlation with the norm
  of the gradient is {alti_agreement} on agreement, {alti_names} on names and {alti_facts} on
  facts; plain rollout has {plain_agreement}, {plain_names} and {plain_facts}, and "earlier is
  higher", which knows no model, {position_agreement}, {position_names} and {position_facts}. It
  ranks the evidence first in {first_agreement} of the agreement texts (the gradient norm:
  {gradient_first}) and {first_names} of the names.
- **Flow is not the method for deep decoders.** Except on gradient edges, it mostly follows the
  position of tokens. Joint flow has the ranks of flow wherever capacities allow it, which is
  almost always.
- **A signed, class-specific score is best where the answer is one word**: ALTI-Logit ranks the
  right name first in {logit_names} of the prompts. Ferrando et al. (2023) report a reciprocal
  rank of 1.000 for such prompts and .604 for agreement; here it is {logit_rank_names} and
  {logit_rank_agreement}.
- **Edges that measure lengths (`value`, `norm`, `globenc`) fail on the LLM**: a few dimensions of
  the first token are huge, and lengths see little else. L1 proximity does not.
- **On the classifier**, ALTI edges are best, too: {alti_sst} with the gradient norm, where plain
  rollout has {plain_sst}. GlobEnc's authors report -.24 for plain rollout and .77 for `globenc`
  on BERT-base and SST-2; `globenc` has {globenc_sst} here. On the small [verb-number
  encoder](paper.md) plain attention is best. Encoders keep the paper's definition as default.
- **References disagree.** Blank-out and the gradient norm correlate at {blank_agreement} on
  agreement. No number here is the truth about a model.

The goal of .75 with the gradient norm on agreement is missed. Attention graphs follow values
only: attention weights, the statistics of normalization and the gates of feed-forward layers are
taken as constant. If they are constant in the model itself, its gradient norms correlate with the
real ones at {frozen_attention} (attention weights), {frozen_norms} (and normalization) and
{frozen_gates} (and gates): ALTI rollout knows about as much of the gradient as a model with
frozen normalization. This is measured by
`python -m benchmarks.frozen_gradients smollm2 --agreement agreement.tsv.gz --examples 60`.
"""


def write_report() -> None:
    """Replace the generated parts of the page."""
    text = PAGE.read_text(encoding="utf-8")
    results = {}
    for path in sorted(RESULTS.glob("edges-*.json")):
        numbers = json.loads(path.read_text(encoding="utf-8"))
        results[numbers["model"]] = numbers["sets"]
        for key, found in numbers["sets"].items():
            text = _fill(text, f"{numbers['model']} {key}", render_set(found))
    frozen = json.loads((RESULTS / "frozen-gradients.json").read_text(encoding="utf-8"))
    text = _fill(text, "summary", summarize_results(results, frozen))
    PAGE.write_text(text, encoding="utf-8")


def _fill(text: str, name: str, part: str) -> str:
    """Replace what is between the marks of a name."""
    start, stop = f"<!-- {name} -->", f"<!-- /{name} -->"
    before, found, rest = text.partition(start)
    _, closed, after = rest.partition(stop)
    if not found or not closed:
        raise SystemExit(f"docs/edges.md has no place for {name}: {start} ... {stop}")
    return f"{before}{start}\n\n{part.strip()}\n\n{stop}{after}"


def summarize_results(results: dict[str, Any], frozen: dict[str, Any]) -> str:
    """Return the summary, with its numbers filled in."""

    def mean(key: str, method: str, measure: str = "gradient") -> float:
        model = "minilm-sst2" if key == "sentences" else "smollm2"
        return float(results[model][key]["methods"][method][measure]["mean"])

    values: dict[str, str] = {}
    for key in ("agreement", "names", "facts"):
        values[f"alti_{key}"] = f"{mean(key, 'alti / rollout'):.2f}"
        values[f"plain_{key}"] = f"{mean(key, 'attention / rollout'):.2f}"
        values[f"position_{key}"] = f"{mean(key, 'earlier is higher'):.2f}"
        values[f"first_{key}"] = f"{mean(key, 'alti / rollout', 'first'):.0%}"
        values[f"logit_rank_{key}"] = f"{mean(key, 'ALTI-Logit', 'rank'):.2f}"
    values["gradient_first"] = f"{mean('agreement', 'gradient norm', 'first'):.0%}"
    values["logit_names"] = f"{mean('names', 'ALTI-Logit', 'first'):.0%}"
    values["blank_agreement"] = f"{mean('agreement', 'gradient norm', 'blank_out'):.2f}"
    for name, method in {"alti": "alti", "plain": "attention", "globenc": "globenc"}.items():
        values[f"{name}_sst"] = f"{mean('sentences', f'{method} / rollout'):.2f}"
    for name in ("attention", "norms", "gates"):
        values[f"frozen_{name}"] = f"{frozen[name]:.2f}"
    return SUMMARY.format(**values)


def render_set(found: dict[str, Any]) -> str:
    """Return a table: methods in rows, measures in columns, best value of each column in bold."""
    methods = found["methods"]
    measures = {
        "gradient": "Spearman, gradient norm",
        "blank_out": "Spearman, blank-out",
        "rank": "reciprocal rank of evidence",
        "first": "evidence first",
        "two": "evidence in top 2",
    }
    present = [key for key in measures if any(key in row for row in methods.values())]
    best = {key: _best(methods, key) for key in present}
    lines = [
        "| edges / method | " + " | ".join(measures[key] for key in present) + " |",
        "| --- |" + " --- |" * len(present),
    ]
    for name, row in methods.items():
        cells = [_cell(row.get(key), best[key]) for key in present]
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _best(methods: dict[str, Any], key: str) -> float:
    """The highest mean of the attention graphs; references take no part."""
    means = [
        row[key]["mean"] for name, row in methods.items() if key in row and is_graph_method(name)
    ]
    return max(means, default=float("nan"))


def is_graph_method(name: str) -> bool:
    """Whether a row is a method on an attention graph."""
    return " / " in name


def _cell(value: dict[str, float] | None, best: float) -> str:
    if value is None:
        return ""
    text = f"{value['mean']:.2f}"
    text = f"**{text}**" if value["mean"] == best else text
    return f"{text} ({value['low']:.2f} to {value['high']:.2f})"
