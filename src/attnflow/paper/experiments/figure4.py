"""Figure 4: a masked pronoun, and the attention of the mask to the two words it can refer to."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from attnflow.errors import FileError, InputError
from attnflow.paper.experiments.experiment import PAPER_METHODS, Options, Result
from attnflow.paper.experiments.report import LETTERS, Picture, Report, Table, provenance
from attnflow.progress import Progress

if TYPE_CHECKING:
    from attnflow.figures import CandidateCase
    from attnflow.models.loading import LoadedModel

MODEL = "bert-base-uncased"  # the paper's
SMALL_MODEL = "minilm-mlm"  # comes with attnflow

# The paper's two sentences, each with the words that "his" and "her" would refer to.
CASES = (
    ("The author talked to Sara about [MASK] book.", "author,Sara"),
    ("Mary convinced John of [MASK] love.", "John,Mary"),
)
# Notes on models other than the paper's.
NOTES = {
    SMALL_MODEL: "This is not the paper's BERT but a MiniLM encoder with 6 layers, whose head for "
    "masked words was trained for attnflow on little text. It demonstrates the method and does not "
    "replicate the paper's figure.",
}
CAPTION = (
    "Left: relative probabilities of the words at the mask. Right: the share of the mask's "
    "attention on each word that they can refer to, by layer, for raw attention, rollout and flow. "
    "A word and its referent have the same color."
)


def run(options: Options, progress: Progress | None) -> Result:
    """Draw the probabilities of the words, and the attention of the mask to the candidates."""
    from attnflow.figures import draw_candidates, save

    texts = _texts_and_candidates(options)
    loaded = _open_masked_lm(options)
    cases = []
    for i, (text, candidates) in enumerate(texts):
        title = f"({LETTERS[i % 26]}) {text}"
        cases.append(_explain_mask(loaded, options, text, candidates.split(","), title))
        if progress is not None:
            progress(i + 1, len(texts) + 1)
    file = f"paper-figure4.{options.picture_format}"
    save(draw_candidates(cases, **options.drawing_options), options.pictures_folder / file)
    if progress is not None:
        progress(len(texts) + 1, len(texts) + 1)
    settings = {"model": options.model or MODEL, "data": f"{len(cases)} sentences"}
    return Result("figure4", {"cases": [_case_numbers(case) for case in cases]}, settings, (file,))


def _texts_and_candidates(options: Options) -> list[tuple[str, str]]:
    if not options.texts and not options.candidates:
        return list(CASES)
    if len(options.texts) != len(options.candidates):
        raise InputError(
            f"there are {len(options.texts)} texts and {len(options.candidates)} lists of "
            "candidates",
            expected="one list of candidates for each text",
            fix="Add an option such as --candidates 'John,Mary' after each --text.",
        )
    return list(zip(options.texts, options.candidates, strict=True))


def _open_masked_lm(options: Options) -> "LoadedModel":
    from attnflow.models.loading import load_model

    try:
        loaded = load_model(options.model or MODEL)
    except FileError as error:
        if options.model is not None:
            raise
        raise FileError(
            error.given,
            error.expected,
            f"{error.fix} Or use the masked language model that comes with attnflow: "
            f"--model {SMALL_MODEL}.",
        ) from error
    if loaded.task != "masked_lm":
        raise InputError(
            f"the task of {loaded.name} is {loaded.task}",
            expected="a masked language model",
            fix=f"Choose one with --model, such as {MODEL} or {SMALL_MODEL}.",
        )
    return loaded


def _explain_mask(
    loaded: "LoadedModel", options: Options, text: str, candidates: Sequence[str], title: str
) -> "CandidateCase":
    """Explain the mask, with the probability of each word of `options.fillers`."""
    from attnflow.explainer import explain
    from attnflow.figures import CandidateCase

    text = text.replace("[MASK]", loaded.tokenizer.mask_token)
    explanations = {
        word: explain(text, loaded, target=word, edges="attention", device=options.device)
        for word in options.fillers
    }
    probabilities = {}
    for word, explanation in explanations.items():
        assert explanation.prediction is not None, "a masked language model predicts"
        probabilities[word] = explanation.prediction.target.probability
    referents = tuple(word.strip() for word in candidates)
    return CandidateCase(explanations[options.fillers[0]], probabilities, referents, title)


def _case_numbers(case: "CandidateCase") -> dict[str, Any]:
    """Return what is drawn, and at which layers each method agrees with the model."""
    attention = {method: case.attention(method) for method in PAPER_METHODS}
    relative = list(case.relative.values())
    preferred = int(np.argmax(relative))
    top = case.explanation.prediction
    assert top is not None, "a masked language model predicts"
    return {
        "text": case.explanation.text,
        "fillers": list(case.relative),
        "candidates": [case.explanation.words.texts[i] for i in case.columns],
        "probabilities": [round(p, 6) for p in case.probabilities.values()],
        "relative": [round(p, 4) for p in relative],
        "top": {"word": top.label, "probability": round(top.probability, 4)},
        "attention": {method: np.round(rows, 4).tolist() for method, rows in attention.items()},
        "agrees": {
            method: [int(np.argmax(row)) == preferred for row in rows]
            for method, rows in attention.items()
        },
    }


def render(result: Result) -> Report:
    """Render figure 4, the probabilities, and where the methods agree with the model."""
    cases = result.numbers["cases"]
    note = NOTES.get(str(result.settings["model"]))
    parts: list[str | Table | Picture] = [provenance(result), *([note] if note else [])]
    parts.append(" ".join(_describe_case(LETTERS[i % 26], case) for i, case in enumerate(cases)))
    parts.append(Picture(result.pictures[0], CAPTION))
    return Report("Figure 4: a masked pronoun", (*parts, _table(cases)))


def _describe_case(letter: str, case: Mapping[str, Any]) -> str:
    shares = ", ".join(
        f"{word} {share:.0%}" for word, share in zip(case["fillers"], case["relative"], strict=True)
    )
    agreeing = [method for method, layers in case["agrees"].items() if layers[-1]]
    verb = "agrees" if len(agreeing) == 1 else "agree"
    subject = f"{' and '.join(agreeing)} {verb}" if agreeing else "no method agrees"
    top = case["top"]
    return (
        f"({letter}) Relative probabilities: {shares}. The most probable of all words is "
        f'"{top["word"]}" ({top["probability"]:.2f}). At the last layer, {subject} with the '
        "preference of the model."
    )


def _table(cases: Sequence[Mapping[str, Any]]) -> Table:
    """Return the attention at the last layer, and at how many layers methods agree."""
    rows = []
    for letter, case in zip(LETTERS, cases, strict=False):
        for method, attention in case["attention"].items():
            layers = case["agrees"][method]
            shares = ", ".join(
                f"{word} {share:.3f}"
                for word, share in zip(case["candidates"], attention[-1], strict=True)
            )
            rows.append(
                (
                    f"({letter}) {method.capitalize()}",
                    shares,
                    "yes" if layers[-1] else "no",
                    f"{sum(layers)} of {len(layers)}",
                )
            )
    header = ("", "last layer", "agrees with the model", "layers that agree")
    return Table("Attention of the mask to the two candidates", header, tuple(rows))
