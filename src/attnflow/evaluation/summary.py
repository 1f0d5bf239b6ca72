"""Means and standard deviations over examples, also by groups of them."""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from attnflow.errors import ShapeError

Group = TypeVar("Group", bound=Hashable)


@dataclass(frozen=True, eq=False)
class Summary:
    """Values of many examples in few numbers, for each layer.

    mean, sd: [...]; the standard deviation over examples, as the ± of the paper's tables.
    n: [...], how many examples these are of. left_out: [...], how many had no value.
    """

    mean: NDArray[np.float64]
    sd: NDArray[np.float64]
    n: NDArray[np.int64]
    left_out: NDArray[np.int64]


def summarise(values: ArrayLike) -> Summary:
    """Sum up values [examples, ...], such as rank correlations [examples, layers].

    Examples whose value is nan are left out, and counted. Without any, mean and sd are nan.

    >>> summary = summarise([[0.0], [1.0], [np.nan]])
    >>> float(summary.mean[0]), float(summary.sd[0]), int(summary.n[0]), int(summary.left_out[0])
    (0.5, 0.5, 2, 1)
    """
    given = np.asarray(values, dtype=np.float64)
    known = ~np.isnan(given)
    n = known.sum(axis=0)
    divisor = np.where(n > 0, n, np.nan)
    mean = np.where(known, given, 0).sum(axis=0) / divisor
    squares = np.where(known, np.square(given - mean), 0).sum(axis=0)
    return Summary(mean, np.sqrt(squares / divisor), n, len(given) - n)


def summarise_groups(values: ArrayLike, groups: Sequence[Group]) -> dict[Group, Summary]:
    """Sum up each group of examples by itself, such as those with as many attractors.

    groups: the group of each example. Returns them in their order.
    Raises ShapeError if there are more or fewer groups than examples.

    >>> {k: float(s.mean) for k, s in summarise_groups([0.0, 1.0, 0.5], [1, 0, 1]).items()}
    {0: 1.0, 1: 0.25}
    """
    given = np.asarray(values, dtype=np.float64)
    if len(groups) != len(given):
        raise ShapeError(
            f"{len(groups)} groups were given for {len(given)} examples; expected one for each. "
            "Name the group of every example."
        )
    rows: dict[Group, list[int]] = {}
    for i, group in enumerate(groups):
        rows.setdefault(group, []).append(i)
    return {group: summarise(given[rows[group]]) for group in sorted(rows)}  # type: ignore[type-var]
