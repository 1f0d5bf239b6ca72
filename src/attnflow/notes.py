"""Notes on results: when a row of scores tells little, and what may help.

A row is what one position receives from the tokens at one layer. `find_notes` says when a row tells
little: attention sinks, ties, flat scores, and scores that follow the order of the tokens. The
terminal, the viewer and figures show these notes next to the scores.
"""

import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnflow.arrays import to_numpy
from attnflow.attribution import Attribution
from attnflow.edges.registry import EDGES
from attnflow.explanation import Explanation
from attnflow.presentation import edges_name, residual_only_note
from attnflow.selection import Position, resolve_position
from attnflow.token_text import tell_apart
from attnflow.units import NOT_ADDITIVE, SPECIAL_TOKENS

SINK = 0.5  # the share of a row from which tokens without content are reported as sinks
PART_OF_SINK = 0.05  # the share from which a token counts as one of them
TIMES = 3.0  # flows do not add up: a sink has so many times the flow of any other token
SPECIAL = 0.75  # the share of all special tokens, with the position itself, that is reported
NO_TOKEN = -1  # the index of a row that is a set of positions
OWN = 0.9  # the share of a row from which the position itself is reported
TIED = 1e-9  # relative difference of scores that count as equal
FLAT = 0.7  # scores are flat if the lowest is at least this share of the highest
MANY = 10  # tokens: from here on, the lowest tenth is left out before scores are called flat
NEAR = 0.01  # relative difference from the highest score of tokens that are hardly ranked
RAMP = 0.95  # the rank correlation with the position from which scores follow the order
FEWEST = 6  # tokens: shorter rows follow the order of the tokens by chance
LONG_RAMP = 0.8  # the same from this many tokens on, where chance is out of the question:
LONG = 20
NOUNS = {"raw": "raw attention", "rollout": "rollout", "flow": "flow", "joint_flow": "joint flow"}


def find_notes(
    attribution: Attribution,
    *,
    special: Sequence[bool],
    causal: bool,
    position: Position | None = None,
    layer: int = -1,
    advice: bool = True,
) -> list[str]:
    """Say why one row of scores tells little, with numbers, and what may help.

    special: whether each token (or word, if words are merged) is special. causal: whether positions
    attend to no later ones. position, layer: those of `Attribution.row`.
    advice: whether the last sentence says what to try.
    Returns short sentences; an empty list for a good row.

    >>> row = np.asarray([[[0.96, 0.02, 0.01, 0.01]]])
    >>> attribution = Attribution(row, ("The", "key", "to", "the"), "rollout", (2,), (3,))
    >>> find_notes(attribution, special=[False] * 4, causal=True)
    ["The first token 'The' has 0.96 of the rollout: an attention sink, which says little."]
    """
    scores = to_numpy(attribution.row(position=position, layer=layer)).astype(np.float64)
    index = attribution.positions[0]
    if position is not None:
        names = tuple(row.label for row in attribution.rows) or attribution.tokens
        index = resolve_position(names, len(names), position)
    if attribution.rows:
        members = attribution.rows[index].positions
        index = members[0] if len(members) == 1 else NO_TOKEN
    row = _Row(attribution, scores, index, tuple(special), causal)
    if causal and index == 0:
        return ["The first position attends to nothing but itself."]
    if not row.reached or float(scores.max(initial=0.0)) <= 0:
        return [f"No token has a positive {row.noun}."] if row.reached else []
    alone = _own_note(row) or _sink_note(row) or _special_note(row)
    others = [_first_note(row), _tie_note(row), _flat_note(row), _ramp_note(row)]
    found = [alone] if alone else others
    notes = [note for note in found if note is not None]
    texts = [note.text for note in notes]
    tips = list(dict.fromkeys(tip for note in notes for tip in note.advice))
    if tips and advice:
        texts.append(f"Try {_listed(tips, 'or')}.")
    return texts


