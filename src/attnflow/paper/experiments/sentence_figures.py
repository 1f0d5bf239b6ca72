"""Figures 1 to 3: attention graphs and maps of [CLS] for sentences of the verb-number model.

One sentence is classified correctly, one has an attractor, and one is classified wrongly. For each,
changing one word changes the prediction. The second is the paper's. The paper does not print the
first, and the bundled model classifies the paper's third correctly, so these two are ours.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from attnflow.attribution import Special
from attnflow.paper.experiments.experiment import PAPER_METHODS, Options, Result
from attnflow.paper.experiments.report import (
    LETTERS,
    NO_VALUE,
    Picture,
    Report,
    Table,
    provenance,
)
from attnflow.progress import Progress

if TYPE_CHECKING:
    from attnflow.explanation import Explanation

MODEL = "verb-number"
CLS = "[CLS]"
PALE = 0.25  # of the maximum of a shared scale; a map with a lower maximum would be nearly blank
N_SHOWN = 3  # tokens in the table of highest scores

GRAPH_MEANING = (
    "Lines that end at a position of a layer show what it attends to: positions of the layer below "
    "for raw attention, and input tokens for rollout and flow at every layer, as in the paper's "
    "figure. At the first layer rollout and flow are equal, and differ from raw attention by the "
    "residual connection (the horizontal lines), which fades with depth. The lines of [CLS], from "
    "which the model classifies, are orange."
)
HIDDEN_CLS = (
    "Scores sum to 1 over all tokens, [CLS] included, but figures 2 and 3 do not draw the column "
    "of [CLS]: because of the residual connection, it holds about half of its own rollout and flow "
    "at the first layer, which would leave little contrast for the words."
)


@dataclass(frozen=True)
class Sentence:
    """A sentence up to its verb.

    number: the correct number of the verb; "" if unknown.
    change: a word and its replacement; ("", "") for none.
    """

    text: str
    number: str = ""
    change: tuple[str, str] = ("", "")

    @property
    def changed(self) -> str:
        """The text with the word replaced; "" if there is no change."""
        old, new = self.change
        words = [new if word == old else word for word in self.text.split(" ")]
        return " ".join(words) if old else ""


CORRECT = Sentence("the keys to the cabinet", "plural", ("keys", "key"))
ATTRACTOR = Sentence("the article on NNP large systems", "singular", ("article", "articles"))
WRONG = Sentence("the songs that the author", "singular", ("songs", "song"))
PAPER_WRONG = Sentence("here the NNS differ in that the female", "singular", ("NNS", "NNP"))
SENTENCES = (CORRECT, ATTRACTOR, WRONG)


def run_figure1(options: Options, progress: Progress | None) -> Result:
    """Draw the attention graph of one sentence."""
    from attnflow.figures import draw_graph, save

    [sentence, *_] = choose_sentences(options, [CORRECT])
    [explanation], facts = explain_sentences(options, [sentence])
    _report(progress, 1)
    file = f"paper-figure1.{options.picture_format}"
    figure = draw_graph(explanation, highlight=explanation.position, **options.drawing_options)
    save(figure, options.pictures_folder / file)
    _report(progress, 2)
    numbers = {"sentences": facts, "scores": map_scores(explanation, PAPER_METHODS)}
    settings = {"model": options.model or MODEL, "data": "one sentence"}
    return Result("figure1", numbers, settings, (file,))


def run_figure2(options: Options, progress: Progress | None) -> Result:
    """Draw maps of raw attention of [CLS], tokens by layers."""
    return _run_maps("figure2", ("raw",), options, progress)


def run_figure3(options: Options, progress: Progress | None) -> Result:
    """Draw maps of rollout and flow of [CLS], tokens by layers."""
    return _run_maps("figure3", ("rollout", "flow"), options, progress)


def _run_maps(
    name: str, methods: tuple[str, ...], options: Options, progress: Progress | None
) -> Result:
    from attnflow.figures import draw_maps, save

    explanations, facts = explain_sentences(options, choose_sentences(options, SENTENCES))
    _report(progress, 1)
    file = f"paper-{name}.{options.picture_format}"
    # Because of the residual connection, [CLS] has most of its own rollout and flow at the first
    # layers, which would leave little contrast for the words. Hidden in all maps, to compare them.
    special: Special = "hide"
    scores = [map_scores(explanation, methods) for explanation in explanations]
    figure = draw_maps(
        explanations,
        methods=methods,
        titles=_panel_titles(facts),
        special=special,
        scale=options.scale or choose_scale(scores, special),
        **options.drawing_options,
    )
    save(figure, options.pictures_folder / file)
    _report(progress, 2)
    numbers: dict[str, Any] = {"sentences": facts, "scores": scores, "special": special}
    if not options.texts:
        numbers["paper_sentence"] = explain_sentences(options, [PAPER_WRONG])[1][0]
    settings: dict[str, Any] = {"model": options.model or MODEL, "data": _count(facts)}
    settings |= {"dark": True} if options.dark else {}
    return Result(name, numbers, settings, (file,))


def _report(progress: Progress | None, done: int) -> None:
    """Report progress: explaining and drawing are one step each."""
    if progress is not None:
        progress(done, 2)


def choose_sentences(options: Options, default: Sequence[Sentence]) -> list[Sentence]:
    """Return the texts of the options, or the default sentences."""
    return [Sentence(text) for text in options.texts] or list(default)


def explain_sentences(
    options: Options, sentences: Sequence[Sentence]
) -> "tuple[list[Explanation], list[dict[str, Any]]]":
    """Explain sentences. Returns explanations, and the predictions before and after the change."""
    from attnflow.explainer import explain
    from attnflow.models.loading import load_model

    loaded = load_model(options.model or MODEL)
    explanations, facts = [], []
    for sentence in sentences:
        explanation = explain(sentence.text, loaded, edges="attention", device=options.device)
        prediction = _prediction(explanation)
        known = bool(sentence.number)
        row = {
            "text": sentence.text,
            "number": sentence.number,
            **prediction,
            "correct": prediction["predicted"] == sentence.number if known else None,
        }
        if sentence.changed:
            changed = _prediction(explain(sentence.changed, loaded, edges="attention"))
            row["changed"] = {"text": sentence.changed, **changed}
            row["flips"] = changed["predicted"] != prediction["predicted"]
        explanations.append(explanation)
        facts.append(row)
    return explanations, facts


def _prediction(explanation: "Explanation") -> dict[str, Any]:
    if explanation.prediction is None:
        return {"predicted": None, "probability": None}
    prediction = explanation.prediction
    return {"predicted": prediction.label, "probability": round(prediction.probability, 4)}


def map_scores(explanation: "Explanation", methods: Sequence[str]) -> dict[str, Any]:
    """Return the tokens, and for each method scores [layers, tokens] with rows that sum to 1."""
    maps = {
        method: explanation.attribute(method, normalize="rows").to_numpy()[:, 0].astype(float)
        for method in methods
    }
    return {
        "tokens": list(explanation.tokens),
        **{method: np.round(scores, 4).tolist() for method, scores in maps.items()},
    }


def choose_scale(scores: Sequence[Mapping[str, Any]], special: Special) -> Literal["shared", "own"]:
    """Return "shared", unless one map would be nearly blank on a shared color scale.

    Long texts have lower scores than short ones.
    """
    maxima = []
    for maps in scores:
        shown = [i for i, token in enumerate(maps["tokens"]) if special == "show" or token != CLS]
        for method in _methods(maps):
            maxima.append(max(layer[i] for layer in maps[method] for i in shown))
    return "own" if min(maxima) < PALE * max(maxima) else "shared"


def _methods(maps: Mapping[str, Any]) -> list[str]:
    return [name for name in maps if name != "tokens"]


def render_figure1(result: Result) -> Report:
    """Render figure 1 and the prediction for the sentence."""
    facts = result.numbers["sentences"]
    caption = (
        "Raw attention, attention rollout and attention flow across layers for "
        f'"{facts[0]["text"]}". Wider lines mean more attention.'
    )
    picture = Picture(result.pictures[0], caption)
    return Report(
        "Figure 1: the attention graph",
        (provenance(result), _describe_predictions(facts), picture, GRAPH_MEANING),
    )


def render_figure2(result: Result) -> Report:
    """Render figure 2 and the predictions for the sentences."""
    return _render_maps(
        result,
        "Figure 2: raw attention of [CLS]",
        "Raw attention of [CLS] by token (horizontal) and layer (vertical)",
    )


def render_figure3(result: Result) -> Report:
    """Render figure 3 and the predictions for the sentences."""
    return _render_maps(
        result,
        "Figure 3: rollout and flow of [CLS]",
        "Attention rollout and attention flow of [CLS] by token (horizontal) and layer (vertical)",
    )


def _render_maps(result: Result, title: str, caption: str) -> Report:
    numbers = result.numbers
    shade = "Lighter" if result.settings.get("dark") else "Darker"
    caption = f"{caption} for {_count(numbers['sentences'])}. {shade} means more attention."
    parts: list[str | Table | Picture] = [
        provenance(result),
        _describe_predictions(numbers["sentences"]),
        Picture(result.pictures[0], caption),
    ]
    if numbers["special"] == "hide":
        parts.append(HIDDEN_CLS)
    if "paper_sentence" in numbers:
        parts.append(_describe_paper_sentence(numbers["paper_sentence"]))
    parts.append(_highest_scores(numbers["scores"]))
    return Report(title, tuple(parts))


def _count(sentences: Sequence[Any]) -> str:
    n = len(sentences)
    return "one sentence" if n == 1 else f"{'three' if n == 3 else n} sentences"


def _panel_titles(facts: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the titles above the maps: the prediction, and whether it is correct."""
    titles = []
    for letter, row in zip(LETTERS, facts, strict=False):
        verdict = {True: ", right", False: ", wrong", None: ""}[row["correct"]]
        titles.append(f"({letter}) {row['predicted']}{verdict}")
    return titles


