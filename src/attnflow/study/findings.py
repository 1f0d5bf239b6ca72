"""Findings: what a study says in words, and nothing that its tests do not say.

`gather_results` computes all tables of a study once. The other functions read them: which explainer
ranks first, whether it beats random scores, whether the ranking depends on how tokens are removed,
and what a reader should be warned about.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from attnflow.evaluation.correlation import kendall
from attnflow.evaluation.metrics import METRICS
from attnflow.study.explainers import EXPLAINERS, explainer_title
from attnflow.study.study import Study
from attnflow.study.table import SIGNIFICANT, MetricTable, mean_ranks, summarize_metric

FEW_TEXTS = 100  # with fewer, reports warn about the width of intervals
RANDOM = "random"


class Choice(NamedTuple):
    """How tokens are removed and ranked."""

    replacement: str
    sign: str

    def __str__(self) -> str:
        return f"replacement: {self.replacement}, sign: {self.sign}"


@dataclass(frozen=True, eq=False)
class Results:
    """A study, and its tables by metric and choice. choices: the default first."""

    study: Study
    choices: tuple[Choice, ...]
    tables: Mapping[tuple[str, Choice], MetricTable]

    @property
    def metrics(self) -> tuple[str, ...]:
        """The metrics with values."""
        return self.study.metrics

    @property
    def default(self) -> Choice:
        """The choice of the answer."""
        return self.choices[0]

    def table(self, metric: str, choice: Choice | None = None) -> MetricTable:
        """Return a table, by default that of the default choice."""
        return self.tables[metric, choice or self.default]

    @cached_property
    def copies(self) -> Mapping[str, str]:
        """Explainers with the same values as an earlier one, by all metrics and choices."""
        pairs = [{row.explainer: row.copy_of for row in t.rows} for t in self.tables.values()]
        names = {name: {pair[name] for pair in pairs} for name in self.study.explainers}
        return {name: next(iter(of)) for name, of in names.items() if len(of) == 1 and "" not in of}

    @property
    def distinct(self) -> list[str]:
        """The explainers, without `copies`."""
        return [name for name in self.study.explainers if name not in self.copies]

    @cached_property
    def ranks(self) -> Mapping[tuple[str, Choice], tuple[dict[str, float], int]]:
        """The mean ranks of explainers, and the number of texts, by metric and choice."""
        return {
            (metric, choice): mean_ranks(self.study, metric, **choice._asdict())
            for metric, choice in self.tables
        }

    def average_ranks(self, choice: Choice | None = None) -> dict[str, float]:
        """Return the mean rank of each explainer over texts and metrics, but circular ones."""
        columns = {m: self.ranks[m, choice or self.default][0] for m in self.metrics}
        averages = {}
        for name in self.study.explainers:
            known = [
                column[name]
                for metric, column in columns.items()
                if np.isfinite(column.get(name, np.nan)) and not is_circular(name, metric)
            ]
            if known:
                averages[name] = float(np.mean(known))
        return averages


def gather_results(study: Study) -> Results:
    """Compute all tables of a study."""
    choices = tuple(Choice(r, s) for r in study.replacements for s in study.design.signs)
    tables = {
        (metric, choice): summarize_metric(study, metric, **choice._asdict())
        for metric in study.metrics
        for choice in choices
    }
    return Results(study, choices, tables)


def state_copies(results: Results) -> str:
    """Return which explainers are the same as others, in a sentence; only one of them is shown."""
    groups: dict[str, list[str]] = {}
    for name, first in results.copies.items():
        groups.setdefault(first, [first]).append(name)
    named = "; ".join(" = ".join(group) for group in groups.values())
    return f"The same on all texts by all metrics, shown and tested once: {named}."


def kind_of(explainer: str) -> str:
    """Return "method" for an attention method, otherwise "opponent" or "baseline"."""
    if "/" in explainer:
        return "method"
    return EXPLAINERS[explainer].kind if explainer in EXPLAINERS.names else "opponent"


def quote(explainer: str) -> str:
    """Return the title of an explainer inside a sentence: in quotes if it has a comma."""
    title = explainer_title(explainer)
    return f"“{title}”" if "," in title else title


def is_circular(explainer: str, metric: str) -> bool:
    """Whether a metric compares with the explainer itself."""
    return explainer == "leave_one_out" and METRICS[metric].needs == "tokens"


def count_firsts(
    results: Results, choice: Choice | None = None, among: Sequence[str] | None = None
) -> dict[str, list[str]]:
    """Return the metrics that each explainer is first by, most metrics first.

    Explainers with equal numbers of metrics are in the order of their mean ranks. among: the
    explainers to compare; all by default. Circular comparisons do not count.
    """
    firsts: dict[str, list[str]] = {}
    for metric in results.metrics:
        for row in results.table(metric, choice).rows:
            named = among is None or row.explainer in among
            if named and np.isfinite(row.mean) and not is_circular(row.explainer, metric):
                firsts.setdefault(row.explainer, []).append(metric)
                break
    ranks = results.average_ranks(choice)
    order = sorted(firsts, key=lambda name: (-len(firsts[name]), ranks.get(name, np.inf)))
    return {name: firsts[name] for name in order}


def select_explainers(results: Results) -> list[str]:
    """Return the best explainer of each kind, the best first: one for each method, one opponent.

    The best has the lowest mean rank over all metrics.
    """
    ranks = results.average_ranks()
    order = sorted(ranks, key=lambda name: ranks[name])
    groups: dict[str, str] = {}
    for name in order:
        if kind_of(name) != "baseline":
            method, slash, _ = name.partition("/")
            groups.setdefault(method if slash else "opponent", name)
    return sorted(groups.values(), key=lambda name: ranks[name])


class Agreement(NamedTuple):
    """Kendall's tau between the rankings of explainers by one metric under two choices."""

    metric: str
    first: Choice
    second: Choice
    tau: float


