"""Report: one HTML file that answers which explanation to trust, with all numbers behind it.

`write_report` writes it. The file needs no network, and works without its script, which only
selects what is shown. Everything that comes from texts, models or plugins is escaped.
"""

import re
from base64 import b64encode
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from hashlib import sha256
from html import escape
from importlib.resources import files
from os import PathLike
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike

from attnflow.errors import FileError
from attnflow.evaluation.metrics import METRICS
from attnflow.evaluation.significance import critical_difference, friedman
from attnflow.storage import DiskError, write_atomic
from attnflow.study.charts import draw_curve_chart, draw_gain, draw_key, draw_rank_chart
from attnflow.study.disagreement import describe_disagreements
from attnflow.study.explainers import explainer_title
from attnflow.study.findings import (
    Choice,
    Results,
    compare_rankings,
    gather_results,
    is_circular,
    kind_of,
    list_warnings,
    number,
    p_text,
    select_explainers,
    state_answer,
    state_copies,
)
from attnflow.study.reproduction import open_manifest, python_call, shell_call
from attnflow.study.study import Study
from attnflow.study.table import SIGNIFICANT, MetricTable, Row
from attnflow.viewer.page import check_target
from attnflow.viewer.preview import visible

# The page may run its own script, identified by a hash, and nothing else; it has no network access.
POLICY = (
    "default-src 'none'; script-src 'sha256-{}'; style-src 'unsafe-inline'; base-uri 'none'; "
    "form-action 'none'"
)
ARROWS = {"high": ("↑", "higher is better"), "low": ("↓", "lower is better")}
TEXT = ' class="text"'
SECTIONS = {
    "measured": "What was measured",
    "overview": "Overview: mean ranks",
    "metrics": "Each metric",
    "curves": "Perturbation curves",
    "agreement": "Does the ranking depend on how tokens are removed?",
    "texts": "Texts on which explanations disagree",
    "costs": "Costs",
    "settings": "Settings and versions",
}


def write_report(study: Study | Results, path: str | PathLike[str]) -> Path:
    """Write a study as a single HTML file, which any browser opens without a network.

    study: or its results, if they are computed already.
    Returns the path. An existing file is replaced only once the new one is complete.
    Raises FileError if the file cannot be written; an unusable path is detected before computing.
    """
    target = Path(path)
    check_target(target)
    content = build_report(study).encode("utf-8", "backslashreplace")
    try:
        write_atomic(target, lambda file: file.write(content))
    except DiskError as error:
        raise FileError(error.given, error.expected, error.fix) from error
    return target


def name_model(model: str) -> str:
    """Return the name of a model: for a folder its last part, without its location.

    >>> name_model("/home/me/models/my-model"), name_model("org/model")
    ('my-model', 'org/model')
    """
    return Path(model).name if Path(model).is_absolute() else model


def build_report(source: Study | Results) -> str:
    """Return the HTML of a report."""
    results = source if isinstance(source, Results) else gather_results(source)
    study = results.study
    script, style = read_text("report.js"), read_text("report.css")
    policy = POLICY.format(b64encode(sha256(script.encode()).digest()).decode())
    title = f"Which explanation to trust: {name_model(study.design.model)}"
    bodies = (
        _measured(results), _overview(results), _metrics(results), _curves(results),
        _agreement(results), describe_disagreements(study, select_explainers(results)),
        _costs(results), _settings(study),
    )  # fmt: skip
    sections = [
        f'<section id="{name}"><h2>{heading}</h2>{body}</section>'
        for (name, heading), body in zip(SECTIONS.items(), bodies, strict=True)
    ]
    links = "".join(f'<li><a href="#{name}">{text}</a></li>' for name, text in SECTIONS.items())
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{write(title)}</title><style>{style}</style></head>\n"
        f"<body><main><h1>{write(title)}</h1>{_answer(results)}"
        f'<nav aria-label="Contents"><ul>{links}</ul></nav>{_selects(results)}\n'
        + "\n".join(sections)
        + f"</main><script>{script}</script></body></html>\n"
    )


