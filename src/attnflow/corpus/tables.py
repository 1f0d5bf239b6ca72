"""Rank correlations over a whole corpus: methods against importance, and against each other.

Examples are read a row group at a time and only sums are kept, so that memory stays flat.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import combinations
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from attnflow.corpus.packages import import_pyarrow
from attnflow.corpus.reading import Corpus, row_groups
from attnflow.errors import InputError
from attnflow.evaluation.correlation import spearman

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Agreement:
    """Spearman's rho between a method and another score of the explained position, per layer.

    mean, sd: [layers], over the examples. n: [layers], how many. left_out: [layers], how many had
    no order to compare, such as texts of fewer than three tokens.
    """

    method: str
    against: str
    layers: tuple[int, ...]
    mean: Floats
    sd: Floats
    n: NDArray[np.int64]
    left_out: NDArray[np.int64]


def correlate(
    corpus: Corpus,
    *,
    special: Literal["show", "hide"] = "show",
    progress: Callable[[int, int], None] | None = None,
) -> list[Agreement]:
    """Correlate every method with every importance score, and with every other method.

    Of importance the absolute value counts, as in the paper's tables: a token that speaks against
    the prediction matters too.
    special: "hide" leaves special tokens such as [CLS] out of the ranks.
    progress: called with shards done and shards in all.
    Raises InputError if there is nothing to compare.
    """
    settings = corpus.manifest.settings
    pairs = [(m, i) for i in settings.importance for m in settings.methods]
    pairs += list(combinations(settings.methods, 2))
    if not pairs:
        raise InputError(
            f"{corpus.folder.path} holds {', '.join(settings.methods + settings.importance)} only; "
            "expected two scores to compare. Run it with --importance blank_out, or two methods."
        )
    sums = {pair: _Sums() for pair in pairs}
    layers: tuple[int, ...] = ()
    entries = list(corpus.folder.entries())
    columns = ["explained", "position", "layer", "special", *_scores_in(pairs)]
    for done, entry in enumerate(entries, start=1):
        for group in row_groups(corpus.folder.parquet(entry.shard), columns):
            layers = _add_group(group, pairs, sums, special) or layers
        if progress is not None:
            progress(done, len(entries))
    if not any(entry.rows > entry.refused for entry in entries):
        raise InputError(
            f"{corpus.folder.path} has no scored examples; expected some to compare. "
            "`attnflow corpus errors` says why rows were refused."
        )
    if not layers:
        raise InputError(
            f"{corpus.folder.path} has no scores of the explained position; expected them. Run it "
            "with --positions explained, or all."
        )
    return [sums[pair].agreement(*pair, layers) for pair in pairs]


@dataclass
class _Sums:
    """Sums of rho and of its square, [layers]: enough for mean and standard deviation."""

    n: Any = 0
    left_out: Any = 0
    total: Any = 0.0
    squares: Any = 0.0

    def add(self, rho: Floats) -> None:
        """Add rho [examples, layers]."""
        known = ~np.isnan(rho)
        filled = np.where(known, rho, 0.0)
        self.n = self.n + known.sum(axis=0)
        self.left_out = self.left_out + (~known).sum(axis=0)
        self.total = self.total + filled.sum(axis=0)
        self.squares = self.squares + np.square(filled).sum(axis=0)

    def agreement(self, method: str, against: str, layers: tuple[int, ...]) -> Agreement:
        divisor = np.where(self.n > 0, self.n, np.nan)
        mean = self.total / divisor
        # rho lies in [-1, 1], so that nothing is lost by this form of the variance.
        sd = np.sqrt(np.maximum(self.squares / divisor - np.square(mean), 0.0))
        return Agreement(method, against, layers, mean, sd, self.n, self.left_out)


def _scores_in(pairs: list[tuple[str, str]]) -> list[str]:
    return list(dict.fromkeys(name for pair in pairs for name in pair))


def _add_group(
    group: Any,
    pairs: list[tuple[str, str]],
    sums: dict[tuple[str, str], _Sums],
    special: str,
) -> tuple[int, ...]:
    """Add the examples of a row group; gives the numbers of its layers, if it has any."""
    pa = import_pyarrow("reading a corpus")
    explained = _numbers(group, "position") == _numbers(group, "explained")
    group = group.filter(pa.array(explained))
    layers = tuple(dict.fromkeys(_numbers(group, "layer").tolist()))
    if not layers:
        return ()
    for arrays, hidden in _by_length(group, _scores_in(pairs), len(layers)):
        for method, against in pairs:
            first, second = arrays[method], np.abs(arrays[against])  # [examples, layers, tokens]
            keep = ~np.isnan(first[:, 0]) & ~np.isnan(second[:, 0])
            if special == "hide":
                keep &= ~hidden
            for chosen, columns in _same(keep):
                rho = spearman(first[chosen][..., columns], second[chosen][..., columns])
                sums[method, against].add(rho)
    return layers


def _by_length(
    group: Any, names: list[str], n_layers: int
) -> Iterator[tuple[dict[str, Floats], NDArray[np.bool_]]]:
    """Scores [examples, layers, tokens] by name, and which tokens are special, for each length."""
    flat = {name: _lists(group, name) for name in [*names, "special"]}
    lengths = np.diff(flat["special"][1])[::n_layers]
    for n in np.unique(lengths):
        examples = np.flatnonzero(lengths == n)
        rows = examples[:, None] * n_layers + np.arange(n_layers)
        arrays = {}
        for name, (values, offsets) in flat.items():
            arrays[name] = values[offsets[rows][..., None] + np.arange(n)]
        yield arrays, arrays.pop("special")[:, 0].astype(bool)


def _same(keep: NDArray[np.bool_]) -> Iterator[tuple[NDArray[np.intp], NDArray[np.intp]]]:
    """Examples that keep the same tokens, and these tokens. keep: [examples, tokens]."""
    kinds, of = np.unique(keep, axis=0, return_inverse=True)
    for kind, columns in enumerate(kinds):
        yield np.flatnonzero(of.reshape(-1) == kind), np.flatnonzero(columns)


def _numbers(group: Any, name: str) -> NDArray[Any]:
    return np.asarray(group.column(name).to_numpy())


def _lists(group: Any, name: str) -> tuple[NDArray[Any], NDArray[np.int64]]:
    """The values of all lists of a column, one after the other, and where each begins."""
    column = group.column(name).combine_chunks()
    values = column.values.to_numpy(zero_copy_only=False)
    return values, np.asarray(column.offsets.to_numpy(), dtype=np.int64)
