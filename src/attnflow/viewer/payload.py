"""The data that the viewer reads: a JSON header, and float16 arrays ("chunks") by name.

`docs/viewer.md` documents the names and shapes. Nothing here knows whether the viewer runs in a
notebook, a file or a web page; `notebook`, `page` and `server` deliver the data.
"""

import json
from base64 import b64encode
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from math import isfinite
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from attnflow.arrays import to_numpy
from attnflow.edges.registry import EDGES
from attnflow.errors import InputError, SelectionError, check_type
from attnflow.explanation import Explanation, ImageGrid, Outcome, Prediction
from attnflow.graph import AttentionGraph
from attnflow.methods.registry import METHODS
from attnflow.progress import Progress
from attnflow.selection import resolve_layer, resolve_position

FORMAT = 1  # version of the header
PAGE_METHODS = ("raw", "rollout", "flow")  # implemented by the page itself, in viewer/src
# Up to this many pairs of positions and tokens over all layers (12 layers of 128 tokens, about two
# seconds of flow), scores of all positions are computed; beyond, those of the explained position.
FLOW_PAIRS = 12 * 128 * 128
ROUNDING = 1e-5  # of float32, in which the residual connection may have been mixed in


@dataclass(frozen=True)
class MethodInfo:
    """A registered method, as the header lists it.

    computed: "page" if the page computes it from other chunks, "data" if its scores are chunks.
    """

    name: str
    title: str
    summary: str
    computed: Literal["page", "data"]


@dataclass(frozen=True)
class Chunk:
    """An array of the payload.

    example: the index of its example. layer: from 1. method: only for scores of a method.
    """

    example: int
    kind: Literal["attention", "weights", "heads", "scores"]
    layer: int
    shape: tuple[int, ...]
    method: str = ""

    @property
    def key(self) -> str:
        """The name of the array: example, kind and layer, and the method of scores but flow's.

        >>> Chunk(0, "attention", 2, (3, 3)).key, Chunk(1, "scores", 2, (3, 3), "mine").key
        ('0/attention/2', '1/scores/mine/2')
        """
        if self.method == "flow":
            return f"{self.example}/flow/{self.layer}"
        kind = f"{self.kind}/{self.method}" if self.method else self.kind
        return f"{self.example}/{kind}/{self.layer}"


