"""Findings of the scoreboard, computed from its results: what ranks first, and why.

Nothing here runs a model. `Result` reads the numbers of one entry; the other functions compare.
"""

import json
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from attnflow.evaluation import spearman
from attnflow.evaluation.metrics import METRICS
from attnflow.study.explainers import EXPLAINERS
from attnflow.study.table import SIGNIFICANT

RESULTS = Path(__file__).parent / "results"
# The measures that a method is chosen by, each with both replacements where it depends on them.
MAIN = ("comprehensiveness", "sufficiency", "reciprocal_rank")
CIRCULAR = "leave_one_out"  # is a perturbation itself, so perturbation metrics favor it
AGREES = 0.8  # correlation of two rankings that are called alike
BASELINES = tuple(entry.name for entry in EXPLAINERS if entry.kind == "baseline")


@dataclass(frozen=True)
class Result:
    """The numbers of an entry, as `benchmarks.scoreboard` writes them."""

    numbers: dict[str, Any]

    def __getattr__(self, name: str) -> Any:
        try:
            return self.numbers[name]
        except KeyError:
            raise AttributeError(name) from None

    @property
    def replacements(self) -> tuple[str, ...]:
        """How tokens were removed, the default of the model first."""
        return tuple(self.numbers["values"])

    @cached_property
    def copies(self) -> dict[str, str]:
        """Methods on edges that equal an earlier one in all numbers of the main measures.

        They rank the tokens alike, or almost, such as flow and joint flow on many models.
        """
        tables = [self.numbers["values"][r].get(m) for m in MAIN for r in self.replacements]
        rows = [table["rows"] for table in tables if table is not None]
        first: dict[str, str] = {}
        copies = {}
        for i, name in enumerate(self.explainers):
            if "/" in name:
                earlier = first.setdefault(str([row[i] for row in rows]), name)
                if earlier != name:
                    copies[name] = earlier
        return copies

    @property
    def graphs(self) -> list[str]:
        """The explainers that are methods on edges, without copies of others."""
        return [name for name in self.explainers if "/" in name and name not in self.copies]

    @property
    def opponents(self) -> list[str]:
        """The explainers that are neither methods on edges nor baselines."""
        return [name for name in self.explainers if "/" not in name and name not in BASELINES]

    @property
    def challengers(self) -> list[str]:
        """The opponents that are not a perturbation themselves."""
        return [name for name in self.opponents if name != CIRCULAR]

    def replacements_of(self, metric: str) -> list[str]:
        """The replacements with which a metric was measured; one if it depends on none."""
        return [name for name in self.replacements if metric in self.numbers["values"][name]]

    def value(self, metric: str, explainer: str, number: str, replacement: str = "") -> float:
        """Return a number of an explainer; nan if there is none."""
        table = self.numbers["values"][replacement or self.replacements[0]].get(metric)
        if table is None or explainer not in self.explainers:
            return float("nan")
        row = table["rows"][self.explainers.index(explainer)]
        value = row[self.numbers["numbers"].index(number)]
        return float("nan") if value is None else float(value)

    def means(self, metric: str, names: Sequence[str], replacement: str = "") -> Any:
        """Return the means [explainers], the higher the better."""
        sign = 1.0 if METRICS[metric].better == "high" else -1.0
        return sign * np.asarray([self.value(metric, n, "mean", replacement) for n in names])

    def best(self, metric: str, names: Sequence[str], replacement: str = "") -> str:
        """Return the explainer with the best mean; "" if the metric was not measured."""
        means = self.means(metric, names, replacement)
        return names[int(np.nanargmax(means))] if np.isfinite(means).any() else ""

    def outcome(self, metric: str, explainer: str, replacement: str = "") -> str:
        """Return "better" or "worse" than random if the test says so, otherwise ""."""
        p = self.value(metric, explainer, "p", replacement)
        if not p < SIGNIFICANT:
            return ""
        gain = self.value(metric, explainer, "gain", replacement)
        return "better" if gain > 0 else "worse"

    def beats_random(self, metric: str, explainer: str) -> bool:
        """Whether an explainer is better than random with every replacement."""
        found = [self.outcome(metric, explainer, name) for name in self.replacements_of(metric)]
        return bool(found) and all(outcome == "better" for outcome in found)


def read_results(names: Iterable[str]) -> list[Result]:
    """Read the results that exist."""
    paths = [RESULTS / f"scoreboard-{name}.json" for name in names]
    return [Result(json.loads(p.read_text(encoding="utf-8"))) for p in paths if p.exists()]