def explanation_notes(
    explanation: Explanation,
    attribution: Attribution,
    *,
    position: Position | None = None,
    layer: int = -1,
    advice: bool = True,
) -> list[str]:
    """The notes on a row of an attribution of an explanation; see `find_notes`."""
    special = explanation.special
    if attribution.tokens == explanation.words.texts:
        special = explanation.words.special
    elif attribution.tokens != explanation.tokens:
        special = tuple(text == SPECIAL_TOKENS for text in attribution.tokens)
    graph_notes = (residual_only_note(explanation.graph.settings), _gradient_note(explanation))
    notes = find_notes(
        attribution,
        special=special,
        causal=explanation.graph.causal,
        position=position,
        layer=layer,
        advice=advice,
    )
    return [*notes, *filter(None, graph_notes)]


def _gradient_note(explanation: Explanation) -> str | None:
    """What the rows of an answer have in common, if its edges are gradients."""
    edges = edges_name(explanation.graph.settings)
    if explanation.answer is None or len(explanation.answer) == 1:
        return None
    if edges not in EDGES.names or not EDGES[edges].needs_gradient:
        return None
    return (
        "The gradients are those of the whole answer, the sum of the logits of its tokens: rows of "
        "single tokens are parts of it, not what raises the logit of that token."
    )


@dataclass(frozen=True)
class _Note:
    """A sentence about a row, and what may help."""

    text: str
    advice: tuple[str, ...] = ()


