"""What figures 2 and 3 share: maps of [CLS] for three sentences."""

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np

from attnflow.attribution import Special
from attnflow.paper.experiments.layout import provenance
from attnflow.paper.experiments.options import Options, Progress
from attnflow.paper.experiments.report import Picture, Report, Table
from attnflow.paper.experiments.result import Result
from attnflow.paper.experiments.three_sentences import (
    LETTERS,
    MODEL,
    PAPERS_WRONG,
    SENTENCES,
    chosen_sentences,
    describe_decisions,
    explain_sentences,
    headings,
    scores_of,
)

PALE = 0.25  # of a shared scale; a map that reaches no further gets its own
TITLES = {"raw": "raw attention", "rollout": "rollout", "flow": "flow"}


def draw_sentences(
    name: str, methods: Sequence[str], options: Options, progress: Progress | None
) -> Result:
    """Draw the maps of some methods, and keep their numbers."""
    from attnflow.figures import draw_maps, save

    sentences = chosen_sentences(options, SENTENCES)
    found, told = explain_sentences(options, sentences)
    if progress:
        progress(1, 2)
    file = f"paper-{name}.{options.picture_format}"
    # Through the residual connection, most of rollout and flow stays on [CLS] at first, and would
    # leave no shades for the words.
    special: Special = "show" if methods == ("raw",) else "hide"
    scores = [scores_of(one, methods) for one in found]
    scale = options.scale or choose_scale(scores, special)
    figure = draw_maps(
        found, methods=methods, titles=headings(told), special=special, scale=scale, **options.look
    )
    save(figure, options.pictures_folder / file)
    if progress:
        progress(2, 2)
    numbers: dict[str, Any] = {
        "sentences": told,
        "scores": scores,
        "special": special,
    }
    if not options.texts:
        numbers["papers_wrong"] = explain_sentences(options, [PAPERS_WRONG])[1][0]
    settings: dict[str, Any] = {"model": options.model or MODEL}
    settings |= {"data": _count(found)} | ({"dark": True} if options.dark else {})
    return Result(name, numbers, settings, (file,))


def choose_scale(scores: Sequence[Mapping[str, Any]], special: Special) -> Literal["shared", "own"]:
    """One scale for all maps, unless one of them would be left without shades.

    Long texts have smaller shares than short ones.
    """
    tops = []
    for one in scores:
        kept = [i for i, token in enumerate(one["tokens"]) if special == "show" or token != "[CLS]"]
        rows = [one[method] for method in one if method != "tokens"]
        tops += [max(layer[i] for layer in layers for i in kept) for layers in rows]
    return "own" if min(tops) < PALE * max(tops) else "shared"


def lay_out(result: Result, title: str, caption: str) -> Report:
    """The picture, what the model says to the sentences, and what has the most attention."""
    numbers = result.numbers
    shade = "lighter is more" if result.settings.get("dark") else "darker is more"
    parts: list[str | Table | Picture] = [
        provenance(result),
        describe_decisions(numbers["sentences"]),
        Picture(result.pictures[0], f"{caption} for {_count(numbers['sentences'])}; {shade}."),
    ]
    if numbers["special"] == "hide":
        parts.append(
            "Scores sum to 1 over all tokens, [CLS] among them, but its own column is not drawn: "
            "through the residual connection it holds "
            f"{_first_share(numbers['scores'])} at the first layer, and would leave no shades "
            "for the words."
        )
    if "papers_wrong" in numbers:
        parts.append(_about_the_papers(numbers["papers_wrong"]))
    parts.append(_highest(numbers))
    return Report(title, tuple(parts))


def _count(sentences: Sequence[Any]) -> str:
    n = len(sentences)
    return "one sentence" if n == 1 else f"{'three' if n == 3 else n} sentences"


def _first_share(scores: Sequence[dict[str, Any]]) -> str:
    methods = [name for name in scores[0] if name != "tokens"]
    shares = [one[name][0][0] for one in scores for name in methods]
    return f"{min(shares):.2f} to {max(shares):.2f}"


def _about_the_papers(facts: dict[str, Any]) -> str:
    says = f"{facts['predicted']} ({facts['probability']:.2f})"
    told = f'The third sentence of the paper, "{facts["text"]}", '
    if facts["right"]:
        return told + (
            f"is no such example for this model, which rightly says {says}. The third sentence "
            "here is one like it that this model does get wrong: the one chosen of some 150 that "
            "were made up for this figure."
        )
    return told + f"is classified wrongly by this model too: {says}."


def _highest(numbers: Mapping[str, Any]) -> Table:
    """At the last layer, the words with the highest scores."""
    rows = []
    for letter, one in zip(LETTERS, numbers["scores"], strict=False):
        for method in (name for name in one if name != "tokens"):
            last = np.asarray(one[method][-1])
            best = [i for i in np.argsort(-last, kind="stable") if one["tokens"][i] != "[CLS]"]
            cells = [f"{one['tokens'][i]} {last[i]:.3f}" for i in best[:3]]
            cells += ["-"] * (3 - len(cells))
            rows.append((f"({letter}) {TITLES[method]}", *cells))
    return Table(
        "Words with the highest scores at the last layer",
        ("", "first", "second", "third"),
        tuple(rows),
    )