def shares(result: Result, names: Sequence[str]) -> dict[str, float]:
    """Return the place of explainers among each other, from 0 (last) to 1 (first).

    The mean over the main measures and the replacements.
    """
    places = []
    for metric in MAIN:
        for replacement in result.replacements_of(metric):
            means = result.means(metric, names, replacement)
            if np.isfinite(means).any():
                means = np.where(np.isfinite(means), means, -np.inf)  # failed: the last
                below = (means[:, None] > means).sum(1) + ((means[:, None] == means).sum(1) - 1) / 2
                places.append(below / (len(names) - 1))
    return dict(zip(names, np.mean(places, axis=0).tolist(), strict=True))


def common_graphs(results: Sequence[Result]) -> list[str]:
    """Return the methods on edges that all results have, without those that are always copies."""
    names = [n for n in results[0].explainers if "/" in n]
    common = [n for n in names if all(n in result.explainers for result in results)]
    return [n for n in common if any(n not in result.copies for result in results)]


def recommend(results: Sequence[Result], count: int = 3) -> list[tuple[str, float]]:
    """Return the methods on edges with the best mean place over several results."""
    names = common_graphs(results)
    places = [shares(result, names) for result in results]
    means = {name: float(np.mean([place[name] for place in places])) for name in names}
    return sorted(means.items(), key=lambda item: -item[1])[:count]


def rivals(results: Sequence[Result], name: str) -> list[tuple[str, int]]:
    """Return the opponents with a better mean place than a method on edges, the best first.

    An opponent is compared on the results that have it; their number is returned with it.
    """
    graphs = common_graphs(results)
    places = [shares(result, [*graphs, *result.challengers]) for result in results]
    better = {}
    for opponent in dict.fromkeys(n for result in results for n in result.challengers):
        shared = [place for place in places if opponent in place]
        mean = np.mean([place[opponent] for place in shared])
        if mean > np.mean([place[name] for place in shared]):
            better[opponent, len(shared)] = mean
    return sorted(better, key=lambda key: -better[key])


def count_first(results: Iterable[Result]) -> dict[str, tuple[int, int]]:
    """Return on how many results each opponent has the best mean place, and of how many.

    The place is that among all methods on edges and opponents but leave-one-out. The name "" has
    the number for methods on edges.
    """
    first: Counter[str] = Counter()
    measured: Counter[str] = Counter()
    for result in results:
        places = shares(result, [*result.graphs, *result.challengers])
        best = max(places, key=lambda name: places[name])
        first["" if "/" in best else best] += 1
        measured.update(["", *result.challengers])
    return {name: (first[name], measured[name]) for name in measured}


def transfer(
    made: Sequence[Result], apart: Sequence[Result]
) -> list[tuple[Result, str, float, float]]:
    """Return for each result kept apart: the best method of the others, its place, and agreement.

    The others are those of the same kind, or all if there is none. Agreement is the Spearman
    correlation of the mean places of all methods on edges.
    """
    rows = []
    for result in apart:
        others = [other for other in made if other.kind == result.kind] or list(made)
        names = common_graphs([result, *others])
        known = [shares(other, names) for other in others]
        expected = np.asarray([np.mean([place[name] for place in known]) for name in names])
        found = np.asarray(list(shares(result, names).values()))
        best = int(expected.argmax())
        rows.append((result, names[best], float(found[best]), float(spearman(expected, found))))
    return rows


def is_higher(result: Result, first: str, second: str) -> bool | None:
    """Whether the first method on edges has a better mean place; None if one is missing."""
    names = [name for name in result.explainers if "/" in name]
    if first not in names or second not in names:
        return None
    places = shares(result, names)
    return places[first] > places[second]


def has_better_opponent(result: Result) -> bool | None:
    """Whether an opponent beats all methods on edges, by at least half of the main measures."""
    wins, total = count_opponent_wins([result])
    return 2 * wins >= total if total else None


def replacements_agree(result: Result) -> bool | None:
    """Whether comprehensiveness ranks explainers alike with both replacements."""
    value = agreement(result, "comprehensiveness", [*result.graphs, *result.opponents])
    return value > AGREES if np.isfinite(value) else None


