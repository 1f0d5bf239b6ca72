"""The data that the viewer reads: a JSON header, and "chunks" by name: arrays, and notes in JSON.

`docs/viewer.md` documents the names and shapes. Nothing here knows whether the viewer runs in a
notebook, a file or a web page; `notebook`, `page` and `server` deliver the data.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from typing import Any, Literal, Unpack

import numpy as np
from numpy.typing import NDArray

from attnflow.arrays import to_numpy
from attnflow.attribution import Attribution, Normalize, Row, Special, apply_special
from attnflow.errors import InputError, SelectionError, check_type
from attnflow.explanation import Explanation, ViewOptions
from attnflow.graph import AttentionGraph
from attnflow.methods.registry import METHODS
from attnflow.notes import explanation_notes
from attnflow.progress import Progress
from attnflow.selection import resolve_layer, resolve_position
from attnflow.viewer.compression import BYTES, encode_log, rounding_of
from attnflow.viewer.header import (
    PAGE_METHODS,
    MethodInfo,
    describe_example,
    heads_per_layer,
    list_methods,
    name_examples,
    name_page,
    name_text,
    opening_state,
    shorten,
    stored_layers,
)

FORMAT = 1  # version of the header
# Up to this many pairs of positions and tokens over all layers (12 layers of 128 tokens, about two
# seconds of flow), scores of all positions are computed; beyond, those of the explained position.
FLOW_PAIRS = 12 * 128 * 128
ROUNDING = 1e-5  # of float32, in which the residual connection may have been mixed in


@dataclass(frozen=True)
class Chunk:
    """An array of the payload, or the notes of an example.

    example: the index of its example. layer: from 1; 0 for notes. method: only for scores of a
    method. shape: of the array; empty for notes.
    """

    example: int
    kind: Literal["attention", "weights", "heads", "scores", "normalized", "notes"]
    layer: int
    shape: tuple[int, ...]
    method: str = ""

    @property
    def key(self) -> str:
        """The name of the array: example, kind or method, and layer.

        >>> Chunk(0, "attention", 2, (3, 3)).key, Chunk(1, "scores", 2, (3, 3), "mine").key
        ('0/attention/2', '1/scores/mine/2')
        """
        if self.kind == "notes":
            return f"{self.example}/notes"
        if self.method in PAGE_METHODS and self.kind == "scores":
            return f"{self.example}/{self.method}/{self.layer}"
        kind = f"{self.kind}/{self.method}" if self.method else self.kind
        return f"{self.example}/{kind}/{self.layer}"


@dataclass(frozen=True, eq=False)
class Payload:
    """Explanations in the form that the viewer reads.

    examples: one explanation, or several to compare. title: the heading. page_title: of the
    browser window.
    methods: the methods that were registered when the payload was made.
    state: what the viewer shows when it opens, as far as options say so.
    checks: for some methods, a sentence on how well they did on this model.
    levels: per power of two, to which matrices of weights are rounded; None for float16. Scores of
    the explained position are then stored for all methods, so that they are not rounded.
    """

    examples: tuple[Explanation, ...]
    title: str
    methods: tuple[MethodInfo, ...]
    page_title: str = ""
    state: Mapping[str, Any] = field(default_factory=dict)
    checks: Mapping[str, str] = field(default_factory=dict)
    levels: int | None = None

    def header(self) -> dict[str, Any]:
        """Everything but the arrays, ready for JSON."""
        names = name_examples(self.examples)
        examples = [
            {
                "name": name,
                **describe_example(explanation),
                "flow_rows": flow_rows(explanation),
                "normalized_rows": normalized_rows(explanation),
                "rounding": None if self.levels is None else rounding_of(self.levels),
                "chunks": self._describe_chunks(index),
            }
            for index, (name, explanation) in enumerate(zip(names, self.examples, strict=True))
        ]
        return {
            "format": FORMAT,
            "title": self.title,
            "page_title": self.page_title,
            "state": dict(self.state),
            "checks": dict(self.checks),
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
            for chunk in _list_chunks(index, explanation, self)
        }

    @property
    def stored_methods(self) -> tuple[str, ...]:
        """The methods whose scores are chunks: flow, which is slow, and those of plugins."""
        in_page = ("flow",) if self.levels is None else PAGE_METHODS
        return (*in_page, *(method.name for method in self.methods if method.computed == "data"))

    def chunk(self, key: str) -> bytes:
        """The array of a name: float16, little-endian, in C order; notes are JSON in ASCII.

        With `levels`, matrices of weights are as `compression.encode_log` writes them.

        Raises SelectionError if the header does not list the name.
        """
        chunk = self.chunks.get(key)
        if chunk is None:
            raise SelectionError(
                f"there is no array {key[:40]!r}",
                expected="a name that the header lists, such as '0/attention/1'",
                fix="Request one of those.",
            )
        if chunk.kind == "notes":
            return json.dumps(self.notes(chunk.example), separators=(",", ":")).encode("ascii")
        if self._is_rounded(chunk) and self.levels is not None:
            return encode_log(self._array(chunk), self.levels)
        return np.ascontiguousarray(self._array(chunk), dtype="<f2").tobytes()

    def _is_rounded(self, chunk: Chunk) -> bool:
        """Whether a chunk is on a logarithmic scale."""
        return self.levels is not None and chunk.kind in ("attention", "weights")

    def scores(
        self, example: int, method: str, progress: Progress | None = None
    ) -> NDArray[np.floating]:
        """The scores of a method, [layers, rows, tokens]; computed once.

        The layers are those of `stored_layers`. The rows are all positions, or those that
        `flow_rows` lists; then that of the whole answer, or of all explained positions together, if
        `explains_set`.
        """
        return _stored_rows(self.examples[example], method, flow_rows, progress=progress)

    def normalized(self, example: int, method: str) -> NDArray[np.floating]:
        """The scores of a method, normalized by the receptive field; computed once.

        The rows are as in `scores`, for the positions that `normalized_rows` lists.
        """
        explanation = self.examples[example]
        return _stored_rows(explanation, method, normalized_rows, normalize="receptive_field")

    def notes(self, example: int) -> dict[str, Any]:
        """Notes on the explained position of an example, for each method, layer and option.

        Returns "texts", and in "rows" the indices of texts for keys such as
        "rollout/2/none/tokens/show": method, layer, normalization, tokens or words, and whether
        special tokens are shown. Rows without notes are left out.
        """
        texts: dict[str, int] = {}
        rows: dict[str, list[int]] = {}
        explanation = self.examples[example]
        for method in self.methods:
            for key, attribution in _noted(explanation, method.name):
                for layer in attribution.layers:
                    found = explanation_notes(explanation, attribution, layer=layer)
                    indices = [texts.setdefault(text, len(texts)) for text in found]
                    if indices:
                        rows[f"{method.name}/{layer}/{key}"] = indices
        return {"texts": list(texts), "rows": rows}

    def flow(self, example: int, position: int, layer: int, count: int = 1) -> NDArray[np.float32]:
        """The flow of any position at a layer, counted from 1, to each token: [tokens].

        count: the number of positions, from this one on, that are one source.
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
        if count > 1:
            sources = range(position, min(position + count, len(explanation.tokens)))
            row = group_flow_row(explanation.graph, sources, layer)
        elif layer in stored_layers(explanation, "flow") and (rows is None or position in rows):
            scores = self.scores(example, "flow")
            place = stored_layers(explanation, "flow").index(layer)
            row = scores[place, position if rows is None else rows.index(position)]
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
            for info in self.methods:  # much faster than flow on the graph itself
                self.normalized(index, info.name)

    def n_bytes(self) -> int:
        """The memory that the arrays take."""
        return sum(_n_bytes(explanation) for explanation in self.examples)

    def _array(self, chunk: Chunk) -> Any:
        explanation = self.examples[chunk.example]
        if chunk.kind in ("normalized", "scores"):
            compute = self.normalized if chunk.kind == "normalized" else self.scores
            place = stored_layers(explanation, chunk.method).index(chunk.layer)
            return compute(chunk.example, chunk.method)[place]
        layers: Any
        if chunk.kind == "heads" and explanation.heads is not None:
            layers = explanation.heads.layers
        else:
            graph = explanation.graph
            layers = graph.attention if chunk.kind == "attention" else graph.weights
        return to_numpy(layers[chunk.layer - 1])

    def dtype(self, chunk: Chunk) -> str:
        """The type of a chunk: "float16", "json", or such as "log128" with 128 levels."""
        if chunk.kind == "notes":
            return "json"
        return f"log{self.levels}" if self._is_rounded(chunk) else "float16"

    def width(self, chunk: Chunk) -> int:
        """The number of bytes of a number in a chunk; 1 for text."""
        few = self.levels is not None and self.levels <= BYTES and self._is_rounded(chunk)
        return 1 if few or chunk.kind == "notes" else 2

    def _describe_chunks(self, example: int) -> dict[str, Any]:
        return {
            key: {"shape": list(chunk.shape), "dtype": self.dtype(chunk)}
            for key, chunk in self.chunks.items()
            if chunk.example == example
        }