@dataclass(frozen=True, eq=False)
class _Row:
    """The scores [tokens] of one position. index: of the position. special: of all tokens."""

    attribution: Attribution
    scores: NDArray[np.float64]
    index: int
    special: tuple[bool, ...]
    causal: bool

    @property
    def noun(self) -> str:
        """What the scores are."""
        method = self.attribution.method
        if method == "raw" and edges_name(self.settings) != "attention":
            return "edge weight"
        return NOUNS.get(method, method.replace("_", " "))

    @property
    def settings(self) -> Mapping[str, Any]:
        return self.attribution.settings

    @property
    def adds_up(self) -> bool:
        """Whether scores are shares of a whole."""
        return self.attribution.method not in NOT_ADDITIVE and float(self.scores.min()) >= 0

    @property
    def reached(self) -> list[int]:
        """The axes of the tokens that the position can attend to."""
        columns = self.attribution.columns
        sees_all = not self.causal or self.index == NO_TOKEN
        return [i for i, c in enumerate(columns) if sees_all or c <= self.index]

    @property
    def own(self) -> int | None:
        """The axis of the position itself, unless it is hidden."""
        columns = self.attribution.columns
        return columns.index(self.index) if self.index in columns else None

    def label(self, axis: int) -> str:
        """A token in quotes."""
        return self.names[self.attribution.columns[axis]]

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The tokens in quotes, with their position where they occur more than once."""
        return tell_apart([repr(label) for label in self.attribution.labels])

    def sink_kind(self, axis: int) -> str:
        """What kind of token without content it is; empty for others."""
        column = self.attribution.columns[axis]
        if self.special[column]:
            return "special token"
        if self.causal and column == 0:
            return "first token"
        token = self.attribution.labels[column]
        if not token.strip():
            return "newline" if "\n" in token else "blank token"
        marks = all(unicodedata.category(c).startswith("P") for c in token)
        return "punctuation mark" if marks else ""

    def others(self) -> list[int]:
        """The tokens with content: neither the position itself, nor special, nor a first token."""
        fixed = ("special token", "first token")
        return [i for i in self.reached if i != self.own and self.sink_kind(i) not in fixed]


def _own_note(row: _Row) -> _Note | None:
    """A row in which hardly anything but the position itself has a score."""
    total = float(row.scores.sum())
    if row.own is None or not row.adds_up or row.scores[row.own] < OWN * total:
        return None
    share = float(row.scores[row.own]) / total
    rest = len(row.reached) - 1
    if rest == 0:
        return None
    text = (
        f"The position itself, {row.label(row.own)}, has {share:.2f} of the {row.noun}; "
        f"the other {_count(rest, 'token')} share {1 - share:.2g}."
    )
    residual = row.settings.get("residual_weight")
    if row.attribution.method == "raw":
        inside = residual == "inside the edges"
        return _Note(text, ("rollout, which follows all layers (--method rollout)",) * inside)
    if edges_name(row.settings) == "gradient":
        return _Note(text, (_option("edges", "gradient_rescaled"),))
    return _Note(text, ("a higher layer (--layer N)",) if row.attribution.layers[-1] == 1 else ())


def _sink_note(row: _Row) -> _Note | None:
    """Tokens without content that take most of the row."""
    total = float(row.scores.sum())
    axes = [i for i in row.reached if i != row.own and row.sink_kind(i)]
    axes = [i for i in axes if row.scores[i] >= PART_OF_SINK * total]
    if not axes:
        return None
    special = [i for i in axes if row.sink_kind(i) == "special token"]
    if sum(float(row.scores[i]) for i in special) >= SINK * total:
        axes = special
    axes.sort(key=lambda i: -row.scores[i])
    names = f"The {row.sink_kind(axes[0])} {row.label(axes[0])}"
    if not row.adds_up:
        rest = [row.scores[i] for i in row.reached if i not in (axes[0], row.own)]
        if not rest or row.scores[axes[0]] < TIMES * max(rest):
            return None
        most = f"{row.scores[axes[0]]:.2f}, the others at most {max(rest):.2g}"
        return _Note(f"{names} has a {row.noun} of {most}.", _sink_advice(row, axes[:1]))
    share = sum(float(row.scores[i]) for i in axes) / total
    if share < SINK:
        return None
    text = f"{names} has {share:.2f} of the {row.noun}: an attention sink, which says little."
    if len(axes) > 1:
        names = _listed([row.label(i) for i in axes], "and")
        text = f"{names} have {share:.2f} of the {row.noun}: attention sinks, which say little."
    return _Note(text, _sink_advice(row, axes))


def _special_note(row: _Row) -> _Note | None:
    """A special position, such as [CLS], that keeps most of the row with other special tokens."""
    is_token = row.own is not None and row.index != NO_TOKEN
    if not is_token or not row.adds_up or not row.special[row.index]:
        return None
    total = float(row.scores.sum())
    axes = [i for i in row.reached if row.special[row.attribution.columns[i]]]
    axes = [i for i in axes if row.scores[i] >= PART_OF_SINK * total]
    share = sum(float(row.scores[i]) for i in axes) / total
    if share < SPECIAL or len(axes) < 2:
        return None
    axes.sort(key=lambda i: -row.scores[i])
    names = _listed([row.label(i) for i in axes], "and")
    text = f"{names} have {share:.2f} of the {row.noun}; the text itself has {1 - share:.2g}."
    return _Note(text, _sink_advice(row, axes))


def _first_note(row: _Row) -> _Note | None:
    """A decoder's first token with the highest score, which need not be its content."""
    first = next((i for i in row.reached if row.sink_kind(i) == "first token"), None)
    if first is None or first == row.own or not row.adds_up:
        return None
    if row.scores[first] < row.scores.max():
        return None
    return _Note(
        f"The first token {row.label(first)} has the highest {row.noun}, {row.scores[first]:.2f}. "
        "Decoders often use it as a sink, whatever it says: compare the other tokens."
    )


def _sink_advice(row: _Row, axes: Sequence[int]) -> tuple[str, ...]:
    advice = list(_other_edges(row))
    if all(row.special[row.attribution.columns[i]] for i in axes):
        advice.append(_option("special", "hide"))
    if not advice:
        advice += _receptive_field(row)
    return tuple(advice)


def _tie_note(row: _Row) -> _Note | None:
    """Many tokens with the same score."""
    scores = np.sort(row.scores[row.reached])
    starts = np.searchsorted(scores, scores - TIED * scores[-1])
    counts = np.arange(1, len(scores) + 1) - starts
    counts[scores <= 0] = 0
    best = len(counts) - 1 - int(np.argmax(counts[::-1]))  # of equal counts, the highest score
    count = int(counts[best])
    if count < 3 or 3 * count < len(scores):
        return _near_tie_note(row)
    top = " highest" if best == len(scores) - 1 else ""
    text = (
        f"{count} of {len(scores)} tokens have the same{top} {row.noun}, {scores[best]:.3g}, "
        f"so {row.noun} does not rank them."
    )
    return _Note(text, (*_other_edges(row), *_flow_advice(row)))