@dataclass(frozen=True, eq=False)
class Payload:
    """Explanations in the form that the viewer reads.

    examples: one explanation, or several to compare. title: of the page.
    methods: the methods that were registered when the payload was made.
    """

    examples: tuple[Explanation, ...]
    title: str
    methods: tuple[MethodInfo, ...]

    def header(self) -> dict[str, Any]:
        """Everything but the arrays, ready for JSON."""
        names = name_examples(self.examples)
        examples = [
            {"name": name, **_describe_example(explanation), "chunks": self._describe_chunks(index)}
            for index, (name, explanation) in enumerate(zip(names, self.examples, strict=True))
        ]
        return {
            "format": FORMAT,
            "title": self.title,
            "methods": [asdict(method) for method in self.methods],
            "examples": examples,
        }

    def header_json(self) -> str:
        """The header as JSON in ASCII: tokens may hold lone surrogates, which UTF-8 cannot."""
        return json.dumps(self.header(), allow_nan=False, separators=(",", ":"))

    @cached_property
    def chunks(self) -> dict[str, Chunk]:
        """All arrays by name."""
        return {
            chunk.key: chunk
            for index, explanation in enumerate(self.examples)
            for chunk in _list_chunks(index, explanation, self.stored_methods)
        }

    @property
    def stored_methods(self) -> tuple[str, ...]:
        """The methods whose scores are chunks: flow, which is slow, and those of plugins."""
        return ("flow", *(method.name for method in self.methods if method.computed == "data"))

    def chunk(self, key: str) -> bytes:
        """The array of a name: float16, little-endian, in C order.

        Raises SelectionError if the header does not list the name.
        """
        chunk = self.chunks.get(key)
        if chunk is None:
            raise SelectionError(
                f"there is no array {key[:40]!r}",
                expected="a name that the header lists, such as '0/attention/1'",
                fix="Request one of those.",
            )
        return np.ascontiguousarray(self._array(chunk), dtype="<f2").tobytes()

    def scores(
        self, example: int, method: str, progress: Progress | None = None
    ) -> NDArray[np.floating]:
        """The scores of a method, [layers, rows, tokens]; computed once.

        The rows are all positions, or those that `flow_rows` lists.
        """
        explanation = self.examples[example]
        rows = flow_rows(explanation)
        positions = range(len(explanation.tokens)) if rows is None else rows
        return explanation.attribute(method, positions=positions, progress=progress).to_numpy()

    def flow(self, example: int, position: int, layer: int) -> NDArray[np.float32]:
        """The flow of any position at a layer, counted from 1, to each token: [tokens].

        Raises SelectionError if there is no such example, position or layer.
        """
        if not 0 <= example < len(self.examples):
            raise SelectionError(
                f"there is no example {example}",
                expected=f"0 to {len(self.examples) - 1}",
                fix="Request one of these.",
            )
        explanation = self.examples[example]
        layer = resolve_layer(explanation.graph.n_layers, layer)
        position = resolve_position(explanation.tokens, len(explanation.tokens), position)
        rows = flow_rows(explanation)
        if rows is None or position in rows:
            scores = self.scores(example, "flow")
            row = scores[layer - 1, position if rows is None else rows.index(position)]
        else:
            row = explanation.flow(layers=layer, positions=position).to_numpy()[0, 0]
        return np.ascontiguousarray(row, dtype="<f4")

    def compute(self, progress: Progress | None = None) -> None:
        """Compute all scores that chunks are made of.

        progress: called with pairs of positions and tokens done, and pairs in total.
        """
        sizes = [_n_pairs(explanation) for explanation in self.examples]
        total = sum(sizes) * len(self.stored_methods)
        finished = 0
        for index, size in enumerate(sizes):
            for method in self.stored_methods:
                self.scores(index, method, _part_of(progress, finished, size, total))
                finished += size
                if progress is not None:
                    progress(finished, total)

    def n_bytes(self) -> int:
        """The memory that the arrays take."""
        return sum(_n_bytes(explanation) for explanation in self.examples)

    def _array(self, chunk: Chunk) -> Any:
        explanation = self.examples[chunk.example]
        if chunk.kind == "scores":
            layers: Any = self.scores(chunk.example, chunk.method)
        elif chunk.kind == "heads" and explanation.heads is not None:
            layers = explanation.heads.layers
        else:
            graph = explanation.graph
            layers = graph.attention if chunk.kind == "attention" else graph.weights
        return to_numpy(layers[chunk.layer - 1])

    def _describe_chunks(self, example: int) -> dict[str, Any]:
        return {
            key: {"shape": list(chunk.shape), "dtype": "float16"}
            for key, chunk in self.chunks.items()
            if chunk.example == example
        }


def make_payload(explanations: Sequence[Explanation], *, title: str | None = None) -> Payload:
    """Prepare explanations for the viewer, with their arrays in NumPy.

    title: the text of the first explanation by default.
    Raises InputError if there are none, or if one is not an Explanation.
    """
    fix = "Make one: attnflow.explain(text)."
    if not explanations:
        raise InputError("got no explanation", expected="at least one", fix=fix)
    for explanation in explanations:
        check_type(explanation, Explanation, fix)
    if title is None:
        title = shorten(explanations[0].text or " ".join(explanations[0].tokens), 80)
    methods = tuple(
        MethodInfo(
            method.name,
            method.title,
            method.summary,
            "page" if method.name in PAGE_METHODS else "data",
        )
        for method in METHODS
        if method.default
    )
    return Payload(tuple(explanation.on_host() for explanation in explanations), title, methods)


def flow_rows(explanation: Explanation) -> list[int] | None:
    """The positions whose scores are stored in chunks; None for all positions."""
    n = len(explanation.tokens)
    return None if explanation.graph.n_layers * n * n <= FLOW_PAIRS else [explanation.position]


def name_examples(explanations: Sequence[Explanation]) -> list[str]:
    """A name for each example: by model, by text, or by both, depending on what differs."""
    models = []
    for explanation in explanations:
        n = explanation.graph.n_layers
        layers = f"{n} layer{'' if n == 1 else 's'}"
        models.append(f"{explanation.model} · {layers}" if explanation.model else layers)
    texts = [
        shorten(explanation.text or " ".join(explanation.tokens), 40)
        for explanation in explanations
    ]
    if len(models) == 1 or len(set(texts)) == 1:
        return models
    if len(set(models)) == 1:
        return texts
    return [f"{text} · {model}" for text, model in zip(texts, models, strict=True)]


def shorten(text: str, length: int) -> str:
    """Cut a text to a number of characters, the last of which is then an ellipsis.

    >>> shorten("attention", 5)
    'atte…'
    """
    return text if len(text) <= length else f"{text[: length - 1]}…"