# Statements about a result that hold for most models; checked on those kept apart.
STATEMENTS: dict[str, Callable[[Result], bool | None]] = {
    "rollout on ALTI is better than random by comprehensiveness, with both replacements":
        lambda r: r.beats_random("comprehensiveness", "rollout/alti"),
    "rollout on ALTI has a better place than rollout on attention":
        lambda r: is_higher(r, "rollout/alti", "rollout/attention"),
    "rollout on ALTI has a better place than flow on ALTI":
        lambda r: is_higher(r, "rollout/alti", "flow/alti"),
    "raw attention has a better place than flow on attention":
        lambda r: is_higher(r, "raw/attention", "flow/attention"),
    "raw attention has a better place than rollout on attention":
        lambda r: is_higher(r, "raw/attention", "rollout/attention"),
    "an opponent beats all methods on edges, by at least half of the measures":
        has_better_opponent,
    f"rankings by comprehensiveness agree between replacements (Spearman above {AGREES})":
        replacements_agree,
}  # fmt: skip


def agreement(result: Result, metric: str, names: Sequence[str]) -> float:
    """Return the Spearman correlation of the means with the two replacements."""
    pair = result.replacements_of(metric)
    if len(pair) < 2:
        return float("nan")
    first, second = (result.means(metric, names, name) for name in pair[:2])
    return correlate(first, second)


def correlate(first: Any, second: Any) -> float:
    """Return the Spearman correlation over explainers that have both values."""
    both = np.isfinite(first) & np.isfinite(second)
    return float(spearman(first[both], second[both])) if both.sum() > 2 else float("nan")


def count_claims(
    results: Iterable[Result], method: str, edges: str | None = None
) -> tuple[int, int, int]:
    """Count comparisons of a method with raw on the same edges: better, worse, and all.

    edges: only these; None for all.
    """
    better = worse = total = 0
    for result in results:
        rows = [row for values in result.claims.values() for row in values.values()]
        for name, (gain, p, _, _) in (item for row in rows for item in row.items()):
            if name.partition("/")[0] != method or edges not in (None, name.partition("/")[2]):
                continue
            total += 1
            if p is not None and p < SIGNIFICANT:
                better += gain > 0
                worse += gain < 0
    return better, worse, total


def best_baseline(result: Result, metric: str, replacement: str = "") -> str:
    """Return the best baseline besides random."""
    return result.best(metric, [name for name in BASELINES if name != "random"], replacement)


def above_baseline(result: Result, metric: str, replacement: str = "") -> int:
    """Count the methods on edges with a better mean than the best baseline."""
    graphs = result.graphs
    limit = result.means(metric, [best_baseline(result, metric, replacement)], replacement)[0]
    return int((result.means(metric, graphs, replacement) > limit).sum())


def sign_change(result: Result) -> tuple[str, float]:
    """Return the explainer whose comprehensiveness changes most if negative scores are tied."""
    changes = {
        name: mean - result.value("comprehensiveness", name, "mean")
        for name, mean in result.positive.get("comprehensiveness", {}).items()
        if mean is not None and name not in BASELINES
    }
    name = max(changes, key=lambda key: abs(changes[key]), default="")
    return name, changes.get(name, float("nan"))


def count_outcomes(
    results: Iterable[Result], metric: str, explainer: str
) -> tuple[list[Result], list[Result], int]:
    """Return where an explainer is better than random, where it is worse, and of how many results.

    Better with all replacements; worse with at least one.
    """
    measured = [
        result
        for result in results
        if explainer in result.explainers and result.replacements_of(metric)
    ]
    better = [result for result in measured if result.beats_random(metric, explainer)]
    worse = [
        result
        for result in measured
        if any(
            result.outcome(metric, explainer, name) == "worse"
            for name in result.replacements_of(metric)
        )
    ]
    return better, worse, len(measured)


def best_parts(results: Iterable[Result]) -> tuple[Counter[str], Counter[str], int]:
    """Count the edges and the methods that have the best mean, by each main measure."""
    edges: Counter[str] = Counter()
    methods: Counter[str] = Counter()
    total = 0
    for result in results:
        for metric in MAIN:
            for replacement in result.replacements_of(metric):
                name = result.best(metric, result.graphs, replacement)
                if name:
                    method, _, weighting = name.partition("/")
                    edges[weighting] += 1
                    methods[method] += 1
                    total += 1
    return edges, methods, total


def count_opponent_wins(results: Iterable[Result]) -> tuple[int, int]:
    """Count the measures by which an opponent has a better mean than all methods on edges.

    Leave-one-out does not count. Returns also the number of all measures.
    """
    wins = total = 0
    for result in results:
        for metric in MAIN:
            for replacement in result.replacements_of(metric):
                best = result.means(metric, result.graphs, replacement)
                other = result.means(metric, result.challengers, replacement)
                if np.isfinite(best).any() and np.isfinite(other).any():
                    wins += bool(np.nanmax(other) > np.nanmax(best))
                    total += 1
    return wins, total
