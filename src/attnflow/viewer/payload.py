"""What the viewer is given: a header in JSON, and arrays of float16 by name, made when asked for.

The names and shapes are those of `docs/viewer.md`. Nothing here knows of notebooks, files or
servers; those are the hosts.

Which rows of flow the viewer is given: all of them, or those of the explained position.

An explanation in JSON, as the viewer's header has it: all but the arrays.
"""

import json
from base64 import b64encode
from collections.abc import Sequence
from dataclasses import dataclass
from math import isfinite
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnflow.arrays import to_numpy
from attnflow.attribution import Attribution
from attnflow.errors import InputError, SelectionError, check_type
from attnflow.explanation import Explanation, ImageGrid, Progress
from attnflow.graph import AttentionGraph
from attnflow.models.prediction import Outcome, Prediction
from attnflow.selection import resolve_layer, resolve_position

# Flow from all positions at all layers is computed up to this many pairs: 12 layers of 128 tokens,
# which take two seconds or so. Beyond, it is that of the explained position.
FLOW_PAIRS = 12 * 128 * 128


def flow_rows(explanation: Explanation) -> list[int] | None:
    """The positions whose flow is given; None for all of them."""
    n = len(explanation.tokens)
    return None if explanation.graph.n_layers * n * n <= FLOW_PAIRS else [explanation.position]


def flow_of(explanation: Explanation, progress: Progress | None = None) -> Attribution:
    """The flow from those positions at all layers; computed once."""
    rows = flow_rows(explanation)
    positions = range(len(explanation.tokens)) if rows is None else rows
    return explanation.flow(positions=positions, progress=progress)


def n_pairs(explanation: Explanation) -> int:
    """How many flows those are."""
    n, rows = len(explanation.tokens), flow_rows(explanation)
    return explanation.graph.n_layers * n * (n if rows is None else len(rows))


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


FORMAT = 1
NAMES = ("attention", "flow", "heads", "weights")


@dataclass(frozen=True, eq=False)
class Payload:
    """Explanations as the viewer reads them.

    examples: one, or several to compare. title: what the page is called.
    """

    examples: tuple[Explanation, ...]
    title: str

    def header(self) -> dict[str, Any]:
        """All but the arrays, as JSON can write it."""
        names = name_examples(self.examples)
        described = [
            {"name": name, **describe(i, one)}
            for i, (name, one) in enumerate(zip(names, self.examples, strict=True))
        ]
        return {"format": FORMAT, "title": self.title, "examples": described}

    def header_json(self) -> str:
        """The header as JSON in ASCII, which holds half surrogate pairs that UTF-8 cannot."""
        return json.dumps(self.header(), allow_nan=False, separators=(",", ":"))

    def chunk_keys(self) -> list[str]:
        """The names of all arrays."""
        return [key for one in self.header()["examples"] for key in one["chunks"]]

    def chunk(self, key: str) -> bytes:
        """One array, float16 in C order, least byte first.

        Raises SelectionError if there is none of this name.
        """
        example, name, layer = self._find(key)
        if name == "attention":
            array = to_numpy(example.graph.attention)[layer - 1]
        elif name == "weights":
            array = to_numpy(example.graph.weights)[layer - 1]
        elif name == "heads" and example.heads is not None:
            array = to_numpy(example.heads.layers[layer - 1])
        else:
            array = flow_of(example).to_numpy()[layer - 1]
        return np.ascontiguousarray(array, dtype="<f2").tobytes()

    def flow(self, example: int, position: int, layer: int) -> NDArray[np.float32]:
        """The flow of a position at a layer, counted from 1, to each token, [tokens].

        Raises SelectionError if there is no such example, position or layer.
        """
        if not 0 <= example < len(self.examples):
            raise _no_example(example, len(self.examples))
        one = self.examples[example]
        number = resolve_layer(one.graph.n_layers, layer)
        place = resolve_position(one.tokens, len(one.tokens), position)
        rows = flow_rows(one)
        if rows is None or place in rows:
            row = flow_of(one).row(position=place, layer=number)
        else:
            row = one.flow(layers=number, positions=place).row(position=place, layer=number)
        return np.ascontiguousarray(row, dtype="<f4")

    def compute(self, progress: Progress | None = None) -> None:
        """Compute the flows that arrays are made of. progress: pairs done, pairs in all."""
        sizes = [n_pairs(one) for one in self.examples]
        for i, one in enumerate(self.examples):
            before = sum(sizes[:i])
            report = None
            if progress is not None:
                # Bound now, since `before` changes.
                def report(done: int, _: int, before: int = before) -> None:
                    progress(before + done, sum(sizes))

            flow_of(one, report)

    def n_bytes(self) -> int:
        """How much memory the arrays take."""
        return sum(_n_bytes(one) for one in self.examples)

    def _find(self, key: str) -> tuple[Explanation, str, int]:
        parts = key.split("/")
        numbers = [part for part in (parts[0], parts[-1]) if part.isascii() and part.isdigit()]
        if len(parts) == 3 and len(numbers) == 2 and len(key) < 40 and parts[1] in NAMES:
            example, layer = int(parts[0]), int(parts[2])
            if example < len(self.examples):
                found = self.examples[example]
                kept = parts[1] != "heads" or found.heads is not None
                if kept and 1 <= layer <= found.graph.n_layers:
                    return found, parts[1], layer
        raise SelectionError(
            f"there is no array {key[:40]!r}",
            expected="one that the header names, such as '0/attention/1'",
            fix="Ask for one of those.",
        )


def make_payload(explanations: Sequence[Explanation], *, title: str | None = None) -> Payload:
    """Take explanations for the viewer, with their arrays on the host as NumPy.

    title: if not given, the text of the first.
    Raises InputError if there is none, or something else among them.
    """
    if not explanations:
        raise InputError(
            "no explanation was given",
            expected="at least one",
            fix="Make one: attnflow.explain(text).",
        )
    for one in explanations:
        check_type(one, Explanation, "Make one: attnflow.explain(text).")
    found = explanations[0].text or " ".join(explanations[0].tokens)
    shown = shorten(found, 80) if title is None else title
    return Payload(tuple(one.on_host() for one in explanations), shown)


def _n_bytes(explanation: Explanation) -> int:
    graph, heads = explanation.graph, explanation.heads
    arrays = [graph.weights, graph.attention, *(() if heads is None else heads.layers)]
    arrays += [attribution.scores for attribution in explanation.computed]
    image = 0 if explanation.image is None else len(explanation.image.png)
    return image + sum(to_numpy(array).nbytes for array in arrays)


def _no_example(example: int, n: int) -> SelectionError:
    return SelectionError(
        f"there is no example {example}",
        expected=f"0 to {n - 1}",
        fix="Ask for one of these.",
    )