def _list_chunks(index: int, explanation: Explanation, methods: Sequence[str]) -> Iterator[Chunk]:
    """The arrays of one example. methods: those whose scores are stored."""
    graph, n = explanation.graph, len(explanation.tokens)
    rows = flow_rows(explanation)
    n_rows = n if rows is None else len(rows)
    layers = range(1, graph.n_layers + 1)
    yield from (Chunk(index, "attention", layer, (n, n)) for layer in layers)
    for method in methods:
        yield from (Chunk(index, "scores", layer, (n_rows, n), method) for layer in layers)
    yield from (Chunk(index, "weights", layer, (n, n)) for layer in _unmixed_layers(graph))
    for layer, n_heads in enumerate(_heads_per_layer(explanation), start=1):
        yield Chunk(index, "heads", layer, (n_heads, n, n))


def _unmixed_layers(graph: AttentionGraph) -> list[int]:
    """The layers, from 1, whose weights are not attention with the residual connection mixed in.

    The page cannot compute these weights from the attention, so they become chunks.
    """
    attention, weights = to_numpy(graph.attention), to_numpy(graph.weights)
    if graph.residual_weights is None:
        return list(range(1, graph.n_layers + 1))
    diagonal = np.arange(graph.n_tokens)
    unmixed = []
    for i, residual in enumerate(graph.residual_weights):
        mixed = (1 - residual) * attention[i]
        mixed[diagonal, diagonal] += residual * (attention[i].sum(-1) > 0)
        if graph.carried is not None:
            mixed[graph.carried[i]] = np.eye(graph.n_tokens)[graph.carried[i]]
        if np.abs(mixed - weights[i]).max() > ROUNDING:
            unmixed.append(i + 1)
    return unmixed


def _heads_per_layer(explanation: Explanation) -> tuple[int, ...]:
    return () if explanation.heads is None else explanation.heads.n_heads


def _describe_example(explanation: Explanation) -> dict[str, Any]:
    """The header of an example, without its name and chunks."""
    graph, words = explanation.graph, explanation.words
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
        "prediction": _describe_prediction(explanation.prediction),
        "n_layers": graph.n_layers,
        "n_heads": max(_heads_per_layer(explanation), default=0),
        "causal": graph.causal,
        "edges": _describe_edges(graph),
        "heads": graph.settings.get("heads"),
        "residual_weights": list(graph.residual_weights or ()),
        "carried": [[layer + 1, position] for layer, position in carried],
        "image": _describe_image(explanation.image),
        "flow_rows": flow_rows(explanation),
    }


def _describe_edges(graph: AttentionGraph) -> dict[str, str]:
    """The edge weighting of the graph; plain attention is not recorded in its settings."""
    name = str(graph.settings.get("edges", "attention"))
    try:
        title = EDGES[name].title
    except SelectionError:  # made with a plugin that is not installed here
        title = name
    return {"name": name, "title": title}


def _describe_prediction(prediction: Prediction | None) -> dict[str, Any] | None:
    if prediction is None:
        return None
    return {
        "kind": prediction.kind,
        "target": _describe_outcome(prediction.target),
        "top": [_describe_outcome(outcome) for outcome in prediction.top],
    }


def _describe_outcome(outcome: Outcome) -> dict[str, Any]:
    """Label and probability; None for NaN and infinity, which JSON lacks."""
    probability = outcome.probability if isfinite(outcome.probability) else None
    return {"label": outcome.label, "probability": probability}


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


def _n_pairs(explanation: Explanation) -> int:
    """The number of scores that one method stores for an example."""
    n, rows = len(explanation.tokens), flow_rows(explanation)
    return explanation.graph.n_layers * n * (n if rows is None else len(rows))


def _part_of(progress: Progress | None, before: int, size: int, total: int) -> Progress | None:
    """A callback for a part of the work: `size` of `total` steps, after `before` steps."""
    if progress is None:
        return None
    return lambda done, steps: progress(before + size * done // max(steps, 1), total)


def _n_bytes(explanation: Explanation) -> int:
    graph, heads = explanation.graph, explanation.heads
    arrays = [graph.weights, graph.attention, *(() if heads is None else heads.layers)]
    arrays += [attribution.scores for attribution in explanation.computed]
    image = 0 if explanation.image is None else len(explanation.image.png)
    return image + sum(to_numpy(array).nbytes for array in arrays)
