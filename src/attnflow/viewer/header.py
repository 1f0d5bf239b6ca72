"""The header of the viewer's data: methods and examples in words, ready for JSON."""

from base64 import b64encode
from collections.abc import Sequence
from dataclasses import dataclass
from math import isfinite
from operator import index
from typing import Any, Literal

import numpy as np

from attnflow.attribution import check_normalize, check_special
from attnflow.edges.registry import EDGES
from attnflow.errors import AttnflowError, check_choice, check_count
from attnflow.explanation import UNITS, Explanation, ImageGrid, ViewOptions
from attnflow.graph import AttentionGraph
from attnflow.methods.registry import METHODS
from attnflow.predictions import Answer, Outcome, Prediction
from attnflow.presentation import (
    count_source,
    describe_generation,
    describe_settings,
    edges_name,
    name_layers,
    title_with_edges,
)
from attnflow.selection import resolve_layer
from attnflow.token_text import readable_tokens
from attnflow.units import Units

PAGE_METHODS = ("raw", "rollout", "flow")  # implemented by the page itself, in viewer/src
# Layers squared times tokens cubed, up to which flow is computed in advance at all layers: a few
# seconds. Beyond, as for 30 layers of 500 tokens, at the last layer only.
FLOW_WORK = 3e10


@dataclass(frozen=True)
class MethodInfo:
    """A registered method, as the header lists it.

    computed: "page" if the page computes it from other chunks, "data" if its scores are chunks.
    """

    name: str
    title: str
    summary: str
    computed: Literal["page", "data"]


def list_methods(
    explanations: Sequence[Explanation], chosen: str | None = None
) -> tuple[MethodInfo, ...]:
    """The default methods, and the chosen one.

    Raw attention has another title if not all edges are attention.
    Raises SelectionError if the chosen method is unknown.
    """
    if chosen is not None:
        _ = METHODS[chosen]
    settings = [explanation.graph.settings for explanation in explanations]
    other = next((s for s in settings if edges_name(s) != "attention"), {})
    methods = []
    for method in METHODS:
        title = title_with_edges(method.name, other)
        summary = method.summary
        if title != method.title:
            summary = "the edge weights of one layer."
        computed: Literal["page", "data"] = "page" if method.name in PAGE_METHODS else "data"
        if method.default or method.name == chosen:
            methods.append(MethodInfo(method.name, title, summary, computed))
    return tuple(methods)


def opening_state(explanations: Sequence[Explanation], view: ViewOptions) -> dict[str, Any]:
    """The part of the viewer's state that options set, under the names of the front end.

    Raises SelectionError for an unknown layer, InputError for other invalid values.
    """
    state: dict[str, Any] = {}
    if "method" in view:
        state["method"] = view["method"]
    if "layer" in view:
        deepest = max(explanation.graph.n_layers for explanation in explanations)
        state["layer"] = resolve_layer(deepest, view["layer"])
    answer = explanations[0].answer
    if answer is not None and "answer" in view:
        [row, *_] = answer.rows(view["answer"])
        state["part"] = [row.positions[0] + 1, row.positions[-1] + 1]  # tokens, after positions
    if "normalize" in view:
        check_normalize(view["normalize"])
        state["normalize"] = view["normalize"]
    if "words" in view:
        check_choice("words", view["words"], (False, True))
        state |= {"units": "words"} if view["words"] else {}
    if "units" in view:
        check_choice("units", view["units"], UNITS)
        state["units"] = view["units"]
    if "special" in view:
        check_special(view["special"])
        state["special"] = view["special"] != "hide"
    if "top" in view:
        check_count("top", view["top"])
        top: Any = view["top"]  # None for all, from the command line
        state["topK"] = 0 if top is None else index(top)
    return state


