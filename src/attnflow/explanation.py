"""Explanation: what a model predicts for an input, and the attention graph to explain it by.

`attnflow.explain` and `attnflow.explain_image` create explanations. Nothing here runs a model:
methods are computed from the graph when they are first asked for, and cached.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from os import PathLike
from pathlib import Path
from typing import Any, Literal, TypeAlias, TypedDict, Unpack

from attnflow.arrays import to_numpy
from attnflow.attentions import Attentions
from attnflow.attribution import (
    Attribution,
    Normalize,
    Offsets,
    Row,
    Special,
    apply_special,
    check_marks,
    check_normalize,
    check_special,
    looks_special,
)
from attnflow.errors import (
    InputError,
    ShapeError,
    check_choice,
    check_count,
    check_function,
    check_type,
)
from attnflow.graph import AttentionGraph
from attnflow.head_merge import Heads
from attnflow.layers import ResidualWeight
from attnflow.methods.registry import METHODS
from attnflow.predictions import (
    WHOLE,
    Answer,
    Parts,
    Prediction,
    Segment,
    find_sentences,
    segment_units,
)
from attnflow.progress import Progress
from attnflow.selection import (
    Layers,
    Position,
    Positions,
    resolve_layers,
    resolve_position,
    resolve_position_sets,
    resolve_positions,
)
from attnflow.token_text import readable_tokens
from attnflow.units import (
    Units,
    find_words,
    group_by_spans,
    group_regions,
    name_spans,
)

# Whether to keep the attention of each head; "auto" keeps it if it is not too large.
KeepHeads: TypeAlias = Literal["auto"] | bool
# What scores are given for: tokens, words, sentences, segments, or spans of the text by name.
UnitsOption: TypeAlias = str | Units | Mapping[str, Any] | Sequence[Any]
UNITS = ("tokens", "words", "sentences", "segments")


class AttributeOptions(TypedDict, total=False):
    """The options of `Explanation.attribute`, for type checkers."""

    layers: Layers
    positions: Positions
    answer: Parts
    normalize: Normalize
    words: bool
    units: UnitsOption | None
    special: Special
    threads: int | None
    progress: Progress | None


class ViewOptions(TypedDict, total=False):
    """The options of `show` and `to_html`: what the viewer shows when it opens.

    method: by default rollout. layer: a number from 1, -1 for the last, which is the default.
    normalize, words, special: as in `Explanation.attribute`. units: "tokens", "words", "sentences"
    or "segments". answer: the part of the answer, as text, characters or a range of its tokens.
    top: show only the k best tokens.
    """

    method: str
    layer: int
    answer: Parts
    normalize: Normalize
    words: bool
    units: str
    special: Special
    top: int


@dataclass(frozen=True)
class ImageGrid:
    """An image split into patches, row by row.

    png: the image as displayed, a PNG file. rows, columns: the number of patches in each direction.
    first: the token index of the first patch; token first + row * columns + column is a patch.
    width, height: the size of the image in pixels.
    """

    png: bytes = field(repr=False)
    rows: int
    columns: int
    first: int
    width: int
    height: int


@dataclass(frozen=True, eq=False)
class Origin:
    """What was explained, as far as it is needed to ask the model again.

    data: the encoded text, or the image. model: as it was passed, so that a name does not keep a
    model in memory. companion: the tokenizer or image processor that was passed, if any.
    against: the class or token that the target was compared with.
    """

    data: Any
    model: Any
    companion: Any = None
    against: int | str | None = None


@dataclass(frozen=True, eq=False, repr=False)
class Explanation:
    """A prediction of a model, and how much each token reaches the position that makes it.

    text: the input. tokens: the input as the model sees it. special: whether each token is special.
    words: the tokens grouped into words. offsets: where each token is in the text, if known.
    position: the index of the explained position. positions: several positions that are explained
    together, such as those of a model that predicts from their mean.
    answer: what the model generated or was made to predict; it is part of text and tokens.
    segments: named parts of the input, such as the messages of a chat or the texts of a pair.
    prediction: the prediction at this position; None for a plain encoder.
    graph: the attention graph. image: the image, for a vision model.
    heads: the attention of each head, if it was kept. model: the name of the model.
    origin: the input and the model, for `faithfulness`; it is not saved.
    checks: the results of `faithfulness` so far, by method.
    """

    text: str
    tokens: tuple[str, ...]
    special: tuple[bool, ...]
    words: Units
    position: int
    prediction: Prediction | None
    graph: AttentionGraph
    image: ImageGrid | None = None
    heads: Attentions | None = None
    model: str = ""
    offsets: Offsets | None = None
    answer: Answer | None = None
    segments: tuple[Segment, ...] = ()
    positions: tuple[int, ...] = ()
    origin: Origin | None = None
    checks: dict[str, Any] = field(default_factory=dict)
    _cache: dict[Any, Attribution] = field(default_factory=dict, init=False)

    @classmethod
    def from_graph(
        cls,
        graph: AttentionGraph,
        *,
        position: Position | None = None,
        text: str = "",
        special: Sequence[bool] | None = None,
        heads: Attentions | None = None,
        model: str = "",
    ) -> "Explanation":
        """Create an explanation of a graph, without a model or a prediction.

        position: an index or the text of a token; by default the last token of a causal graph, and
        the first one otherwise.
        special: whether each token is special; by default those of a form like [CLS] or `<s>`.
        heads: the attention of each head, for the viewer.
        Raises ShapeError for a batch.

        >>> weights = [[[0.5, 0.5], [0.25, 0.75]]]
        >>> graph = AttentionGraph.from_weights(weights, tokens=["[CLS]", "key"])
        >>> Explanation.from_graph(graph).rollout().top(1)
        [('[CLS]', 0, 0.75)]
        """
        check_type(graph, AttentionGraph, "Create one: AttentionGraph.from_weights(weights).")
        if graph.weights.ndim != 3:
            raise ShapeError(
                f"the graph is a batch, {graph}",
                expected="one example",
                fix="Select one with graph.example(i).",
            )
        tokens = graph.tokens
        if special is None:
            special = [looks_special(token) for token in tokens]
        marks = check_marks(special, len(tokens))
        if position is None:
            position = len(tokens) - 1 if graph.causal else 0
        return cls(
            text=text,
            tokens=tokens,
            special=marks,
            words=find_words(tokens, special=marks, text=text),
            position=resolve_position(tokens, len(tokens), position),
            prediction=None,
            graph=graph,
            heads=heads,
            model=model,
        )

    @classmethod
    def from_attentions(
        cls,
        attentions: Attentions,
        *,
        position: Position | None = None,
        text: str = "",
        special: Sequence[bool] | None = None,
        heads: Heads = "mean",
        residual_weight: ResidualWeight = 0.5,
    ) -> "Explanation":
        """Create an explanation of attention weights, without a model or a prediction.

        position, text, special: as in `from_graph`. heads, residual_weight: as in
        AttentionGraph.from_attentions.

        >>> attentions = Attentions([[[0.5, 0.5], [0.25, 0.75]]], tokens=["[CLS]", "key"])
        >>> Explanation.from_attentions(attentions)
        Explanation(2 tokens, 1 layer, position 0 '[CLS]')
        """
        graph = AttentionGraph.from_attentions(
            attentions, heads=heads, residual_weight=residual_weight
        )
        return cls.from_graph(
            graph, position=position, text=text, special=special, heads=attentions
        )

    def attribute(  # noqa: PLR0913 - one argument for each option
        self,
        method: str,
        *,
        layers: Layers = None,
        positions: Positions = None,
        answer: Parts = None,
        normalize: Normalize = "none",
        words: bool = False,
        units: UnitsOption | None = None,
        special: Special = "show",
        threads: int | None = None,
        progress: Progress | None = None,
    ) -> Attribution:
        """Compute a registered method; scores [layers, positions, tokens].

        method: "raw", "rollout", "flow" or another registered name.
        layers: numbers from 1, -1 for the last; all by default.
        positions: indices or texts of tokens; the explained position by default. Use
        range(len(explanation.tokens)) for all. A list of lists has sets of positions: each is one
        row, as a part of an answer is.
        answer: which part of the answer to explain, if there is one and no positions are given:
        "whole" (the default), "tokens", "words" or "sentences" for a row each, a part of its text,
        or another part; see `Answer.rows`. Scores are averaged over the positions that predict a
        part; the flow of a part is one maximum flow. `top` ranks the tokens of the prompt.
        normalize: "none", "rows", or "receptive_field", which is meant for decoders.
        words: merge the tokens of each word. Scores are summed over the tokens attended to, and
        averaged over the attending tokens; the flow of a word is one maximum flow, see `flow`.
        Positions are then indices or texts of words.
        units: what to merge tokens into instead: "words", "sentences", "segments" (the messages of
        a chat, the texts of a pair), or parts of the text by name, such as {"claim": "the earth is
        flat", "source": (120, 260)}. Of an image, regions of patches by name: (first row, first
        column, last row, last column). Positions stay tokens.
        special: "show" special tokens such as [CLS], "hide" them (without rescaling the others),
        or "rank_out" (keep them, but exclude them from `top`).
        threads, progress: for methods that take them, such as flow.
        Raises SelectionError for an unknown method, layer or position.
        """
        registered = METHODS[method]
        check_choice("words", words, (False, True))
        check_normalize(normalize)
        check_special(special)
        check_function("progress", progress)
        check_count("threads", threads)
        merged = self.find_units("words" if words and units is None else units)
        rows = self._selected_rows(positions, answer)
        selected: tuple[int, ...] | None = None
        if not rows and units is not None:
            chosen = self._selected_positions(positions, words=False)
            rows = tuple(Row(self.tokens[i], (i,)) for i in chosen)
        elif not rows:
            selected = self._selected_positions(positions, words)
        numbers = None if layers is None else resolve_layers(self.graph.n_layers, layers)
        key = (method, numbers, normalize, selected, rows, merged)
        if key not in self._cache:
            result = registered.attribute(
                self.graph,
                layers=numbers,
                positions=selected,
                rows=rows,
                units=merged,
                normalize=normalize,
                threads=threads,
                progress=progress,
            )
            offsets = self.offsets if merged is None else merged.merge_offsets(self.offsets)
            self._cache[key] = self._unrank_answer(replace(result, offsets=offsets), merged)
        return apply_special(
            self._cache[key], special, self.special if merged is None else merged.special
        )

    def find_units(self, units: UnitsOption | None) -> Units | None:
        """Return the units of the text, as `attribute` takes them; None for tokens.

        Raises InputError for units that are not in the text.
        """
        if units is None or isinstance(units, Units):
            return units
        if isinstance(units, str):
            check_choice("units", units, UNITS)
            if units == "tokens":
                return None
            if units == "words":
                return self.words
        if isinstance(units, str) and units == "segments":
            return segment_units(self.segments, self.special)
        if self.image is not None and isinstance(units, Mapping):
            grid = (self.image.first, self.image.rows, self.image.columns)
            return group_regions(units, grid, special=self.special)
        if isinstance(units, str):  # sentences
            spans = find_sentences(self.text, self.segments, self.offsets, self.answer)
            names = [self.text[start:end] for start, end in spans]
        else:
            spans, names = name_spans(self.text, units)
        return group_by_spans(spans, names, special=self.special, offsets=self.offsets)

    def _selected_rows(self, positions: Positions, answer: Parts) -> tuple[Row, ...]:
        """The sets of positions to explain; none if single positions are."""
        if self.answer is None and answer is not None:
            raise InputError(
                "a part of the answer was selected, and there is no answer",
                expected="an explanation of generated text",
                fix="Call explain with generate=40 or continuation=...",
            )
        if positions is not None and answer is not None:
            raise InputError(
                "positions and a part of the answer were both selected",
                expected="one of them",
                fix="Leave out positions.",
            )
        if positions is not None:
            sets = resolve_position_sets(self.tokens, positions)
            return tuple(Row(" ".join(self.tokens[i] for i in row), row) for row in sets)
        if self.answer is not None:
            units = None
            if isinstance(answer, str) and answer in ("words", "sentences"):
                units = self.find_units(answer)
            return self.answer.rows(WHOLE if answer is None else answer, units)
        if len(self.positions) > 1:
            return (Row(f"{len(self.positions)} positions", self.positions),)
        return ()

    def _unrank_answer(self, attribution: Attribution, units: Units | None) -> Attribution:
        """Exclude the answer from `top`, if a part of the answer is explained."""
        if self.answer is None or not attribution.rows:
            return attribution
        own = set(self.answer.tokens)
        groups = units.groups if units is not None else [(i,) for i in range(len(self.tokens))]
        unranked = [i for i, group in enumerate(groups) if own >= set(group)]
        return replace(attribution, settings={**attribution.settings, "unranked": unranked})

    def raw(self, **options: Unpack[AttributeOptions]) -> Attribution:
        """Raw attention of the position to the layer below. Options: see `attribute`."""
        return self.attribute("raw", **options)

    def rollout(self, **options: Unpack[AttributeOptions]) -> Attribution:
        """Attention rollout from the position to the input. Options: see `attribute`."""
        return self.attribute("rollout", **options)

    def flow(self, **options: Unpack[AttributeOptions]) -> Attribution:
        """Maximum flow from the position to each input token. Options: see `attribute`.

        The flow to a word is one maximum flow into all of its tokens, not the sum of their flows.
        The flow from a word is one maximum flow out of its positions, divided by their number.
        """
        return self.attribute("flow", **options)

    def chain(
        self,
        method: str = "rollout",
        *,
        layer: int | str = -1,
        output_span: tuple[int, int] | None = None,
        reasoning_span: tuple[int, int] | None = None,
    ) -> Any:
        """Follow influence from a part of the answer through its reasoning back to the prompt.

        method, layer: whose scores of single tokens are the edges between tokens. layer "mean": raw
        attention averaged over all layers; method must be "raw".
        output_span: the first and last generated token to explain, counted from 0, both included;
        by default all. reasoning_span: the generated tokens that pass influence on; by default all
        before the output. Influence on other generated tokens ends there.
        Returns an `attnflow.chains.Chain`, whose `influence()`, `paths()` and `flow()` are
        attributions.
        Raises InputError without an answer, SelectionError for spans that the answer does not have.
        """
        from attnflow.chains import build_chain, read_chain_layer

        layers = read_chain_layer(method, layer)
        rows = self.attribute(method, layers=layers, answer="tokens").to_numpy().mean(axis=0)
        assert self.answer is not None  # `attribute` raises an error without one
        return build_chain(
            rows,
            self.answer,
            tokens=self.tokens,
            settings={**self.graph.settings, "method": method, "layer": layer},
            offsets=self.offsets,
            output_span=output_span,
            reasoning_span=reasoning_span,
        )

    def faithfulness(
        self,
        method: str = "rollout",
        *,
        model: Any = None,
        replacement: str | None = None,
        words: bool = False,
    ) -> Any:
        """Check on this text whether the prediction depends on the top tokens of a method.

        The model runs on the text without tokens, in the order of the scores, in random orders and
        in the order of other explainers. One text proves little; `attnflow evaluate` compares
        methods on a data set. Options: see `attnflow.study.check.check_methods`.
        Returns a `Check`; its text is one sentence. It is also shown by pages.

        >>> import attnflow
        >>> check = attnflow.explain("the keys to the old cabinet").faithfulness()
        >>> check.explainer, check.comprehensiveness > check.random
        ('rollout/attention', True)
        """
        from attnflow.study.check import check_methods

        options: dict[str, Any] = {"model": model, "replacement": replacement, "words": words}
        self.checks.update(check_methods(self, [method], **options))
        return self.checks[method]

    @property
    def computed(self) -> tuple[Attribution, ...]:
        """The attributions computed so far."""
        return tuple(self._cache.values())

    def on_host(self) -> "Explanation":
        """A copy with all arrays in NumPy, and without its origin, which may hold a model."""
        graph, heads = self.graph, self.heads
        if heads is not None:
            heads = Attentions([to_numpy(layer) for layer in heads.layers], heads.tokens)
        weights, attention = to_numpy(graph.weights), to_numpy(graph.attention)
        graph = replace(graph, weights=weights, attention=attention)
        copy = replace(self, graph=graph, heads=heads, origin=None)
        for key, result in self._cache.items():
            copy._cache[key] = replace(result, scores=to_numpy(result.scores))
        return copy

    def __getstate__(self) -> dict[str, Any]:
        """What is pickled: all but the origin, which may hold a model."""
        return {**self.__dict__, "origin": None}

    def show(self, *, title: str | None = None, **view: Unpack[ViewOptions]) -> Any:
        """Display the viewer in a notebook; see `attnflow.show`."""
        from attnflow.viewer import show

        return show(self, title=title, **view)

    def to_html(
        self,
        path: str | PathLike[str],
        *,
        title: str | None = None,
        keep_heads: KeepHeads = "auto",
        progress: Progress | None = None,
        **view: Unpack[ViewOptions],
    ) -> Path:
        """Write the viewer to one HTML file; see `attnflow.to_html`."""
        from attnflow.viewer import to_html

        return to_html(path, self, title=title, keep_heads=keep_heads, progress=progress, **view)

    def save(self, path: str | PathLike[str]) -> None:
        """Write the explanation to a safetensors file. Cached attributions are not saved."""
        from attnflow.explanation_file import write_explanation

        write_explanation(path, self.on_host())

    @classmethod
    def load(cls, path: str | PathLike[str]) -> "Explanation":
        """Load a file written by `save`, with NumPy arrays.

        Raises FileError if the file has another format.
        """
        from attnflow.explanation_file import read_explanation

        return read_explanation(path)

    def _selected_positions(self, positions: Positions, words: bool) -> tuple[int, ...]:
        """Indices of the selected positions, or of the selected words if `words` is set."""
        labels = self.words.texts if words else self.tokens
        if positions is None:
            positions = self.words.word_of(self.position) if words else self.position
        return resolve_positions(labels, len(labels), positions)

    def __repr__(self) -> str:
        prediction = ""
        if self.prediction is not None:
            target = self.prediction.target
            prediction = f", {self.prediction.kind} {target.label!r} {target.probability:.3f}"
        label = readable_tokens(self.tokens, text=self.text)[self.position]
        where = f"position {self.position} {label!r}"
        layers = f"{self.graph.n_layers} layer{'' if self.graph.n_layers == 1 else 's'}"
        return f"Explanation({len(self.tokens)} tokens, {layers}, {where}{prediction})"
