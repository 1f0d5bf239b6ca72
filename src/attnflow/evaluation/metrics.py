"""The registry of metrics: how well scores explain a prediction.

A metric is a function of a `Trial`: the scores of one explanation, the model to ask, and the
evidence, if it is known. Registered metrics are known to `attnflow evaluate` and its reports.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from attnflow.errors import check_choice
from attnflow.evaluation.correlation import MIN_TOKENS, kendall, spearman
from attnflow.evaluation.evidence import (
    pointing_game,
    reciprocal_rank,
    recovery,
    relevance_mass,
)
from attnflow.evaluation.orders import SAMPLES, Bools, Sign, rank_by, tie_ranks
from attnflow.evaluation.perturbation import (
    Ask,
    Curves,
    Function,
    aopc,
    aopc_limits,
    bins,
    comprehensiveness,
    grid,
    lerf,
    lerf_minus_morf,
    log_odds,
    mas,
    morf,
    rise,
    soft_comprehensiveness,
    soft_sufficiency,
    sufficiency,
)
from attnflow.registry import Registry, choose_title

Better: TypeAlias = Literal["high", "low"]
# What a metric asks the model for; "nothing" for evidence.
Needs: TypeAlias = Literal["bins", "grid", "tokens", "soft", "limits", "nothing"]


@dataclass(frozen=True, eq=False)
class Trial:
    """One explanation under test.

    scores: [tokens] of the ranked tokens, with their sign. ask: the model. sign: how scores are
    ranked. evidence: whether each token is evidence, if it is known. samples: as in `Curves`.
    limits: the lowest and highest AOPC of the text, if they were searched.
    """

    scores: NDArray[np.float64]
    ask: Ask
    sign: Sign = "signed"
    evidence: Bools | None = None
    samples: int = SAMPLES
    limits: tuple[float, float] | None = None

    @cached_property
    def ranked(self) -> NDArray[np.float64]:
        """The scores that tokens are ranked by."""
        return rank_by(self.scores, self.sign)

    @cached_property
    def curves(self) -> Curves:
        """The prediction as tokens are removed."""
        return Curves(self.ranked, self.ask, self.samples)

    @cached_property
    def leave_one_out(self) -> NDArray[np.float64]:
        """The drop of the prediction's probability without each token, by the same sign."""
        n = len(self.scores)
        full = np.exp(self.ask.log_probability(np.zeros((1, n), dtype=bool)))
        return rank_by(full - np.exp(self.ask.log_probability(np.eye(n, dtype=bool))), self.sign)

    def sets(self, needs: Sequence[Needs]) -> Bools:
        """Return the sets of tokens that metrics with these needs ask the model about.

        Asking about the sets of all trials at once lets a model that remembers its answers run
        them in few batches.
        """
        curves, n = self.curves, len(self.scores)
        sets = [np.zeros((1, n), dtype=bool)]
        wanted: set[tuple[int, Literal["most", "least"]]] = set()
        if "bins" in needs:
            wanted |= {(count, "most") for count in bins(n)}
            wanted |= {(n - count, "least") for count in bins(n)}
        if "grid" in needs:
            wanted |= {(count, first) for count in grid(n) for first in ("most", "least")}
        if "limits" in needs:
            wanted |= {(count, "most") for count in range(1, n + 1)}
        if "tokens" in needs:
            sets.append(np.eye(n, dtype=bool))
        sets += [curves.sets(count, first) for count, first in sorted(wanted)]
        return np.concatenate(sets)


@dataclass(frozen=True)
class Metric:
    """A measure of an explanation.

    name: as options spell it. title: in tables. summary: one sentence. function: of a `Trial`.
    better: whether high or low values are good. needs: what it asks the model for.
    default: whether it is computed unless metrics are named.
    """

    name: str
    title: str
    summary: str
    function: Callable[[Trial], float]
    better: Better
    needs: Needs
    default: bool = True

    @property
    def needs_evidence(self) -> bool:
        """Whether the metric compares with known evidence."""
        return self.needs == "nothing"

    def measure(self, trial: Trial) -> float:
        """Return the value; nan for a trial without the evidence that the metric needs."""
        if self.needs_evidence and trial.evidence is None:
            return float("nan")
        return float(self.function(trial))


METRICS: Registry[Metric] = Registry("metric")


