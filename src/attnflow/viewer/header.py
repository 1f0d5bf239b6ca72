"""An explanation in JSON, as the viewer's header has it: all but the arrays."""

from base64 import b64encode
from collections.abc import Sequence
from math import isfinite
from typing import Any

import numpy as np

from attnflow.arrays import to_numpy
from attnflow.explanation import Explanation
from attnflow.graph import AttentionGraph
from attnflow.image_grid import ImageGrid
from attnflow.models.predicting import Outcome, Prediction
from attnflow.viewer.flow_rows import flow_rows

ROUNDING = 1e-5  # of float32, which attention is mixed in


def name_examples(explanations: Sequence[Explanation]) -> list[str]:
    """A name for each: its model if those differ or there is one, and otherwise its text."""
    names = []
    for one in explanations:
        n = one.graph.n_layers
        layers = f"{n} layer{'' if n == 1 else 's'}"
        names.append(f"{one.model} · {layers}" if one.model else layers)
    texts = [shorten(one.text or " ".join(one.tokens), 40) for one in explanations]
    if len(names) == 1 or len(set(texts)) == 1:
        return names
    if len(set(names)) == 1:
        return texts
    return [f"{text} · {name}" for text, name in zip(texts, names, strict=True)]


def shorten(text: str, most: int) -> str:
    """A text of at most so many characters, with an ellipsis for the rest."""
    return text if len(text) <= most else f"{text[: most - 1]}…"


def describe(index: int, explanation: Explanation) -> dict[str, Any]:
    """The header of one example."""
    graph, words, n = explanation.graph, explanation.words, len(explanation.tokens)
    rows = flow_rows(explanation)
    layers = range(1, graph.n_layers + 1)
    shapes = {f"{index}/attention/{layer}": [n, n] for layer in layers}
    shapes |= {f"{index}/flow/{layer}": [n if rows is None else len(rows), n] for layer in layers}
    shapes |= {f"{index}/weights/{layer}": [n, n] for layer in unmixed_layers(graph)}
    n_heads = () if explanation.heads is None else explanation.heads.n_heads
    for layer, count in enumerate(n_heads, start=1):
        shapes[f"{index}/heads/{layer}"] = [count, n, n]
    carried = [] if graph.carried is None else np.argwhere(graph.carried).tolist()
    return {
        "text": explanation.text,
        "model": explanation.model,
        "tokens": list(explanation.tokens),
        "special": list(explanation.special),
        "words": {
            "texts": list(words.texts),
            "groups": [list(group) for group in words.groups],
            "special": list(words.special),
        },
        "position": explanation.position,
        "prediction": _prediction(explanation.prediction),
        "n_layers": graph.n_layers,
        "n_heads": max(n_heads, default=0),
        "causal": graph.causal,
        "residual_weights": list(graph.residual_weights),
        "carried": [[layer + 1, position] for layer, position in carried],
        "image": _image(explanation.image),
        "flow_rows": rows,
        "chunks": {key: {"shape": shape, "dtype": "float16"} for key, shape in shapes.items()},
    }


def unmixed_layers(graph: AttentionGraph) -> list[int]:
    """The layers, from 1, whose weights are more than attention with the residual mixed in.

    Of those the viewer is given the weights as well, since it cannot work them out.
    """
    attention, weights = to_numpy(graph.attention), to_numpy(graph.weights)
    diagonal = np.arange(graph.n_tokens)
    found = []
    for i, residual in enumerate(graph.residual_weights):
        mixed = (1 - residual) * attention[i]
        mixed[diagonal, diagonal] += residual * (attention[i].sum(-1) > 0)
        if graph.carried is not None:
            mixed[graph.carried[i]] = np.eye(graph.n_tokens)[graph.carried[i]]
        if np.abs(mixed - weights[i]).max() > ROUNDING:
            found.append(i + 1)
    return found


def _prediction(prediction: Prediction | None) -> dict[str, Any] | None:
    if prediction is None:
        return None
    return {
        "kind": prediction.kind,
        "target": _outcome(prediction.target),
        "top": [_outcome(outcome) for outcome in prediction.top],
    }


def _outcome(outcome: Outcome) -> dict[str, Any]:
    """JSON has no way to write what a broken model may give for a probability."""
    known = isfinite(outcome.probability)
    return {"label": outcome.label, "probability": outcome.probability if known else None}


def _image(image: ImageGrid | None) -> dict[str, Any] | None:
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
