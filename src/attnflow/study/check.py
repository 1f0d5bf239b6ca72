"""The check of one explanation: whether it tells more about its text than chance.

`check_methods` removes tokens in the order of the scores and asks the model each time, as a
study does for a data set. One text proves little: a study of many tells which method to trust.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from attnflow.arrays import to_numpy
from attnflow.errors import AttnflowError, InputError, check_choice
from attnflow.evaluation.perturbation import Curves, bins, comprehensiveness, sufficiency
from attnflow.explanation import Explanation, Origin
from attnflow.methods.registry import METHODS, default_methods
from attnflow.models.loading import load_model
from attnflow.models.model_state import evaluation_mode
from attnflow.models.multimodal import EncodedTextWithImages
from attnflow.models.vision import load_image_model
from attnflow.presentation import edges_name
from attnflow.study.case import Question, make_case
from attnflow.study.explainers import attribute, explain_all, explainer_title
from attnflow.study.image_case import MaskedImage, make_image_case
from attnflow.study.masked_model import BATCH_TOKENS, MaskedModel

ORDERS = 64  # random orders to compare with
MEAN_ORDERS = 16  # of these, for a mean; a share needs more
TIED = 1e-12  # a difference of probabilities that is no difference
RIVALS = ("input_gradients", "gradient_times_input")  # besides the methods


@dataclass(frozen=True)
class Check:
    """How an explanation does on its own text.

    explainer: its name, such as "rollout/alti". label: the explained prediction.
    comprehensiveness: how much the probability of the prediction drops without the tokens that it
    ranks highest, averaged over 1, 5, 10, 20 and 50 % of the tokens. random: the same for tokens in
    random order, on average. beaten: the share of random orders that drop it less, ties counted
    half. sufficiency: the drop with only these tokens; random_sufficiency: with random ones, on
    average.
    best: the explainer with the highest comprehensiveness of those compared, which are in
    `compared` with their values. replacement: what took the place of removed tokens.
    """

    explainer: str
    label: str
    comprehensiveness: float
    random: float
    beaten: float
    sufficiency: float
    random_sufficiency: float
    best: str
    compared: Mapping[str, float]
    replacement: str

    def __str__(self) -> str:
        verdict = f"better than {self.beaten:.0%} of {ORDERS} random orders"
        best = f"best of {len(self.compared)} here: {explainer_title(self.best)}"
        if self.best == self.explainer:
            best = f"the best of {len(self.compared)} here"
        else:
            best += f" ({_amount(self.compared[self.best])})"
        return (
            f"without its top tokens, p({self.label}) {_change(self.comprehensiveness)}; "
            f"without random ones, it {_change(self.random)}: {verdict}; {best}."
        )


def _change(drop: float) -> str:
    return f"{'drops' if drop >= 0 else 'rises'} by {_amount(abs(drop))}"


def _amount(value: float) -> str:
    """A number with two digits: whole answers have small probabilities.

    >>> _amount(0.344), _amount(0.00784), _amount(0.0)
    ('0.34', '0.0078', '0.00')
    """
    is_small = TIED < abs(value) < 0.095
    return f"{value:.2g}" if is_small else f"{value:.2f}"


def check_methods(
    explanation: Explanation,
    methods: Sequence[str] = ("rollout",),
    *,
    model: Any = None,
    replacement: str | None = None,
    words: bool = False,
) -> dict[str, Check]:
    """Compare the scores of methods, at the last layer, with random orders and other explainers.

    model: the model of the explanation, if it was loaded from a file; otherwise it is known.
    replacement: what takes the place of removed tokens, as in `blank_out`, or for images "mean" or
    "blur". Default: the one that fits the model. words: rank words instead of tokens.
    Returns a check for each method.
    Raises SelectionError for an unknown method; InputError for a model that predicts nothing, or
    if the model is not known.
    """
    check_choice("words", words, (False, True))
    edges = edges_name(explanation.graph.settings)
    names = {method: f"{METHODS[method].name}/{edges}" for method in methods}
    case, ask = _open(explanation, model, replacement, words)
    with evaluation_mode(case.loaded.model):
        scores = _score(explanation, case, list(names))
        n = len(case.units)
        orders = np.random.default_rng(0).permuted(np.tile(np.arange(n), (ORDERS, 1)), axis=1)
        curves = {key: Curves(values, ask) for key, values in scores.items()}
        chance = [Curves(order.astype(np.float64), ask) for order in orders]
        few = chance[:MEAN_ORDERS]
        needed = [_needed_sets([*curves.values(), *few]), _needed_sets(chance, both=False)]
        ask.log_probability(np.concatenate(needed))
        values = {key: comprehensiveness(curve) for key, curve in curves.items()}
        random = np.asarray([comprehensiveness(curve) for curve in chance])
        random_sufficiency = float(np.mean([sufficiency(curve) for curve in few]))
        kept = {name: sufficiency(curves[name]) for name in names.values()}
    return {
        method: Check(
            explainer=name,
            label=case.label,
            comprehensiveness=values[name],
            random=float(random.mean()),
            beaten=_share_below(random, values[name]),
            sufficiency=kept[name],
            random_sufficiency=random_sufficiency,
            best=max(values, key=lambda key: (values[key], key == name)),
            compared=values,
            replacement=str(ask.replacement),
        )
        for method, name in names.items()
    }


def _share_below(values: Any, own: float) -> float:
    """Return the share of values below a number; equal ones count half.

    >>> _share_below(np.asarray([0.0, 0.5, 1.0]), 0.5)
    0.5
    """
    return float((values < own - TIED).mean() + (np.abs(values - own) <= TIED).mean() / 2)


def _open(
    explanation: Explanation, model: Any, replacement: str | None, words: bool
) -> tuple[Any, Any]:
    """Return the case of an explanation, and the model to ask."""
    origin, is_image = explanation.origin, explanation.image is not None
    if origin is None and (model is None or is_image):
        missing = "image" if is_image else "model"
        raise InputError(
            f"the explanation does not know its {missing}: it was loaded, or made from weights",
            expected="an explanation of explain or explain_image, or the model",
            fix="Explain the input again, or for texts pass model=...",
        )
    answer = explanation.answer
    end = len(explanation.text) if answer is None else answer.start
    origin = origin or Origin(explanation.text[:end], model)
    if isinstance(origin.data, EncodedTextWithImages):
        raise InputError(
            "the explanation is of a text with images",
            expected="a text, or an image",
            fix="Explain the text without images, or compare with edges='gradient'.",
        )
    source, companion = (origin.model, origin.companion) if model is None else (model, None)
    target = explanation.prediction.target.index if explanation.prediction else None
    question = Question(target, origin.against, None if is_image else explanation.position)
    if answer is not None:
        question = Question(continuation=list(answer.ids))
    options: dict[str, Any] = {"batch_tokens": BATCH_TOKENS, "draws": 1, "seed": 0}
    if is_image:
        image_model = load_image_model(source, companion)
        with evaluation_mode(image_model.model):
            image_case = make_image_case(image_model, origin.data, question)
        return image_case, MaskedImage(image_case, replacement or "mean", **options)
    loaded = load_model(source, companion)
    with evaluation_mode(loaded.model):
        case = make_case(loaded, origin.data, question, words=words, truncate="cut")
        return case, MaskedModel(case, replacement, **options)  # type: ignore[arg-type]


def _score(explanation: Explanation, case: Any, methods: Sequence[str]) -> dict[str, Any]:
    """Return the scores of the methods on the explanation's graph, and of rivals, by name."""
    graph = explanation.on_host().graph
    edges = edges_name(graph.settings)
    every = dict.fromkeys((*methods, *default_methods()))
    scores = {f"{method}/{edges}": attribute(case, graph, method) for method in every}
    rivals = [*(["rollout/alti"] if edges != "alti" else []), *RIVALS]
    for rival, compute in explain_all(case, rivals):
        try:
            scores[rival] = to_numpy(compute())
        except AttnflowError:  # a model that contributions cannot be followed in
            continue
    return scores


def _needed_sets(curves: list[Curves], *, both: bool = True) -> Any:
    """Return all sets of removed tokens that comprehensiveness, or both metrics need."""
    counts = bins(curves[0].n)
    n = curves[0].n
    sets = [curve.sets(count, "most") for curve in curves for count in [0, *counts]]
    if both:
        sets += [curve.sets(n - count, "least") for curve in curves for count in counts]
    return np.concatenate(sets)