def compare_rankings(results: Results) -> list[Agreement]:
    """Compare the rankings of explainers by their means, for each pair of replacements and signs.

    Only one of the two differs in a pair. Metrics of evidence do not depend on replacements, and
    are left out there.
    """
    found = []
    for i, second in enumerate(results.choices):
        for first in results.choices[:i]:
            if (first.replacement == second.replacement) == (first.sign == second.sign):
                continue
            for metric in results.metrics:
                if METRICS[metric].needs_evidence and first.sign == second.sign:
                    continue
                means = [
                    [results.table(metric, choice).row(name).mean for name in _known(results)]
                    for choice in (first, second)
                ]
                keep = np.isfinite(means).all(axis=0)
                tau = float(kendall(*np.asarray(means)[:, keep]))
                found.append(Agreement(metric, first, second, tau))
    return found


def _known(results: Results) -> tuple[str, ...]:
    return results.study.explainers


def state_answer(results: Results) -> list[str]:
    """Return the answer to "which explanation should I trust?" in a few sentences."""
    firsts = count_firsts(results)
    if not firsts:
        return ["No explainer has a value, so the study has no answer."]
    leader = next(iter(firsts))
    sentences = [
        _state_no_gain(results),
        _state_leader(results, leader, firsts[leader]),
        _state_rivals(results, leader),
        _state_best_method(results, leader),
        _state_replacements(results, leader),
    ]
    return [sentence for sentence in sentences if sentence]


def _state_no_gain(results: Results) -> str:
    """Return a sentence if no explanation is better than random."""
    names = [name for name in results.distinct if kind_of(name) != "baseline"]
    if not names or any(beaten_metrics(results, name) for name in names):
        return ""
    return (
        f"None of the {len(names)} explanations is shown to be better than random order, by any "
        "metric: these texts do not say which one to trust."
    )