def make_payload(
    explanations: Sequence[Explanation], *, title: str | None = None, **view: Unpack[ViewOptions]
) -> Payload:
    """Prepare explanations for the viewer, with their arrays in NumPy.

    title: the text of the first explanation by default; the title of the window also names models
    and edges then. view: what the viewer shows when it opens, see ViewOptions.
    Raises InputError if there are none, or if one is not an Explanation.
    """
    fix = "Make one: attnflow.explain(text)."
    if not explanations:
        raise InputError("got no explanation", expected="at least one", fix=fix)
    for explanation in explanations:
        check_type(explanation, Explanation, fix)
    examples = tuple(explanation.on_host() for explanation in explanations)
    heading = title
    if heading is None:
        heading = shorten(name_text(explanations[0]), 80)
    page_title = name_page(examples, heading) if title is None else title
    methods = list_methods(examples, view.get("method"))
    checks = {name: str(check) for name, check in explanations[0].checks.items()}
    return Payload(examples, heading, methods, page_title, opening_state(examples, view), checks)


def _noted(explanation: Explanation, method: str) -> Iterator[tuple[str, Attribution]]:
    """Scores of the explained position with the options of the viewer that have notes."""
    merges = len(explanation.words.texts) < len(explanation.tokens)
    layers = stored_layers(explanation, method)
    options: list[tuple[Normalize, bool]] = [("none", False), ("receptive_field", False)]
    if merges and len(layers) == explanation.graph.n_layers:
        options.append(("none", True))
    for normalize, words in options:
        result = explanation.attribute(method, layers=layers, normalize=normalize, words=words)
        special = explanation.words.special if words else explanation.special
        shown: tuple[Special, ...] = (
            ("show", "hide") if 0 < sum(special) < len(special) else ("show",)
        )
        for choice in shown:
            key = f"{normalize}/{'words' if words else 'tokens'}/{choice}"
            yield key, apply_special(result, choice, special)