def register_metric(
    name: str,
    function: Callable[[Trial], float],
    *,
    title: str = "",
    summary: str,
    better: Better,
    needs: Needs,
    default: bool = True,
) -> Metric:
    """Make a metric known to `attnflow evaluate` and its reports.

    The arguments are those of `Metric`; the title is made from the name if it is not given.
    Raises InputError if the name is taken, or for an unknown value of `better` or `needs`.
    """
    check_choice("better", better, ("high", "low"))
    check_choice("needs", needs, ("bins", "grid", "tokens", "soft", "limits", "nothing"))
    title = choose_title(name, title)
    return METRICS.register(Metric(name, title, summary, function, better, needs, default))


def _of_curves(function: Function, trial: Trial) -> float:
    return function(trial.curves)


def _of_evidence(function: Callable[..., float], trial: Trial) -> float:
    assert trial.evidence is not None
    return function(trial.ranked, trial.evidence)


def _correlate(function: Callable[..., NDArray[np.float64]], trial: Trial) -> float:
    """Correlate scores and drops of p; nan if all tokens drop p by the same.

    Constant scores have the level of chance, 0. Leaving such texts out would favor explanations
    with many ties.
    """
    ranks, drops = tie_ranks(trial.ranked), tie_ranks(trial.leave_one_out)
    if len(ranks) >= MIN_TOKENS and np.ptp(ranks) == 0 < np.ptp(drops):
        return 0.0
    return float(function(ranks, drops))


def _normalized_aopc(trial: Trial) -> float:
    """Return the AOPC scaled to 0 for the lowest and 1 for the highest of any order."""
    lowest, highest = trial.limits or aopc_limits(trial.ask)
    value = aopc(trial.curves)
    return (value - lowest) / (highest - lowest) if highest > lowest else float("nan")


# Metrics that are read from curves: function, title, better, needs, default, summary.
_CURVES: tuple[tuple[Function, str, Better, Needs, bool, str], ...] = (
    (comprehensiveness, "Comprehensiveness", "high", "bins", True,
     "drop of p without the most relevant 1, 5, 10, 20 and 50 % of the tokens."),
    (sufficiency, "Sufficiency", "low", "bins", True,
     "drop of p with only the most relevant 1, 5, 10, 20 and 50 %."),
    (log_odds, "Log odds", "low", "bins", False,
     "change of log p without the most relevant 1, 5, 10, 20 and 50 %."),
    (morf, "MoRF", "low", "grid", True,
     "area under p, most relevant tokens removed first."),
    (lerf, "LeRF", "high", "grid", True,
     "area under p, least relevant tokens removed first."),
    (lerf_minus_morf, "LeRF - MoRF", "high", "grid", True,
     "area between these two curves."),
    (rise, "RISE", "low", "grid", True,
     "area under the normalized log p, most relevant tokens removed first."),
    (mas, "MAS", "low", "grid", True,
     "the same, with a penalty where scores and response disagree."),
    (soft_comprehensiveness, "Soft-NC", "high", "soft", False,
     "drop of p if dimensions of relevant tokens are dropped at random (pi-Soft-NC)."),
    (soft_sufficiency, "Soft-NS", "high", "soft", False,
     "rest of p if dimensions of irrelevant tokens are dropped at random (pi-Soft-NS)."),
)  # fmt: skip
# Metrics that compare with known evidence: function and summary.
_EVIDENCE = (
    (reciprocal_rank, "1 / rank of the first token of the evidence."),
    (relevance_mass, "share of the positive scores on the evidence."),
    (pointing_game, "whether the token with the highest score is evidence."),
    (recovery, "share of the evidence among the first tenth of the tokens."),
)

for _function, _title, _better, _needs, _default, _summary in _CURVES:
    register_metric(
        _function.__name__,
        partial(_of_curves, _function),
        title=_title,
        summary=_summary,
        better=_better,
        needs=_needs,
        default=_default,
    )
register_metric(
    "normalized_aopc",
    _normalized_aopc,
    title="Normalized AOPC",
    summary="AOPC between the lowest and the highest of any order; compares models.",
    better="high",
    needs="limits",
    default=False,
)
register_metric(
    "spearman_loo",
    partial(_correlate, spearman),
    title="Spearman with leave-one-out",
    summary="rank correlation with the drop of p without each token.",
    better="high",
    needs="tokens",
)
register_metric(
    "kendall_loo",
    partial(_correlate, kendall),
    title="Kendall with leave-one-out",
    summary="Kendall's tau-b with the drop of p without each token.",
    better="high",
    needs="tokens",
)
for _compare, _summary in _EVIDENCE:
    _measure = partial(_of_evidence, _compare)
    register_metric(_compare.__name__, _measure, summary=_summary, better="high", needs="nothing")