def _state_leader(results: Results, leader: str, metrics: Sequence[str]) -> str:
    study, total = results.study, len(countable_metrics(results, leader))
    title = quote(leader)
    names = _join([METRICS[metric].title for metric in metrics])
    row = results.table(metrics[0]).row(leader)
    reference = results.table(metrics[0]).row(RANDOM)
    said = (
        f"Of {len(results.distinct)} explainers on {study.n_texts} texts, {title} has the best "
        f"mean by {len(metrics)} of {total} metrics ({names}): {METRICS[metrics[0]].title} is "
        f"{number(row.mean)}, 95 % interval {number(row.low)} to {number(row.high)}, and "
        f"{number(reference.mean)} for random scores."
    )
    if kind_of(leader) == "baseline":
        said += (
            f" This is a baseline: it does not look at what the model computes, so by these "
            f"metrics no explanation here tells more than {title}."
        )
        return said
    return f"{said} {_state_beaten(results, leader)}"


def beaten_metrics(results: Results, explainer: str, choice: Choice | None = None) -> list[str]:
    """Return the metrics by which an explainer is significantly better than random.

    Circular comparisons do not count.
    """
    return [
        metric
        for metric in countable_metrics(results, explainer)
        if results.table(metric, choice).row(explainer).beats_reference
    ]


def countable_metrics(results: Results, explainer: str) -> list[str]:
    """Return the metrics that do not compare with the explainer itself."""
    return [metric for metric in results.metrics if not is_circular(explainer, metric)]


def _state_beaten(results: Results, explainer: str) -> str:
    beaten = len(beaten_metrics(results, explainer))
    total = len(countable_metrics(results, explainer))
    if not beaten:
        return "The tests do not show that it is better than random by any metric."
    return (
        f"It is significantly better than random by {beaten} of {total} metrics "
        f"(paired Wilcoxon tests with Holm's correction, p < {SIGNIFICANT})."
    )


def find_rivals(results: Results, leader: str, metric: str) -> list[str]:
    """Return the explainers that the tests do not tell apart from the first, by one metric."""
    table = summarize_metric(results.study, metric, against=leader, **results.default._asdict())
    return [
        row.explainer
        for row in table.rows
        if row.explainer not in (leader, *results.copies)
        and np.isfinite(row.mean)
        and not row.p < SIGNIFICANT
    ]


def _state_rivals(results: Results, leader: str) -> str:
    metric = count_firsts(results)[leader][0]
    title = METRICS[metric].title
    rivals = find_rivals(results, leader, metric)
    if not rivals:
        return f"By {title}, it is significantly better than all others."
    names = [quote(name) for name in rivals]
    rest = [f"{len(names) - 3} more"] if len(names) > 4 else []
    listed = "; ".join([*(names[:3] if rest else names), *rest])
    return (
        f"By {title}, the tests do not tell it apart from {len(rivals)} "
        f"other{'s' if len(rivals) > 1 else ''}: {listed}."
    )


def _state_best_method(results: Results, leader: str) -> str:
    """Return which attention method is the best, and the options that explain with it."""
    methods = [name for name in results.study.explainers if kind_of(name) == "method"]
    firsts = count_firsts(results, among=methods)
    if not firsts:
        return ""
    best = next(iter(firsts))
    options = f"explain with {name_options(best)}"
    if best == leader:
        return f"To use it, {options}."
    beaten = len(beaten_metrics(results, best))
    return (
        f"Among the attention methods, {quote(best)} is first by {len(firsts[best])} of "
        f"{len(results.metrics)} metrics, and significantly better than random by "
        f"{beaten or 'none'}. To use it, {options}."
    )


def name_options(explainer: str) -> str:
    """Return the options of `attnflow explain` for an attention method.

    >>> name_options("rollout/attention:measured")
    '--method rollout --edges attention --residual-weight measured'
    """
    method, _, edges = explainer.partition("/")
    weighting, colon, weight = edges.partition(":")
    residual = f" --residual-weight {weight}" if colon else ""
    return f"--method {method} --edges {weighting}{residual}"