@cache
def read_text(name: str) -> str:
    """Return a file of this package."""
    return files("attnflow.study").joinpath(name).read_text(encoding="utf-8")


def write(text: object) -> str:
    """Escape text from anywhere, and show characters that hide or reorder text as symbols."""
    return escape(visible(str(text)))


def tabulate(head: Sequence[str], rows: Iterable[str], caption: str, kind: str = "") -> str:
    """Return a table that scrolls sideways where it is too wide. caption, head: HTML."""
    cells = "".join(
        f'<th scope="col"{TEXT if cell == "definition" else ""}>{cell}</th>' for cell in head
    )
    label = re.sub(r"<[^>]*>", "", caption)
    return (
        f'<div class="scroll" tabindex="0" role="region" aria-label="{label}">'
        f'<table class="{kind}"><caption>{caption}</caption>'
        f"<thead><tr>{cells}</tr></thead><tbody>{''.join(rows)}</tbody></table></div>"
    )


def mark_view(choice: Choice, metric: str | None = None) -> str:
    """Return the attributes by which the script shows or hides an element."""
    named = "" if metric is None else f' data-metric="{escape(metric)}"'
    return (
        f'data-view{named} data-replacement="{escape(choice.replacement)}" '
        f'data-sign="{escape(choice.sign)}"'
    )


def _answer(results: Results) -> str:
    sentences = "".join(f"<p>{write(text)}</p>" for text in state_answer(results))
    warnings = "".join(f"<li>{write(text)}</li>" for text in list_warnings(results))
    limits = (
        '<p class="faint">This holds for this model, these texts and these ways to remove tokens. '
        "It says how well scores predict what the model does without some tokens; not that the "
        "model is right.</p>"
    )
    box = f'<div class="answer">{sentences}{limits}</div>'
    if warnings:
        box += (
            f'<div class="warnings"><strong>Before you rely on it</strong><ul>{warnings}</ul></div>'
        )
    return box


def _selects(results: Results) -> str:
    """Return the selection of metric, replacement and sign, which the script shows."""
    titles = {name: METRICS[name].title for name in results.metrics}
    menus = {
        "metric": {"": "all", **titles},
        "replacement": {name: name for name in results.study.replacements},
        "sign": {name: name for name in results.study.design.signs},
    }
    parts = []
    for name, options in menus.items():
        items = "".join(
            f'<option value="{escape(value)}">{write(text)}</option>'
            for value, text in options.items()
        )
        parts.append(f'<label>{name} <select name="{name}">{items}</select></label>')
    return f'<div class="choice" hidden>{"".join(parts)}</div>'


def _measured(results: Results) -> str:
    study = results.study
    manifest = open_manifest(study)
    kinds: dict[str, list[str]] = {"method": [], "opponent": [], "baseline": []}
    for name in study.explainers:
        kinds[kind_of(name)].append(explainer_title(name))
    facts = {
        "Model": name_model(study.design.model),
        "Data": manifest.input.get("name", "-"),
        "Texts": f"{study.n_texts} evaluated, {study.rejected} rejected"
        + ("" if study.complete else "; the study is not complete"),
        "Ranked": "words" if study.design.words else "tokens",
        "Attention methods": "; ".join(kinds["method"]) or "none",
        "Opponents": "; ".join(kinds["opponent"]) or "none",
        "Baselines": "; ".join(kinds["baseline"]) or "none",
        "Replacements": f"{', '.join(study.replacements)}: what takes the place of removed tokens",
        "Signs": f"{', '.join(study.design.signs)}: how scores with a sign are ranked "
        "(positive: negative scores are tied at 0)",
    }
    items = "".join(f"<dt>{write(key)}</dt><dd>{write(value)}</dd>" for key, value in facts.items())
    rows = [
        f'<tr><th scope="row">{write(METRICS[name].title)}</th>'
        f"<td>{_arrow(METRICS[name].better)}</td>"
        f'<td class="text">{write(METRICS[name].summary)}</td></tr>'
        for name in results.metrics
    ]
    caption = "Metrics. p: the probability of the explained prediction."
    note = (
        "<p>Metrics that read the same curves are not independent: being first by several of them "
        "is less than it seems. Tests are paired by text (Wilcoxon), compare each explainer with "
        "random scores, and are corrected for their number within each table (Holm), not across "
        "tables; explainers that are the same on all texts count once. Intervals are bootstrapped "
        "over texts, at 95 %.</p>"
    )
    return f"<dl>{items}</dl>{tabulate(['metric', 'better', 'definition'], rows, caption)}{note}"


