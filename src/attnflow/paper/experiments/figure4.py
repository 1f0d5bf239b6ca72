"""Figure 4: a masked pronoun, and which of two names it is traced back to."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from attnflow.errors import FileError, InputError
from attnflow.paper.experiments.layout import provenance
from attnflow.paper.experiments.options import Options, Progress
from attnflow.paper.experiments.report import Picture, Report, Table
from attnflow.paper.experiments.result import Result

if TYPE_CHECKING:
    from attnflow.figures import CandidateCase
    from attnflow.models.loading import LoadedModel

NAME = "figure4"
MODEL = "bert-base-uncased"  # as in the paper
METHODS = ("raw", "rollout", "flow")
TITLES = {"raw": "Raw", "rollout": "Rollout", "flow": "Flow"}
LETTERS = "abcdefghijklmnopqrstuvwxyz"

# The paper's two sentences, each with what "his" and "her" would refer to.
CASES = (
    ("The author talked to Sara about [MASK] book.", "author,Sara"),
    ("Mary convinced John of [MASK] love.", "John,Mary"),
)
# What is to be said of models that are not the paper's.
NOTES = {
    "minilm-mlm": "This is not the paper's BERT, but a MiniLM encoder of 6 layers whose head for "
    "masked words was trained for attnflow on little text: it shows the method at work, and is no "
    "repetition of the paper's figure.",
}


def run(options: Options, progress: Progress | None) -> Result:
    """Draw the probabilities of the words, and the attention of the mask to the candidates."""
    from attnflow.figures import draw_candidates, save

    asked = _asked(options)
    loaded = _load(options)
    cases = []
    for i, (text, candidates) in enumerate(asked):
        title = f"({LETTERS[i % 26]}) {text}"
        cases.append(_look(loaded, options, text, candidates.split(","), title))
        if progress:
            progress(i + 1, len(asked) + 1)
    file = f"paper-{NAME}.{options.picture_format}"
    save(draw_candidates(cases, **options.look), options.pictures_folder / file)
    if progress:
        progress(len(asked) + 1, len(asked) + 1)
    settings = {"model": options.model or MODEL, "data": f"{len(cases)} sentences"}
    return Result(NAME, {"cases": [_numbers(case) for case in cases]}, settings, (file,))


def _asked(options: Options) -> list[tuple[str, str]]:
    """The texts with their candidates."""
    if not options.texts and not options.candidates:
        return list(CASES)
    if len(options.texts) != len(options.candidates):
        raise InputError(
            f"{len(options.texts)} texts and {len(options.candidates)} lists of "
            "candidates were given",
            expected="candidates for each text",
            fix="Give --candidates 'John,Mary' after each --text.",
        )
    return list(zip(options.texts, options.candidates, strict=True))


def _load(options: Options) -> "LoadedModel":
    from attnflow.models.loading import load_model

    try:
        loaded = load_model(options.model or MODEL)
    except FileError as error:
        if options.model is not None:
            raise
        raise FileError(
            f"{error} Or draw the figure for the small masked language model that comes with "
            "attnflow: --model minilm-mlm."
        ) from error
    if loaded.task != "masked_lm":
        raise InputError(
            f"{loaded.name} is a {loaded.task}",
            expected="a masked language model, which can fill in a word",
            fix="Name one with --model, such as bert-base-uncased or minilm-mlm.",
        )
    return loaded


def _look(
    loaded: "LoadedModel", options: Options, text: str, candidates: Sequence[str], title: str
) -> "CandidateCase":
    """Explain the mask, with the probability of each word that may stand there."""
    from attnflow.explainer import explain
    from attnflow.figures import CandidateCase

    text = text.replace("[MASK]", loaded.tokenizer.mask_token)
    found = [explain(text, loaded, target=word, device=options.device) for word in options.fillers]
    probabilities = {}
    for word, one in zip(options.fillers, found, strict=True):
        assert one.prediction is not None
        probabilities[word] = one.prediction.target.probability
    places = tuple(word.strip() for word in candidates)
    return CandidateCase(found[0], probabilities, places, title)


def _numbers(case: "CandidateCase") -> dict[str, Any]:
    """What is drawn, and whether each method agrees with the model at the last layer."""
    attention = {method: case.attention(method) for method in METHODS}
    relative = list(case.relative.values())
    preferred = int(np.argmax(relative))
    best = case.explanation.prediction
    assert best is not None
    return {
        "text": case.explanation.text,
        "words": list(case.relative),
        "candidates": [case.explanation.words.texts[i] for i in case.columns],
        "probabilities": [round(p, 6) for p in case.probabilities.values()],
        "relative": [round(p, 4) for p in relative],
        "best": {"word": best.label, "probability": round(best.probability, 4)},
        "attention": {name: np.round(one, 4).tolist() for name, one in attention.items()},
        "agrees": {
            name: [int(np.argmax(layer)) == preferred for layer in one]
            for name, one in attention.items()
        },
    }


def render(result: Result) -> Report:
    """The picture, the probabilities, and where methods agree with the model."""
    cases = result.numbers["cases"]
    parts: list[str | Table | Picture] = [provenance(result)]
    note = NOTES.get(str(result.settings["model"]))
    parts += [note] if note else []
    parts.append(" ".join(_tell(LETTERS[i % 26], case) for i, case in enumerate(cases)))
    parts.append(
        Picture(
            result.pictures[0],
            "Left: relative probabilities of the words that may stand at the mask. Right: the "
            "share of the mask's attention that goes to each of the words they may refer to, by "
            "layer, for raw attention, rollout and flow. A word and what it would refer to have "
            "one color.",
        )
    )
    return Report("Figure 4: a masked pronoun", (*parts, _table(cases)))


def _tell(letter: str, case: dict[str, Any]) -> str:
    shares = ", ".join(
        f"{word} {share:.0%}" for word, share in zip(case["words"], case["relative"], strict=True)
    )
    agreeing = [TITLES[name].lower() for name, made in case["agrees"].items() if made[-1]]
    verb = "agrees" if len(agreeing) == 1 else "agree"
    told = f"{' and '.join(agreeing)} {verb}" if agreeing else "no method agrees"
    best = case["best"]
    return (
        f"({letter}) Between these words, the model is for {shares}; its first choice of all words "
        f'is "{best["word"]}" ({best["probability"]:.2f}). At the last layer {told} with that '
        "preference."
    )


def _table(cases: Sequence[dict[str, Any]]) -> Table:
    """Shares at the last layer, and at how many layers each method agrees with the model."""
    rows = []
    for letter, case in zip(LETTERS, cases, strict=False):
        for name, scores in case["attention"].items():
            made = case["agrees"][name]
            shares = ", ".join(
                f"{word} {share:.3f}"
                for word, share in zip(case["candidates"], scores[-1], strict=True)
            )
            agreeing = f"{sum(made)} of {len(made)}"
            rows.append(
                (f"({letter}) {TITLES[name]}", shares, "yes" if made[-1] else "no", agreeing)
            )
    header = ("", "last layer", "agrees with the model", "layers that agree")
    return Table("Attention of the mask to the two candidates", header, tuple(rows))
