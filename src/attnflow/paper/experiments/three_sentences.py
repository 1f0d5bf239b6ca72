"""The sentences of figures 1 to 3, and what the model says to them.

One is classified rightly, one has an attractor, and one is classified wrongly; each comes with a
change of one word that turns the decision around. The second is the paper's. The first is not given
there; the third has to be one that the model at hand gets wrong, which it does not with that.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from attnflow.paper.experiments.options import Options

if TYPE_CHECKING:
    from attnflow.explanation import Explanation

MODEL = "verb-number"
LETTERS = "abcdefghijklmnopqrstuvwxyz"


@dataclass(frozen=True)
class Sentence:
    """A sentence up to its verb.

    number: the one the verb must have; "" if it is not known.
    change: a word, and one to put in its place; ("", "") for none.
    """

    text: str
    number: str = ""
    change: tuple[str, str] = ("", "")

    @property
    def changed(self) -> str:
        """The text with that word changed; "" if there is none."""
        old, new = self.change
        words = [new if word == old else word for word in self.text.split(" ")]
        return " ".join(words) if old else ""


CORRECT = Sentence("the keys to the cabinet", "plural", ("keys", "key"))
ATTRACTOR = Sentence("the article on NNP large systems", "singular", ("article", "articles"))
WRONG = Sentence("the NNS in which the female", "singular", ("NNS", "NNP"))
PAPERS_WRONG = Sentence("here the NNS differ in that the female", "singular", ("NNS", "NNP"))
SENTENCES = (CORRECT, ATTRACTOR, WRONG)


def chosen_sentences(options: Options, default: Sequence[Sentence]) -> list[Sentence]:
    """The texts that were asked for, of which the right number is not known, or the default."""
    return [Sentence(text) for text in options.texts] or list(default)


def explain_sentences(
    options: Options, sentences: Sequence[Sentence]
) -> "tuple[list[Explanation], list[dict[str, Any]]]":
    """Explanations of the sentences, and what the model says to each of them and to its change."""
    from attnflow.explainer import explain
    from attnflow.models.loading import load_model

    loaded = load_model(options.model or MODEL)
    found, told = [], []
    for sentence in sentences:
        explanation = explain(sentence.text, loaded, device=options.device)
        found.append(explanation)
        facts = {"text": sentence.text, "number": sentence.number, **_decision(explanation)}
        facts["right"] = facts["predicted"] == sentence.number if sentence.number else None
        if sentence.changed:
            after = _decision(explain(sentence.changed, loaded))
            facts["changed"] = {"text": sentence.changed, **after}
            facts["flips"] = after["predicted"] != facts["predicted"]
        told.append(facts)
    return found, told


def _decision(explanation: "Explanation") -> dict[str, Any]:
    if explanation.prediction is None:
        return {"predicted": None, "probability": None}
    best = explanation.prediction
    return {"predicted": best.label, "probability": round(best.probability, 4)}


def scores_of(explanation: "Explanation", methods: Sequence[str]) -> dict[str, Any]:
    """What the maps show: tokens, and for each method the scores [layers, tokens] that sum to 1."""
    maps = {
        method: getattr(explanation, method)(normalize="rows").to_numpy()[:, 0].astype(float)
        for method in methods
    }
    return {
        "tokens": list(explanation.tokens),
        **{method: np.round(one, 4).tolist() for method, one in maps.items()},
    }


def headings(told: Sequence[Mapping[str, Any]]) -> list[str]:
    """A line above the maps of each sentence: what the model says, and whether it is right."""
    lines = []
    for letter, facts in zip(LETTERS, told, strict=False):
        judged = {True: ", right", False: ", wrong", None: ""}[facts["right"]]
        lines.append(f"({letter}) {facts['predicted']}{judged}")
    return lines


def describe_decisions(told: Sequence[Mapping[str, Any]]) -> str:
    """A paragraph on what the model says to each sentence."""
    parts = []
    for letter, facts in zip(LETTERS, told, strict=False):
        judged = {True: ", which is right", False: f", but {facts['number']} is right", None: ""}
        parts.append(
            f'({letter}) "{facts["text"]}": {facts["predicted"]} ({facts["probability"]:.2f})'
            f"{judged[facts['right']]}."
        )
        if "changed" in facts:
            after = facts["changed"]
            verb = "turns" if facts["flips"] else "does not turn"
            parts.append(
                f'Changed to "{after["text"]}": {after["predicted"]} '
                f"({after['probability']:.2f}), which {verb} the decision around."
            )
    return " ".join(parts)