def _arrow(better: str) -> str:
    arrow, meaning = ARROWS[better]
    return f'<span title="{meaning}">{arrow} {better}</span>'


def _overview(results: Results) -> str:
    intro = (
        "<p>The rank of each explainer among all on the same text, averaged over texts: 1 is the "
        "best. Stronger colors are better ranks.</p>"
    )
    copies = f"<p>{write(state_copies(results))}</p>" if results.copies else ""
    return intro + "".join(_rank_map(results, choice) for choice in results.choices) + copies


def _rank_map(results: Results, choice: Choice) -> str:
    """Return the mean ranks of explainers by each metric as a table with colors."""
    averages = results.average_ranks(choice)
    columns = {metric: results.ranks[metric, choice][0] for metric in results.metrics}
    most = max(len(results.study.explainers), 2)

    def cell(name: str, metric: str) -> str:
        value = averages[name] if not metric else columns[metric].get(name, np.nan)
        if metric and is_circular(name, metric):
            return '<td class="none" title="the metric compares with these scores">-</td>'
        if not np.isfinite(value):
            return '<td class="none">-</td>'
        return f'<td style="--s:{(most - value) / (most - 1):.2f}">{value:.1f}</td>'

    rows = [
        f'<tr class="{kind_of(name)}"><th scope="row">{write(explainer_title(name))}</th>'
        f"{''.join(cell(name, metric) for metric in ('', *results.metrics))}</tr>"
        for name in sorted(averages, key=lambda name: averages[name])
        if name not in results.copies
    ]
    head = ["explainer", "all metrics", *(write(METRICS[m].title) for m in results.metrics)]
    caption = f"Mean ranks over {results.study.n_texts} texts; {write(choice)}"
    return f"<div {mark_view(choice)}>{tabulate(head, rows, caption, 'map')}</div>"


def _metrics(results: Results) -> str:
    """Return a table and a diagram for each metric and choice; the first is open."""
    parts = []
    for metric in results.metrics:
        for choice in results.choices:
            opened = " open" if metric == results.metrics[0] and choice == results.default else ""
            entry = METRICS[metric]
            parts.append(
                f"<details {mark_view(choice, metric)}{opened}><summary>{write(entry.title)} "
                f"{_arrow(entry.better)} <span>· {write(choice)}</span></summary>"
                f"<p>{write(entry.title)}: {write(entry.summary)}</p>"
                f"{_metric_table(results.table(metric, choice))}"
                f"{_difference_diagram(results, metric, choice)}</details>"
            )
    intro = (
        "<p>Explainers are sorted by their mean. The bar is the gain over random scores, the line "
        "on it the 95 % interval of the gain. "
        '<span class="better">▲ better</span> and <span class="worse">▼ worse</span> mean '
        f"significantly so (corrected p &lt; {SIGNIFICANT}); without a mark, the tests do not tell "
        "an explainer from random. W / T / L: texts on which it is better than random, as good, or "
        "worse. s and MB: median seconds and peak memory of its scores.</p>"
    )
    return intro + "".join(parts)


def _metric_table(table: MetricTable) -> str:
    head = [
        "explainer", "test", "gain over random", "mean", "95 % interval", "gain", "p",
        '<abbr title="wins, ties and losses">W / T / L</abbr>', "texts", "s", "MB",
    ]  # fmt: skip
    rows = [_metric_row(row, table) for row in table.rows]
    choice = Choice(table.replacement, table.sign)
    caption = f"{write(table.title)} {_arrow(table.better)}; {write(choice)}"
    return tabulate(head, rows, caption)