def name_examples(explanations: Sequence[Explanation]) -> list[str]:
    """A name for each example: by model, edges or text, depending on what differs."""
    models = []
    for explanation in explanations:
        n = explanation.graph.n_layers
        layers = f"{n} layer{'' if n == 1 else 's'}"
        models.append(f"{explanation.model} · {layers}" if explanation.model else layers)
    texts = [shorten(name_text(explanation), 40) for explanation in explanations]
    graphs = _differences([describe_settings(x.graph.settings) for x in explanations])
    parts = [part for part in (texts, models, graphs) if len(set(part)) > 1] or [models]
    return [" · ".join(filter(None, names)) for names in zip(*parts, strict=True)]


def _differences(settings: Sequence[Sequence[str]]) -> list[str]:
    """The settings of each example that not all of them have."""
    return [
        " · ".join(part for part in parts if not all(part in others for others in settings))
        for parts in settings
    ]


def name_text(explanation: Explanation) -> str:
    """The text to name an explanation by: without its answer, and of a chat the last message."""
    text, answer, offsets = explanation.text, explanation.answer, explanation.offsets
    if answer is not None:
        text = text[: answer.start]
    asked = [part for part in explanation.segments if answer is None or part.start < answer.first]
    is_chat = any(part.name == "user" for part in asked)
    if is_chat and offsets is not None:
        spans = [span for span in offsets[asked[-1].start : asked[-1].stop] if span is not None]
        text = text[spans[0][0] : spans[-1][1]] if spans else text
    elif answer is None and len(asked) > 1:
        text = text.replace("\n", " | ", 1)  # between the texts of a pair
    return text.strip() or " ".join(explanation.tokens)


def shorten(text: str, length: int) -> str:
    """Cut a text to a number of characters, the last of which is then an ellipsis.

    >>> shorten("attention", 5)
    'atte…'
    """
    return text if len(text) <= length else f"{text[: length - 1]}…"


def name_page(explanations: Sequence[Explanation], title: str) -> str:
    """The title of a browser window: that of the page, and the models and edges of the examples."""
    names = [
        " · ".join(describe_settings({"edges": edges_name(graph.settings)}, model=model))
        for model, graph in ((explanation.model, explanation.graph) for explanation in explanations)
    ]
    return " · ".join(dict.fromkeys([title, *names]))


def stored_layers(explanation: Explanation, method: str) -> tuple[int, ...]:
    """The layers, from 1, at which the scores of a method are computed in advance."""
    n_layers, n = explanation.graph.n_layers, len(explanation.tokens)
    if method in ("raw", "rollout") or n_layers**2 * n**3 <= FLOW_WORK:
        return tuple(range(1, n_layers + 1))
    return (n_layers,)


def heads_per_layer(explanation: Explanation) -> tuple[int, ...]:
    """The number of heads of each layer; empty if heads were not kept."""
    return () if explanation.heads is None else explanation.heads.n_heads


def describe_example(explanation: Explanation) -> dict[str, Any]:
    """The header of an example, without its name, rows and chunks."""
    graph = explanation.graph
    carried = [] if graph.carried is None else np.argwhere(graph.carried).tolist()
    return {
        "text": explanation.text,
        "model": explanation.model,
        "tokens": list(explanation.tokens),
        "labels": list(readable_tokens(explanation.tokens, text=explanation.text)),
        "special": list(explanation.special),
        "words": _describe_units(explanation.words),
        "units": _list_units(explanation),
        "runs": _split_text(explanation),
        "segments": [[part.name, part.start, part.stop] for part in explanation.segments],
        "answer": _describe_answer(explanation.answer),
        "position": explanation.position,
        "positions": list(explanation.positions),
        "prediction": _describe_prediction(explanation.prediction),
        "predictions": _describe_predictions(explanation),
        "n_layers": graph.n_layers,
        "layer_names": list(name_layers(graph)),
        "n_source": count_source(graph),
        "n_heads": max(heads_per_layer(explanation), default=0),
        "causal": graph.causal,
        "edges": _describe_edges(graph),
        "settings": _list_settings(explanation),
        "heads": graph.settings.get("heads"),
        "residual_weights": list(graph.residual_weights or ()),
        "carried": [[layer + 1, position] for layer, position in carried],
        "image": _describe_image(explanation.image),
    }


