"""Words: group subword tokens into words, and merge scores that can be added.

Scores of raw attention, rollout and joint flow are shares of a whole, so those of a word's tokens
are added. Maximum flows to single tokens use the same capacity and cannot be added: `flow` takes
words as an option, and computes one maximum flow to each.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from array_api_compat import array_namespace
from array_api_compat import device as device_of

from attnflow.arrays import Array
from attnflow.attribution import Attribution, Offsets
from attnflow.errors import InputError, SelectionError
from attnflow.selection import Positions, resolve_positions
from attnflow.token_text import (
    CONTINUES,
    STARTS,
    is_byte_level,
    join_tokens,
    readable_tokens,
)

NOT_ADDITIVE = ("flow", "flow_lower_bound", "flow_upper_bound", "head_flow")  # by method


@dataclass(frozen=True)
class Words:
    """The words of a text, each with the indices of its tokens, in order.

    texts: the text of each word. groups: the token indices of each word; each token is in one.
    special: whether each word is a special token such as [CLS].
    """

    texts: tuple[str, ...]
    groups: tuple[tuple[int, ...], ...]
    special: tuple[bool, ...]

    def word_of(self, token: int) -> int:
        """The index of the word that contains a token."""
        return next(i for i, group in enumerate(self.groups) if token in group)

    def positions(self, words: Positions = None) -> tuple[int, ...]:
        """The indices of all tokens of the selected words, given by index or text; all by default.

        >>> Words(("the", "cabinets"), ((0,), (1, 2)), (False, False)).positions("cabinets")
        (1, 2)
        """
        selected = resolve_positions(self.texts, len(self.texts), words)
        return tuple(token for word in selected for token in self.groups[word])

    def merge_offsets(self, offsets: Offsets | None) -> Offsets | None:
        """From the start of each word's first token to the end of its last.

        offsets: of the tokens, if known; None for special tokens, and then for their words.
        """
        if offsets is None:
            return None
        spans = []
        for group in self.groups:
            first, last = offsets[group[0]], offsets[group[-1]]
            spans.append(None if first is None or last is None else (first[0], last[1]))
        return tuple(spans)


def find_words(
    tokens: Sequence[str],
    *,
    special: Sequence[bool],
    text: str = "",
    word_ids: Sequence[int | None] | None = None,
    offsets: Sequence[tuple[int, int]] | None = None,
) -> Words:
    """Group tokens into words.

    special: whether each token is special; special tokens are words of their own.
    word_ids: the word number of each token from the tokenizer, if it provides them; otherwise word
    boundaries come from the marks in the tokens. offsets: character offsets of each token.

    >>> find_words(["[CLS]", "cabinet", "##s"], special=[True, False, False]).texts
    ('[CLS]', 'cabinets')
    """
    marked = any(token.startswith(STARTS) for token in tokens)
    groups: list[list[int]] = []
    for i, token in enumerate(tokens):
        apart = i == 0 or special[i] or special[i - 1] or token.startswith(STARTS)
        if not apart and word_ids is not None:
            apart = word_ids[i] != word_ids[i - 1]
        elif not apart:
            apart = not (marked or token.startswith(CONTINUES))
        if apart:
            groups.append([i])
        else:
            groups[-1].append(i)
    byte_level = is_byte_level(tokens, text)

    def text_of(group: Sequence[int]) -> str:
        """The word as written in the text, or its tokens without their marks."""
        pieces = [tokens[i] for i in group]
        if special[group[0]]:
            return pieces[0]
        written = ""
        if offsets is not None:
            written = text[offsets[group[0]][0] : offsets[group[-1]][1]].strip()
        written = written or join_tokens(pieces, byte_level=byte_level)
        return written or "".join(readable_tokens(pieces))

    return Words(
        texts=tuple(map(text_of, groups)),
        groups=tuple(tuple(group) for group in groups),
        special=tuple(bool(special[group[0]]) for group in groups),
    )


def merge_words(attribution: Attribution, words: Words) -> Attribution:
    """Merge the scores of tokens into scores of words.

    Scores are summed over the tokens attended to, and averaged over the attending positions.
    attribution: scores [..., layers, positions, tokens] of all tokens; of each word, all positions
    or none.
    Returns scores [..., layers, selected words, words]; row sums do not change.
    Raises InputError for maximum flows, which cannot be summed, or if tokens are missing;
    SelectionError if a word is selected only in part.

    >>> import numpy as np
    >>> scores = np.asarray([[[0.5, 0.3, 0.2]]])
    >>> tokens = ("key", "cabinet", "##s")
    >>> words = find_words(tokens, special=[False] * 3)
    >>> merge_words(Attribution(scores, tokens, "rollout", (1,), (0,)), words).scores
    array([[[0.5, 0.5]]])
    """
    if attribution.method in NOT_ADDITIVE:
        raise InputError(
            f"the attribution is {attribution.method}, and maximum flows cannot be summed",
            expected="scores that can be summed, such as rollout",
            fix="Compute the flow of words: flow(graph, words=words).",
        )
    n = sum(len(group) for group in words.groups)
    if attribution.columns != tuple(range(n)) or len(attribution.tokens) != n:
        raise InputError(
            f"the attribution has {len(attribution.columns)} of {len(attribution.tokens)} tokens",
            expected=f"all {n} tokens",
            fix="Merge words before removing tokens.",
        )
    word_of = {token: i for i, group in enumerate(words.groups) for token in group}
    axis_of = {position: axis for axis, position in enumerate(attribution.positions)}
    chosen = list(dict.fromkeys(word_of[position] for position in attribution.positions))
    for word in chosen:
        if not axis_of.keys() >= set(words.groups[word]):
            raise SelectionError(
                f"only some positions of the word {words.texts[word]!r} were computed",
                expected=f"all of {', '.join(map(str, words.groups[word]))}",
                fix="Select all positions of the word.",
            )
    xp = array_namespace(attribution.scores)
    attending = [
        xp.mean(_take(attribution.scores, [axis_of[i] for i in words.groups[word]], -2), axis=-2)
        for word in chosen
    ]
    scores = xp.stack(attending, axis=-2)  # [..., layers, words, tokens]
    attended = [xp.sum(_take(scores, group, -1), axis=-1) for group in words.groups]
    return replace(
        attribution,
        scores=xp.stack(attended, axis=-1),
        tokens=words.texts,
        positions=tuple(chosen),
        columns=(),
        settings={**attribution.settings, "words": True},
        offsets=words.merge_offsets(attribution.offsets),
    )


def _take(array: Array, indices: Sequence[int], axis: int) -> Array:
    xp = array_namespace(array)
    return xp.take(array, xp.asarray(list(indices), device=device_of(array)), axis=axis)
