"""Explanation: what a model predicts for a text, with raw attention, rollout and flow at hand.

Made by `attnflow.explainer.explain`. Nothing here runs a model.

ImageGrid: the picture that a vision model saw, and which patch of it each token stands for.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from os import PathLike
from pathlib import Path
from typing import Any, Literal, TypeAlias

from attnflow.arrays import to_numpy
from attnflow.attentions import Attentions
from attnflow.attribution import (
    Attribution,
    Normalize,
    Special,
    check_normalize,
    check_special,
    looks_special,
    treat_special,
)
from attnflow.errors import ShapeError
from attnflow.graph import AttentionGraph
from attnflow.layers import Heads, ResidualWeight
from attnflow.models.prediction import Prediction
from attnflow.selection import Layers, Position, Positions, resolve_position, resolve_positions
from attnflow.words import Words, find_words, merge_words


@dataclass(frozen=True)
class ImageGrid:
    """A picture cut into patches, row by row.

    png: the picture as it is shown, a whole PNG file. rows, columns: how many patches it has.
    first: the index of the first patch's token; token first + row * columns + column is that patch.
    width, height: the size of the picture in pixels.
    """

    png: bytes = field(repr=False)
    rows: int
    columns: int
    first: int
    width: int
    height: int


# Whether to keep the attention of each head; "auto" where it is not too much.
KeepHeads: TypeAlias = Literal["auto"] | bool
# Called with how much is done, and how much there is in all.
Progress: TypeAlias = Callable[[int, int], None]


@dataclass(frozen=True, eq=False, repr=False)
class Explanation:
    """What a model predicts for a text, and how much each token reaches the position it is made at.

    text, tokens: what was given, and what the model saw. special: whether each token is special.
    words: the words that the tokens make up.
    position: the index of the position that is explained.
    prediction: what the model predicts there; None for a plain encoder.
    graph: the attention of all layers. image: the picture, if that is what the model saw.
    heads: the attention of each head, if it was kept. model: the name of the model.
    Attributions are computed when they are asked for, and kept.
    """

    text: str
    tokens: tuple[str, ...]
    special: tuple[bool, ...]
    words: Words
    position: int
    prediction: Prediction | None
    graph: AttentionGraph
    image: ImageGrid | None = None
    heads: Attentions | None = None
    model: str = ""
    _known: dict[Any, Attribution] = field(default_factory=dict, init=False)

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
        """An explanation of attention that is there already, without a model or a prediction.

        position: an index or the text of a token; if not given, the last token where no position
        sees a later one, and otherwise the first.
        special: whether each token is special; if not given, those that are written like [CLS]
        or `<s>`. heads, residual_weight: as in AttentionGraph.from_attentions.

        >>> attentions = Attentions([[[0.5, 0.5], [0.25, 0.75]]], tokens=["[CLS]", "key"])
        >>> Explanation.from_attentions(attentions)
        Explanation(2 tokens, 1 layer, position 0 '[CLS]')
        """
        graph = AttentionGraph.from_attentions(
            attentions, heads=heads, residual_weight=residual_weight
        )
        tokens = attentions.tokens
        if special is None:
            special = [looks_special(token) for token in tokens]
        elif len(special) != len(tokens):
            raise ShapeError(
                f"special has {len(special)} values for {len(tokens)} tokens",
                expected="as many",
                fix="Say of each token whether it is special.",
            )
        if position is None:
            position = len(tokens) - 1 if graph.causal else 0
        return cls(
            text=text,
            tokens=tokens,
            special=tuple(bool(one) for one in special),
            words=find_words(tokens, special=special, text=text),
            position=resolve_position(tokens, len(tokens), position),
            prediction=None,
            graph=graph,
            heads=attentions,
        )

    def raw(
        self,
        *,
        layers: Layers = None,
        positions: Positions = None,
        normalize: Normalize = "none",
        words: bool = False,
        special: Special = "show",
    ) -> Attribution:
        """The attention of the position to the layer below; scores [layers, positions, tokens].

        layers: numbers from 1, -1 for the last; all if not given.
        positions: indices or texts of tokens; the explained position if not given. All of them:
        positions=range(len(explanation.tokens)).
        normalize: "none", "rows", or "receptive_field", which is meant for decoders.
        words: whether to merge the tokens of each word: scores are summed over the tokens attended
        to and averaged over those attending. Positions are then indices or texts of words.
        special: "show" special tokens such as [CLS], "hide" them (their columns are dropped after
        normalizing, and the others not rescaled), or "rank_out" (kept, but left out of `top`).
        """
        options = {"layers": layers, "normalize": normalize}
        return self._attribute("raw", options, positions, words, special)

    def rollout(
        self,
        *,
        layers: Layers = None,
        positions: Positions = None,
        normalize: Normalize = "none",
        words: bool = False,
        special: Special = "show",
    ) -> Attribution:
        """The rollout of the position to the input. The options are those of `raw`."""
        options = {"layers": layers, "normalize": normalize}
        return self._attribute("rollout", options, positions, words, special)

    def flow(
        self,
        *,
        layers: Layers = None,
        positions: Positions = None,
        normalize: Normalize = "none",
        words: bool = False,
        special: Special = "show",
        **running: Any,
    ) -> Attribution:
        """The maximum flow of the position to each token of the input.

        The options are those of `raw`; running: `threads` and `progress` of `attnflow.flow`.
        The flow of a word is the sum of its tokens' flows, each of which had all edges to itself.
        """
        options = {"layers": layers, "normalize": normalize}
        return self._attribute("flow", options, positions, words, special, running)

    @property
    def computed(self) -> tuple[Attribution, ...]:
        """The attributions that were asked for so far."""
        return tuple(self._known.values())

    def on_host(self) -> "Explanation":
        """The same with all its arrays in NumPy."""
        graph, heads = self.graph, self.heads
        if heads is not None:
            heads = Attentions([to_numpy(layer) for layer in heads.layers], heads.tokens)
        weights, attention = to_numpy(graph.weights), to_numpy(graph.attention)
        moved = replace(
            self, graph=replace(graph, weights=weights, attention=attention), heads=heads
        )
        for key, known in self._known.items():
            moved._known[key] = replace(known, scores=to_numpy(known.scores))
        return moved

    def show(self, *, title: str | None = None) -> Any:
        """A view of it for notebooks, as in `attnflow.show`."""
        from attnflow.viewer import show

        return show(self, title=title)

    def to_html(
        self,
        path: str | PathLike[str],
        *,
        title: str | None = None,
        keep_heads: KeepHeads = "auto",
        progress: Progress | None = None,
    ) -> Path:
        """Write a page to look at it with any browser, as in `attnflow.to_html`."""
        from attnflow.viewer import to_html

        return to_html(path, self, title=title, keep_heads=keep_heads, progress=progress)

    def _attribute(
        self,
        method: str,
        options: Mapping[str, Any],
        positions: Positions,
        words: bool,
        special: Special,
        running: Mapping[str, Any] | None = None,
    ) -> Attribution:
        check_normalize(options["normalize"])
        check_special(special)
        chosen = self._positions(positions, words)
        layers = options["layers"]
        kept = layers if layers is None or isinstance(layers, int) else tuple(layers)
        key = (method, kept, options["normalize"], chosen, words)
        if key not in self._known:
            result = _METHODS[method](self.graph, positions=chosen, **options, **(running or {}))
            self._known[key] = merge_words(result, self.words) if words else result
        return treat_special(
            self._known[key], special, self.words.special if words else self.special
        )

    def _positions(self, positions: Positions, words: bool) -> tuple[int, ...]:
        """The indices of the tokens to look from: whole words if words are asked for."""
        n = len(self.tokens)
        if not words:
            return resolve_positions(
                self.tokens, n, self.position if positions is None else positions
            )
        texts = self.words.texts
        if positions is None:
            positions = self.words.word_of(self.position)
        chosen = resolve_positions(texts, len(texts), positions)
        return tuple(token for word in chosen for token in self.words.groups[word])

    def __repr__(self) -> str:
        prediction = ""
        if self.prediction is not None:
            target = self.prediction.target
            prediction = f", {self.prediction.kind} {target.label!r} {target.probability:.3f}"
        where = f"position {self.position} {self.tokens[self.position]!r}"
        layers = f"{self.graph.n_layers} layer{'' if self.graph.n_layers == 1 else 's'}"
        return f"Explanation({len(self.tokens)} tokens, {layers}, {where}{prediction})"


def _raw(graph: AttentionGraph, **options: Any) -> Attribution:
    from attnflow.methods.raw import raw_attention

    return raw_attention(graph, **options)


def _rollout(graph: AttentionGraph, **options: Any) -> Attribution:
    from attnflow.methods.rollout import rollout

    return rollout(graph, **options)


def _flow(graph: AttentionGraph, **options: Any) -> Attribution:
    from attnflow.methods.flow import flow  # loads Numba, which the others can do without

    return flow(graph, **options)


_METHODS = {"raw": _raw, "rollout": _rollout, "flow": _flow}