def _list_settings(explanation: Explanation) -> list[str]:
    """Model, edges and other settings of the graph, and how the answer was generated, in words."""
    settings = describe_settings(explanation.graph.settings, model=explanation.model)
    if explanation.answer is not None:
        settings.append(describe_generation(explanation.answer.settings))
    return settings


def _describe_units(units: Units) -> dict[str, Any]:
    return {
        "texts": list(units.texts),
        "groups": [list(group) for group in units.groups],
        "special": list(units.special),
    }


def _list_units(explanation: Explanation) -> dict[str, Any]:
    """Units larger than words, by name, if the text has several of them."""
    found = {}
    for name in UNITS[2:]:
        try:
            units = explanation.find_units(name)
        except AttnflowError:  # without offsets or segments
            continue
        if units is not None and sum(not special for special in units.special) > 1:
            found[name] = _describe_units(units)
    return found


def _split_text(explanation: Explanation) -> list[str]:
    """The text in parts, one for each token, each with the space before it; empty if unknown.

    A token that shares its characters with the one before has an empty part.
    """
    named = explanation.answer is not None or explanation.segments
    if explanation.offsets is None or not named:
        return []
    runs, end = [], 0
    answer = explanation.answer
    for i, span in enumerate(explanation.offsets):
        if answer is not None and i == answer.first:
            end = max(end, answer.start)  # without the line break between source and target
        if span is None:
            runs.append("")
            continue
        runs.append(explanation.text[end : span[1]])
        end = max(end, span[1])
    return runs


def _describe_answer(answer: Answer | None) -> dict[str, Any] | None:
    """The first token of the answer, its tokens without special ones, and their predictions."""
    if answer is None:
        return None
    [whole] = answer.rows()
    return {
        "first": answer.first,
        "text": answer.text,
        "whole": [position + 1 for position in whole.positions],
        "steps": [_describe_prediction(step, digits=4) for step in answer.steps],
    }


def _describe_edges(graph: AttentionGraph) -> dict[str, str]:
    """The edge weighting of the graph; plain attention is not recorded in its settings."""
    name = edges_name(graph.settings)
    known = name in EDGES.names  # else made with a plugin that is not installed here
    return {"name": name, "title": EDGES[name].title if known else name}


def _describe_prediction(prediction: Prediction | None, digits: int = 17) -> dict[str, Any] | None:
    """Target and best outcomes. digits: of the probabilities."""
    if prediction is None:
        return None
    return {
        "kind": prediction.kind,
        "target": _describe_outcome(prediction.target, digits),
        "top": [_describe_outcome(outcome, digits) for outcome in prediction.top],
    }


def _describe_predictions(explanation: Explanation) -> dict[str, Any]:
    """The predictions of other positions than the explained one, unless an answer is explained."""
    if explanation.answer is not None:
        return {}
    return {
        str(position): _describe_prediction(prediction, digits=4)
        for position, prediction in enumerate(explanation.predictions)
        if prediction is not None and position != explanation.position
    }


def _describe_outcome(outcome: Outcome, digits: int) -> dict[str, Any]:
    """Label and probability; None for NaN and infinity, which JSON lacks."""
    known = isfinite(outcome.probability)
    probability = float(f"{outcome.probability:.{digits}g}") if known else None
    label = readable_tokens([outcome.label])[0]
    return {"label": label, "probability": probability}


def _describe_image(image: ImageGrid | None) -> dict[str, Any] | None:
    if image is None:
        return None
    return {
        "src": f"data:image/png;base64,{b64encode(image.png).decode('ascii')}",
        "rows": image.rows,
        "columns": image.columns,
        "first": image.first,
        "width": image.width,
        "height": image.height,
    }
