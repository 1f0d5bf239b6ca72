"""What tables 1 and 2 share: the verb-number model on held-out sentences."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from attnflow.models.builtin.folders import NUMBERS
from attnflow.models.loading import LoadedModel
from attnflow.paper.data.readers import AgreementExample
from attnflow.paper.experiments.correlating import (
    Correlations,
    correlate,
    listed,
    select,
    sum_up,
    sum_up_fully,
)
from attnflow.paper.experiments.keeping import Measured
from attnflow.paper.experiments.measuring import METHODS, Attending, Texts, open_model
from attnflow.paper.experiments.options import Options, Progress
from attnflow.paper.experiments.sentences import Agreement, read_agreement

# From what was measured of each example to importance [tokens] of each.
Selection: TypeAlias = Callable[[Sequence[Measured]], list[NDArray[np.float64]]]

MODEL = "verb-number"
RESIDUALS = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)
LENGTHS = ((3, 3), (4, 6), (7, 12), (13, 1000))  # numbers of tokens that are summed up apart
WITHOUT = "without [CLS] as a token"
UNITS = 1000  # of progress in each stage


def encode(loaded: LoadedModel, examples: Sequence[AgreementExample], options: Options) -> Texts:
    """Agreement examples as texts with the class that is right."""
    return Texts.encode(
        loaded,
        [example.text for example in examples],
        [NUMBERS.index(example.number) for example in examples],
        options,
    )


def stages(progress: Progress | None, n: int) -> Callable[[], Progress | None]:
    """A function that gives, call by call, the progress of each of n stages, as one bar."""
    begun = iter(range(n))

    def begin() -> Progress | None:
        stage = next(begun)
        if progress is None:
            return None
        return lambda done, total: progress(
            stage * UNITS + done * UNITS // max(total, 1), n * UNITS
        )

    return begin


def natural_texts(options: Options, default: str = MODEL) -> tuple[Texts, Agreement]:
    """The model of the options, and the natural held-out sentences for it."""
    sentences = read_agreement(options)
    return encode(open_model(options, default), sentences.natural, options), sentences


def describe(texts: Texts, sentences: Agreement, default: str = MODEL) -> dict[str, Any]:
    """The settings of a result: model, data, and how many sentences."""
    lengths = [one.n_inputs for one in texts.encoded]
    return {
        "model": texts.options.model or default,
        "data": f"{len(texts):,} {sentences.source}",
        "examples": len(texts),
        "tokens": {
            "mean": round(float(np.mean(lengths)), 2),
            "least": min(lengths),
            "most": max(lengths),
        },
        "seed": texts.options.seed,
        **({"groups": sentences.groups} if sentences.groups else {}),
    }


def correlations_with(
    kind: str,
    variants: Mapping[str, Selection],
    options: Options,
    progress: Progress | None,
) -> tuple[dict[str, Any], dict[str, Any]]:
    """All numbers of table 1 or 2, and the settings.

    kind: the importance that is compared with, as `weigh_tokens` names it; its absolute value is.
    variants: how to choose further kinds, by what to call them in the table.
    """
    texts, sentences = natural_texts(options)
    groups = {k: examples for k, examples in sentences.by_attractors.items() if examples}
    begin = stages(progress, 3 + 2 * len(groups) + len(RESIDUALS))
    attention = texts.attention(progress=begin())
    highest = texts.attention(Attending(rows="highest"), begin())
    importance = texts.importance(begin())
    main = select(importance, kind)
    chosen = {title: choose(importance) for title, choose in variants.items()}
    correlations = correlate(attention, main)
    numbers = {
        "accuracy": round(float(np.mean([one["right"][0] for one in importance])), 4),
        "sum_over_l2": float(f"{max((one['sum'] / one['l2']).max() for one in importance):.2g}"),
        **sum_up_fully(correlations, seed=options.seed),
        "variants": vary(texts, attention, highest, main, chosen),
        "lengths": by_length(correlations, texts),
        "own": own_place(attention, main),
        "attractors": {
            str(k): _group(encode(texts.loaded, examples, options), kind, begin)
            for k, examples in groups.items()
        },
        "residual": sweep(texts, {kind: main}, begin)[kind],
    }
    return numbers, describe(texts, sentences)


def vary(
    texts: Texts,
    attention: Sequence[Measured],
    highest: Sequence[Measured],
    main: Sequence[NDArray[np.float64]],
    others: Mapping[str, Sequence[NDArray[np.float64]]],
) -> dict[str, Any]:
    """The correlations in other ways: without [CLS], with other importance, as the authors rank.

    highest: attention of the highest rows. main: the importance of the table. others: further ones.
    """
    once = texts.first_of_each()
    found = {
        "all tokens (the table above)": correlate(attention, main),
        WITHOUT: correlate(attention, main, leave_out=texts.special),
        "each text once": correlate([attention[i] for i in once], [main[i] for i in once]),
    }
    for title, rows in others.items():
        found[title] = correlate(attention, rows)
        found[f"{title}, without [CLS]"] = correlate(attention, rows, leave_out=texts.special)
    found["the authors' ranks"] = correlate(attention, main, ties="dense")
    found["the authors' ranks and highest positions"] = correlate(highest, main, ties="dense")
    return {title: sum_up(correlations) for title, correlations in found.items()}


def own_place(
    attention: Sequence[Measured], importance: Sequence[NDArray[np.float64]]
) -> dict[str, Any]:
    """In which share of texts [CLS], the first token, has the highest and the lowest score.

    For importance, and by layer for each method.
    """
    found: dict[str, Any] = {}
    for end, best in (("highest", np.max), ("lowest", np.min)):
        found[end] = {
            "importance": round(float(np.mean([row[0] == best(row) for row in importance])), 4)
        }
        for method in METHODS:
            rows = [one[method][:, 0] == best(one[method], axis=-1) for one in attention]
            found[end][method] = listed(np.mean(rows, axis=0))
    return found


def by_length(correlations: Correlations, texts: Texts) -> dict[str, Any]:
    """The correlations of short and long texts apart, by the number of tokens with [CLS]."""
    lengths = np.asarray([one.n_inputs for one in texts.encoded])
    found = {}
    for least, most in LENGTHS:
        chosen = (lengths >= least) & (lengths <= most)
        if chosen.any():
            title = f"{least}" if least == most else f"{least} to {min(most, lengths.max())}"
            found[title] = {
                "examples": int(chosen.sum()),
                "methods": sum_up({method: rho[chosen] for method, rho in correlations.items()}),
            }
    return found


def _group(texts: Texts, kind: str, begin: Callable[[], Progress | None]) -> dict[str, Any]:
    """Sentences with as many attractors: how many, how often right, and the correlations."""
    attention, importance = texts.attention(progress=begin()), texts.importance(begin())
    return {
        "examples": len(texts),
        "accuracy": round(float(np.mean([one["right"][0] for one in importance])), 4),
        "methods": sum_up(correlate(attention, select(importance, kind))),
    }


def sweep(
    texts: Texts, importance: Mapping[str, Sequence[Any]], begin: Callable[[], Progress | None]
) -> dict[str, dict[str, Any]]:
    """For each importance and residual weight, the correlations of rollout and flow."""
    found: dict[str, dict[str, Any]] = {kind: {} for kind in importance}
    for weight in RESIDUALS:
        attention = texts.attention(Attending(residual_weight=weight), begin())
        for kind, rows in importance.items():
            made = correlate(attention, rows, methods=("rollout", "flow"))
            found[kind][str(weight)] = sum_up(made)
    return found