def _state_replacements(results: Results, leader: str) -> str:
    first, *others = results.study.replacements
    if not others:
        return (
            f"All of this is for one replacement of removed tokens ({first}): whether the ranking "
            "depends on it was not measured."
        )
    parts = []
    for other in others:
        choice = Choice(other, results.default.sign)
        there = next(iter(count_firsts(results, choice)), "")
        taus = [
            entry.tau
            for entry in compare_rankings(results)
            if (entry.first, entry.second) == (results.default, choice) and np.isfinite(entry.tau)
        ]
        same = "it is first there, too" if there == leader else (
            f"{quote(there)} is first there"
        )  # fmt: skip
        agreement = ""
        if taus:
            agreement = (
                f", and the two rankings agree with a Kendall's tau of {np.mean(taus):.2f} on "
                f"average ({min(taus):.2f} to {max(taus):.2f})"
            )
        parts.append(f"with the replacement {other}, {same}{agreement}")
    return f"These numbers are for the replacement {first}; {'; '.join(parts)}."


def list_warnings(results: Results) -> list[str]:
    """Return what limits the answer, in sentences."""
    study = results.study
    found = [*_warn_about_texts(results), *_warn_about_failures(results)]
    if not study.complete:
        found.append("The study is not complete: some texts are not evaluated yet.")
    leader = next(iter(count_firsts(results)), "")
    if leader == "leave_one_out":
        found.append(
            "Leave-one-out asks the model about removed tokens, as these metrics do: its values "
            "say less about other uses, and it needs one run of the model for each token. Metrics "
            "that compare with leave-one-out itself are not counted for it."
        )
    weak = [
        name
        for name in results.distinct
        if kind_of(name) != "baseline" and not beaten_metrics(results, name)
    ]
    if weak and not _state_no_gain(results):
        names = "; ".join(quote(name) for name in weak)
        found.append(
            f"The tests do not show that these are better than random by any metric: {names}."
        )
    return found


def _warn_about_texts(results: Results) -> list[str]:
    n = results.study.n_texts
    counts = [
        sum(bool(np.isfinite(row.p)) and not row.copy_of for row in results.table(metric).rows)
        for metric in results.metrics
    ]
    tests = min((count for count in counts if count), default=0)
    if 2.0 ** (1 - n) * tests >= SIGNIFICANT:  # the lowest p value of n texts, corrected
        said = "no difference can be significant, however large it is. Use more texts."
        return [f"With {n} texts and {tests} comparisons, {said}"]
    firsts = count_firsts(results)
    if n >= FEW_TEXTS or not firsts:
        return []
    leader, metrics = next(iter(firsts.items()))
    row = results.table(metrics[0]).row(leader)
    interval = f"{number(row.gain_low)} to {number(row.gain_high)}"
    said = (
        f"{n} texts are few, and intervals are wide: the gain of {quote(leader)} over "
        f"random by {METRICS[metrics[0]].title} is {number(row.gain)}, with an interval from "
        f"{interval}. Differences that were not found here may exist."
    )
    return [said]


def _warn_about_failures(results: Results) -> list[str]:
    columns = results.study.columns
    problems = Counter(
        (name, problem)
        for name, problem in {
            (int(i), name): (name, problem)
            for i, name, problem in zip(
                columns["index"], columns["explainer"], columns["problem"], strict=True
            )
            if problem
        }.values()
    )
    return [
        f"{quote(name)} has no scores for {count} text{'s' if count > 1 else ''}: {problem}"
        for (name, problem), count in problems.most_common(10)
    ]


def number(value: float) -> str:
    """Return a number with three digits.

    >>> number(0.12345), number(-12.3), number(float("nan"))
    ('0.123', '-12.3', '-')
    """
    if not np.isfinite(value):
        return "-"
    return f"{value:.3f}" if abs(value) < 10 else f"{value:.4g}"


def p_text(p: float) -> str:
    """Return a p value as tables write it.

    >>> p_text(0.0004), p_text(0.0312), p_text(float("nan"))
    ('< 0.001', '0.031', '-')
    """
    if not np.isfinite(p):
        return "-"
    return "< 0.001" if p < 0.001 else f"{p:.3f}"


def _join(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