def _describe_predictions(facts: Sequence[Mapping[str, Any]]) -> str:
    """Return a paragraph with the predictions before and after the change of a word."""
    sentences = []
    for letter, row in zip(LETTERS, facts, strict=False):
        verdict = {True: ", correct", False: f", wrong: {row['number']} is correct", None: ""}
        sentences.append(
            f'({letter}) "{row["text"]}": {row["predicted"]} ({row["probability"]:.2f})'
            f"{verdict[row['correct']]}."
        )
        if "changed" in row:
            changed = row["changed"]
            effect = "changes the prediction" if row["flips"] else "does not change the prediction"
            sentences.append(
                f'The replacement "{changed["text"]}" {effect}: {changed["predicted"]} '
                f"({changed['probability']:.2f})."
            )
    return " ".join(sentences)


def _describe_paper_sentence(row: Mapping[str, Any]) -> str:
    prediction = f"{row['predicted']} ({row['probability']:.2f})"
    sentence = f'The paper\'s third sentence, "{row["text"]}",'
    if row["correct"]:
        return (
            f"{sentence} is classified correctly by this model: {prediction}. The third sentence "
            "here is one that this model gets wrong, found among many made from templates."
        )
    return f"{sentence} is classified wrongly by this model too: {prediction}."


def _highest_scores(scores: Sequence[Mapping[str, Any]]) -> Table:
    """Return the words with the highest scores at the last layer."""
    titles = {"raw": "raw attention"}
    rows = []
    for letter, maps in zip(LETTERS, scores, strict=False):
        for method in _methods(maps):
            last = np.asarray(maps[method][-1])
            order = [i for i in np.argsort(-last, kind="stable") if maps["tokens"][i] != CLS]
            cells = [f"{maps['tokens'][i]} {last[i]:.3f}" for i in order[:N_SHOWN]]
            cells += [NO_VALUE] * (N_SHOWN - len(cells))
            rows.append((f"({letter}) {titles.get(method, method)}", *cells))
    header = ("", "first", "second", "third")
    return Table("Words with the highest scores at the last layer", header, tuple(rows))