def _metric_row(row: Row, table: MetricTable) -> str:
    verdict = ""
    if row.beats_reference:
        verdict = '<span class="better">▲ better</span>'
    elif row.p < SIGNIFICANT and row.gain < 0:
        verdict = '<span class="worse">▼ worse</span>'
    if row.explainer == table.against:
        verdict = '<span class="faint">reference</span>'
    if is_circular(row.explainer, table.metric):
        verdict = (
            '<span class="faint" title="the metric compares with these scores">circular</span>'
        )
    cells = [
        number(row.mean), f"{number(row.low)} to {number(row.high)}",
        f"{row.gain:+.3f}" if np.isfinite(row.gain) else "-", p_text(row.p),
        f"{row.wins} / {row.ties} / {row.losses}", str(row.n), number(row.seconds),
        f"{row.megabytes:.0f}" if np.isfinite(row.megabytes) else "-",
    ]  # fmt: skip
    same = ""
    if row.copy_of:
        same = f'<br><span class="faint">= {write(explainer_title(row.copy_of))}</span>'
    return (
        f'<tr class="{kind_of(row.explainer)}"><th scope="row">{write(row.title)}{same}</th>'
        f'<td>{verdict}</td><td class="bar">{draw_gain(row, table)}</td>'
        + "".join(f"<td>{escape(cell)}</td>" for cell in cells)
        + "</tr>"
    )


def _difference_diagram(results: Results, metric: str, choice: Choice) -> str:
    """Return the critical-difference diagram of a metric, and what the Friedman test says."""
    ranks, n = results.ranks[metric, choice]
    copies = {row.explainer for row in results.table(metric, choice).rows if row.copy_of}
    ranks = {name: value for name, value in ranks.items() if name not in copies}
    if len(ranks) < 2 or n < 2:
        return ""
    names = list(results.study.explainers)
    values = results.study.matrix(metric, **choice._asdict())[:, [names.index(k) for k in ranks]]
    test = friedman(values)
    difference = _difference(len(ranks), n)
    said = f"Friedman test over {len(ranks)} explainers and {n} texts: p {_equals(test.p)}. " + (
        "Bars join explainers whose mean ranks differ by less than the critical difference "
        "(Nemenyi): these are not told apart. With many explainers this test is cautious."
        if test.p < SIGNIFICANT
        else "It does not show that any explainer differs from the others."
    )
    titles = {name: explainer_title(name) for name in ranks}
    title = f"Critical-difference diagram, {METRICS[metric].title}, {choice}"
    chart = draw_rank_chart(ranks, titles, difference, title)
    return (
        f"<figure><figcaption>Mean ranks; {write(choice)}. {write(said)}</figcaption>"
        f'<div class="scroll" tabindex="0" role="region" aria-label="{write(title)}">{chart}</div>'
        "</figure>"
    )


@cache
def _difference(n_explainers: int, n_texts: int) -> float:
    return critical_difference(n_explainers, n_texts)


def _equals(p: float) -> str:
    text = p_text(p)
    return text if text.startswith("<") else f"= {text}"


def _curves(results: Results) -> str:
    study = results.study
    baselines = [name for name in ("random", "position") if name in study.explainers]
    chosen = select_explainers(results)[:4]
    places = {name: i for i, name in enumerate(chosen)}
    places |= {name: 4 + i for i, name in enumerate(baselines)}
    titles = {explainer_title(name): place for name, place in places.items()}
    legend = "".join(f"<li>{draw_key(i)}{write(title)}</li>" for title, i in titles.items())
    parts = []
    for choice in results.choices:
        panels = [
            _curve_panel(study.curves(first, **choice._asdict()), titles, places, said, choice)
            for first, said in (
                ("morf", "Most relevant removed first (MoRF): lower is better"),
                ("lerf", "Least relevant removed first (LeRF): higher is better"),
            )
        ]
        if any(panels):
            parts.append(f'<div class="panels" {mark_view(choice)}>{"".join(panels)}</div>')
    if not parts:
        return "<p>No metric of this study reads curves.</p>"
    intro = (
        "<p>The mean probability of the explained prediction as tokens are removed, for the best "
        "explainer of each kind by mean rank, random scores, and the position in the text.</p>"
    )
    return f'{intro}<ul class="legend">{legend}</ul>{"".join(parts)}'