def group_flow_row(graph: AttentionGraph, positions: Sequence[int], layer: int) -> Any:
    """The flow of a set of positions at a layer to each token, divided by their number."""
    rows = (Row("", tuple(positions)),)
    result = METHODS["flow"].attribute(graph, layers=(layer,), rows=rows)
    return result.to_numpy()[0, 0]


def explains_set(explanation: Explanation) -> bool:
    """Whether several positions are explained together: those of an answer, or of a mean."""
    return explanation.answer is not None or len(explanation.positions) > 1


def _stored_rows(
    explanation: Explanation, method: str, listed: Any, **options: Any
) -> NDArray[np.floating]:
    """The scores of all positions, or of the listed ones; then those of the explained set."""
    rows = listed(explanation)
    positions = range(len(explanation.tokens)) if rows is None else rows
    options["layers"] = stored_layers(explanation, method)
    scores = explanation.attribute(method, positions=positions, **options).to_numpy()
    if not explains_set(explanation):
        return scores
    whole = explanation.attribute(method, **options).to_numpy()
    return np.concatenate([scores, whole], axis=1)


def flow_rows(explanation: Explanation) -> list[int] | None:
    """The positions whose scores are stored in chunks; None for all positions.

    Of long texts, those that predict the answer, or if that is long too, the explained one.
    """
    n, n_layers, answer = len(explanation.tokens), explanation.graph.n_layers, explanation.answer
    if n_layers * n * n <= FLOW_PAIRS:
        return None
    if answer is not None and n_layers * n * len(answer) <= FLOW_PAIRS:
        return list(answer.positions)
    return [explanation.position]


def normalized_rows(explanation: Explanation) -> list[int] | None:
    """The positions whose normalized scores are stored in chunks; None for all positions.

    They are stored for all methods, and take more room than flow.
    """
    n = len(explanation.tokens)
    few = 4 * explanation.graph.n_layers * n * n <= FLOW_PAIRS
    return None if few else [explanation.position]


def _list_chunks(index: int, explanation: Explanation, payload: Payload) -> Iterator[Chunk]:
    """The arrays of one example, and its notes."""
    graph, n = explanation.graph, len(explanation.tokens)
    n_rows, n_normalized = (
        (n if rows is None else len(rows)) + explains_set(explanation)
        for rows in (flow_rows(explanation), normalized_rows(explanation))
    )
    layers = range(1, graph.n_layers + 1)
    yield from (Chunk(index, "attention", layer, (n, n)) for layer in layers)
    for method in payload.stored_methods:
        stored = stored_layers(explanation, method)
        yield from (Chunk(index, "scores", layer, (n_rows, n), method) for layer in stored)
    for info in payload.methods:
        shape, stored = (n_normalized, n), stored_layers(explanation, info.name)
        yield from (Chunk(index, "normalized", layer, shape, info.name) for layer in stored)
    yield Chunk(index, "notes", 0, ())
    yield from (Chunk(index, "weights", layer, (n, n)) for layer in _unmixed_layers(graph))
    for layer, n_heads in enumerate(heads_per_layer(explanation), start=1):
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