def _near_tie_note(row: _Row) -> _Note | None:
    """Many tokens with content whose scores are nearly the highest, as saturated flows are."""
    scores = row.scores[row.others()]
    highest = float(scores.max(initial=0.0))
    count = int((scores >= (1 - NEAR) * highest).sum())
    if highest <= 0 or count < 3 or 4 * count < len(scores):
        return None
    text = (
        f"{count} of {_count(len(scores), 'other token')} have a {row.noun} within {NEAR:.0%} of "
        f"{highest:.3g}, so {row.noun} hardly ranks them."
    )
    return _Note(text, (*_other_edges(row), *_flow_advice(row)))


def _flat_note(row: _Row) -> _Note | None:
    """Scores of tokens with content that hardly differ."""
    scores = np.sort(row.scores[row.others()])
    if len(scores) < 3 or scores[-1] <= 0:
        return None
    skipped = len(scores) // 10 if len(scores) >= MANY else 0
    low, high = float(scores[skipped]), float(scores[-1])
    if low < FLAT * high:
        return None
    which = _count(
        len(scores) - skipped, "other token" if len(scores) < len(row.reached) else "token"
    )
    text = (
        f"The scores of {which} lie between {low:.2g} and {high:.2g}: most of the range from 0 is "
        "unused."
    )
    return _Note(text, (*_other_edges(row), *_flow_advice(row)))


def _ramp_note(row: _Row) -> _Note | None:
    """Scores in the order of the tokens, in a model with a causal mask."""
    axes = [i for i in row.reached if i != row.own]
    if not row.causal or len(axes) < FEWEST:
        return None
    correlation = _rank_correlation(row.scores[axes])
    if abs(correlation) < (RAMP if len(axes) < LONG else LONG_RAMP):
        return None
    which = "earlier" if correlation < 0 else "later"
    text = (
        f"The {which} a token, the higher its {row.noun} (rank correlation with the position "
        f"{correlation:.2f}): this can come from the causal mask alone."
    )
    return _Note(text, (*_other_edges(row), *_flow_advice(row), *_receptive_field(row)))


def _rank_correlation(scores: NDArray[np.float64]) -> float:
    """Spearman's correlation of scores with their places; equal scores share a rank."""
    _, group, counts = np.unique(scores, return_inverse=True, return_counts=True)
    if len(counts) == 1:
        return 0.0
    ranks = (np.cumsum(counts) - (counts - 1) / 2)[group]
    return float(np.corrcoef(ranks, np.arange(len(scores)))[0, 1])


def _other_edges(row: _Row) -> tuple[str, ...]:
    """Advice to use edges that see more than attention; only for methods on a graph of a model."""
    settings = row.settings
    if "edges" not in settings or settings["edges"] == "alti" or "alti" not in EDGES.names:
        return ()
    return (_option("edges", "alti"),)


def _receptive_field(row: _Row) -> tuple[str, ...]:
    if not row.causal or "residual_weight" not in row.settings:
        return ()
    if row.settings.get("normalize") == "receptive_field":
        return ()
    return (_option("normalize", "receptive_field"),)


def _flow_advice(row: _Row) -> tuple[str, ...]:
    """What ranks tokens where flows do not. Rollout on causal attention is mostly a sink."""
    if row.attribution.method not in (*NOT_ADDITIVE, "joint_flow"):
        return ()
    if row.causal:
        return () if _other_edges(row) else ("rollout (--method rollout)",)
    return ("rollout (--method rollout)", "a lower layer (--layer N)")


def _option(name: str, value: str) -> str:
    """An option in Python and on the command line."""
    return f"{name}={value!r} (--{name} {value})"


def _listed(texts: Sequence[str], word: str) -> str:
    """Texts joined by commas, and a word before the last.

    >>> _listed(["a", "b", "c"], "or")
    'a, b or c'
    """
    return f"{', '.join(texts[:-1])} {word} {texts[-1]}" if len(texts) > 1 else texts[0]


def _count(n: int, noun: str) -> str:
    return f"{n} {noun}{'' if n == 1 else 's'}"