def _curve_panel(
    curves: Mapping[str, ArrayLike],
    titles: Mapping[str, int],
    places: Mapping[str, int],
    said: str,
    choice: Choice,
) -> str:
    named = {explainer_title(name): curves[name] for name in places if name in curves}
    if not named:
        return ""
    chart = draw_curve_chart(named, titles, f"{said}; {choice}")
    return f"<figure><figcaption>{said}<br>{write(choice)}</figcaption>{chart}</figure>"


def _agreement(results: Results) -> str:
    found = compare_rankings(results)
    if not found:
        return "<p>One replacement and one sign were used, so this was not measured.</p>"
    pairs = list(dict.fromkeys((entry.first, entry.second) for entry in found))
    taus = {(entry.metric, entry.first, entry.second): entry.tau for entry in found}
    rows = []
    for metric in results.metrics:
        values = [taus.get((metric, first, second), np.nan) for first, second in pairs]
        cells = "".join(f"<td>{f'{v:.2f}' if np.isfinite(v) else '-'}</td>" for v in values)
        rows.append(f'<tr><th scope="row">{write(METRICS[metric].title)}</th>{cells}</tr>')
    head = ["metric", *(write(_name_pair(first, second)) for first, second in pairs)]
    caption = "Kendall's tau between the rankings of explainers by their means"
    intro = (
        "<p>1: the same ranking of explainers; 0: unrelated; -1: reversed. Where it is low, do not "
        "trust a ranking that was measured with one of the two only. Metrics of evidence do not "
        "depend on the replacement.</p>"
    )
    return intro + tabulate(head, rows, caption)


def _name_pair(first: Choice, second: Choice) -> str:
    if first.sign == second.sign:
        return f"{first.replacement} and {second.replacement} ({first.sign})"
    return f"{first.sign} and {second.sign} ({first.replacement})"


def _costs(results: Results) -> str:
    table = results.table(results.metrics[0])
    known = [row for row in table.rows if np.isfinite(row.seconds)]
    longest = max((row.seconds for row in known), default=1.0)
    rows = [
        f'<tr class="{kind_of(row.explainer)}"><th scope="row">{write(row.title)}</th>'
        f"<td>{row.seconds:.4f}</td><td>"
        f"{f'{row.megabytes:.1f}' if np.isfinite(row.megabytes) else '-'}</td>"
        f'<td class="text"><span class="cost" style="width:{9 * row.seconds / longest:.2f}rem">'
        "</span></td></tr>"
        for row in sorted(known, key=lambda row: row.seconds)
    ]
    caption = "Median cost of the scores of a text, on the machine of the study"
    intro = (
        "<p>Methods on the same edges share a run of the model, which is counted for each. Times "
        "and memory differ from run to run. Memory counts from the start of the computation; 0: "
        "what the process had was enough.</p>"
    )
    return intro + tabulate(["explainer", "seconds", "peak MB", ""], rows, caption)


def _settings(study: Study) -> str:
    manifest = open_manifest(study)
    values = {
        **manifest.settings.to_json(),
        "input checksum": manifest.input.get("checksum", "-"),
        "model fingerprint": manifest.model.get("sha256", "-"),
        "versions": "; ".join(
            ", ".join(f"{name} {number}" for name, number in versions.items())
            for versions in manifest.versions
        ),
    }
    items = "".join(
        f"<dt>{write(name)}</dt><dd>{write(_setting(value))}</dd>" for name, value in values.items()
    )
    command = shell_call(manifest)
    shell = f"<pre>{escape(command)}</pre>" if command else ""
    return (
        f"<h3>To repeat this study</h3>{shell}<pre>{escape(python_call(manifest))}</pre>"
        f"<details><summary>All settings</summary><dl>{items}</dl></details>"
    )


def _setting(value: object) -> str:
    if isinstance(value, list | tuple):
        return ", ".join(map(str, value)) or "default"
    return "default" if value is None else str(value)
