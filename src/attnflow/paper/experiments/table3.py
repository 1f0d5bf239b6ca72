"""Table 3: a sentiment classifier on SST-2, rank correlation with input gradients."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from attnflow.errors import FileError, SelectionError
from attnflow.models.loading import LoadedModel
from attnflow.models.prediction import resolve_target
from attnflow.paper.experiments.agreement import stages
from attnflow.paper.experiments.correlating import (
    Correlations,
    correlate,
    first_share,
    select,
    sum_up,
    sum_up_fully,
)
from attnflow.paper.experiments.measuring import Attending, Texts, open_model
from attnflow.paper.experiments.options import Options, Progress
from attnflow.paper.experiments.report import Report
from attnflow.paper.experiments.result import Result
from attnflow.paper.experiments.sentences import read_sentiment
from attnflow.paper.experiments.table3_report import report_sentiment

NAME = "table3"
MODEL = "distilbert-base-uncased-finetuned-sst-2-english"  # the paper's
N_PAPER = 100  # sentences in the paper


def run(options: Options, progress: Progress | None) -> Result:
    """Measure all sentences of the dev set, and a sample of 100 as in the paper."""
    examples = read_sentiment(options)[: options.examples]  # before the model, which takes longer
    loaded = open_classifier(options)
    texts = Texts.encode(
        loaded,
        [example.text for example in examples],
        [find_class(loaded, example.sentiment) for example in examples],
        options,
    )
    begin = stages(progress, 3)
    attention = texts.attention(progress=begin())
    highest = texts.attention(Attending(rows="highest"), begin())
    embedded = hasattr(getattr(loaded.model, "base_model", None), "embeddings")
    importance = texts.importance(begin(), embeddings=embedded)
    # What the authors' script takes the gradient for, where the model has such a place.
    theirs = "sum after embeddings" if embedded else "sum"
    ways: dict[str, Correlations] = {}
    for title, kind in {
        "input gradients (l2)": "l2",
        "gradient times input": "times_input",
        "blank-out": "blank_out",
    }.items():
        rows = select(importance, kind)
        ways[title] = correlate(attention, rows)
        ways[f"{title}, without special tokens"] = correlate(
            attention, rows, leave_out=texts.special
        )
    rows = select(importance, theirs)
    ways["the authors' gradient"] = correlate(attention, rows)
    ways["the authors' gradient and ranks, highest positions"] = correlate(
        highest, rows, ties="dense"
    )
    numbers = {
        "accuracy": round(float(np.mean([one["right"][0] for one in importance])), 4),
        "first": {"[CLS]": first_share(attention)},
        "all": _numbers(ways, range(len(texts)), options.seed),
        "sample": _numbers(ways, _sample(len(texts), options.seed), options.seed),
    }
    return Result(NAME, numbers, _settings(texts, options))


def open_classifier(options: Options) -> LoadedModel:
    """The model of the options, or the paper's.

    Raises FileError if that one cannot be had, naming one that needs no network.
    """
    try:
        return open_model(options, MODEL)
    except FileError as error:
        if options.model is not None:
            raise
        raise FileError(
            f"{error} A MiniLM encoder with an adapter for SST-2 comes with attnflow: --model "
            "minilm-sst2."
        ) from error


def find_class(loaded: LoadedModel, sentiment: str) -> int:
    """The class of a sentiment, by its name; without such names, 0 is negative and 1 positive."""
    n = int(loaded.model.config.num_labels)
    try:
        return resolve_target(loaded, sentiment, n)
    except SelectionError:
        return min(("negative", "positive").index(sentiment), n - 1)


def _sample(n: int, seed: int) -> Sequence[int]:
    from random import Random

    return sorted(Random(seed).sample(range(n), min(N_PAPER, n)))


def _numbers(ways: dict[str, Correlations], rows: Sequence[int], seed: int) -> dict[str, Any]:
    chosen = {
        title: {method: rho[list(rows)] for method, rho in found.items()}
        for title, found in ways.items()
    }
    main = next(iter(chosen.values()))
    return {
        "examples": len(rows),
        **sum_up_fully(main, seed=seed),
        "ways": {title: sum_up(found) for title, found in chosen.items()},
    }


def _settings(texts: Texts, options: Options) -> dict[str, Any]:
    lengths = [one.n_inputs for one in texts.encoded]
    return {
        "model": options.model or MODEL,
        "data": f"{len(texts):,} sentences of the dev set of SST-2",
        "examples": len(texts),
        "tokens": {
            "mean": round(float(np.mean(lengths)), 2),
            "least": min(lengths),
            "most": max(lengths),
        },
        "seed": options.seed,
    }


def render(result: Result) -> Report:
    """The paper's table with ours beside it."""
    return report_sentiment(result)
