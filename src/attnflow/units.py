"""Units: group tokens into words, sentences or given spans, and merge scores that can be added.

Scores of raw attention, rollout and joint flow are shares of a whole, so those of a unit's tokens
are added. Maximum flows to single tokens use the same capacity and cannot be added: `flow` takes
units as an option, and computes one maximum flow to each.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from array_api_compat import array_namespace
from array_api_compat import device as device_of

from attnflow.arrays import Array
from attnflow.attribution import Attribution, Offsets, Row
from attnflow.errors import InputError, SelectionError, quote
from attnflow.selection import Positions, resolve_positions
from attnflow.token_text import (
    CONTINUES,
    STARTS,
    is_byte_level,
    join_tokens,
    readable_tokens,
)

NOT_ADDITIVE = ("flow", "flow_lower_bound", "flow_upper_bound", "head_flow")  # by method


# The end of a sentence: punctuation, closing quotes or brackets, then space; or an empty line.
SENTENCE_END = re.compile(r"""[.!?\u2026]+["'\u201d\u2019)\]]*(?=\s)|[\u3002\uff01\uff1f]+|\n""")
# Words before a full stop that does not end a sentence.
ABBREVIATIONS = ("mr", "mrs", "ms", "dr", "prof", "st", "no", "vs", "etc", "e.g", "i.e", "cf", "al")
# The units of tokens outside of given spans.
REST, SPECIAL_TOKENS = "(rest)", "(special tokens)"


@dataclass(frozen=True)
class Units:
    """The words, sentences or other parts of a text, each with the indices of its tokens.

    texts: the text or name of each unit. groups: the token indices of each unit, in order; each
    token is in one. special: whether each unit is a special token such as [CLS].
    """

    texts: tuple[str, ...]
    groups: tuple[tuple[int, ...], ...]
    special: tuple[bool, ...]

    def word_of(self, token: int) -> int:
        """The index of the unit that contains a token."""
        return next(i for i, group in enumerate(self.groups) if token in group)

    def positions(self, units: Positions = None) -> tuple[int, ...]:
        """The indices of all tokens of the selected units, given by index or text; all by default.

        >>> Units(("the", "cabinets"), ((0,), (1, 2)), (False, False)).positions("cabinets")
        (1, 2)
        """
        selected = resolve_positions(self.texts, len(self.texts), units)
        return tuple(token for unit in selected for token in self.groups[unit])

    def merge_offsets(self, offsets: Offsets | None) -> Offsets | None:
        """From the start of each unit's first token to the end of its last.

        offsets: of the tokens, if known; None for special tokens, and then for their units.
        """
        if offsets is None:
            return None
        spans: list[tuple[int, int] | None] = []
        for group in self.groups:
            known = [span for i in group if (span := offsets[i]) is not None]
            spans.append((known[0][0], known[-1][1]) if known else None)
        return tuple(spans)

    def append(self, other: "Units") -> "Units":
        """These units, and those of the tokens that follow, which count from 0."""
        n = sum(len(group) for group in self.groups)
        groups = tuple(tuple(n + i for i in group) for group in other.groups)
        return Units(self.texts + other.texts, self.groups + groups, self.special + other.special)


def find_words(
    tokens: Sequence[str],
    *,
    special: Sequence[bool],
    text: str = "",
    word_ids: Sequence[int | None] | None = None,
    offsets: Sequence[tuple[int, int]] | None = None,
) -> Units:
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

    return Units(
        texts=tuple(map(text_of, groups)),
        groups=tuple(tuple(group) for group in groups),
        special=tuple(bool(special[group[0]]) for group in groups),
    )


def number_words(text: str, offsets: Sequence[tuple[int, int] | None]) -> list[int | None]:
    """The number of the word of each token, by letters, punctuation and spaces in the text.

    >>> number_words("a cat.", [(0, 1), (1, 5), (5, 6), None])
    [0, 1, 2, None]
    """
    starts = [match.start() for match in re.finditer(r"\w+|[^\w\s]+", text)]
    numbers: list[int | None] = []
    word = -1
    for span in offsets:
        if span is None:
            numbers.append(None)
            continue
        piece = text[span[0] : span[1]]
        first = span[0] + len(piece) - len(piece.lstrip()) if piece.strip() else span[0]
        while word + 1 < len(starts) and starts[word + 1] <= first:
            word += 1
        numbers.append(word)
    return numbers


def split_sentences(text: str) -> list[tuple[int, int]]:
    """The start and end of each sentence, in characters, without the space around it.

    A sentence ends with punctuation before a space, with Chinese or Japanese punctuation, or with
    its line. A full stop after an initial or a common abbreviation does not end one.

    >>> split_sentences("Dr. No left. Why?")
    [(0, 12), (13, 17)]
    """
    ends = [match.end() for match in SENTENCE_END.finditer(text) if not _abbreviates(text, match)]
    spans = []
    for start, end in zip([0, *ends], [*ends, len(text)], strict=True):
        part = text[start:end]
        if part.strip():
            first = start + len(part) - len(part.lstrip())
            spans.append((first, first + len(part.strip())))
    return spans


def _abbreviates(text: str, match: "re.Match[str]") -> bool:
    """Whether the full stop belongs to an abbreviation or an initial."""
    if match[0] != ".":
        return False
    word = re.search(r"[\w.]+$", text[: match.start()])
    if word is None:
        return False
    return word[0].lower() in ABBREVIATIONS or (len(word[0]) == 1 and word[0].isupper())


def group_by_spans(
    spans: Sequence[tuple[int, int]],
    names: Sequence[str],
    *,
    special: Sequence[bool],
    offsets: Offsets | None,
) -> Units:
    """Group the tokens by spans of characters: each token belongs to the span it starts in.

    All special tokens together are one unit, and so are all other tokens outside of the spans.
    Raises InputError if the offsets are unknown, SelectionError for a span without tokens.

    >>> offsets = ((0, 1), (1, 3), (3, 4))
    >>> group_by_spans([(0, 3)], ["abc"], special=[False] * 3, offsets=offsets)
    Units(texts=('abc', '(rest)'), groups=((0, 1), (2,)), special=(False, False))
    """
    if offsets is None:
        raise InputError(
            "the tokenizer does not say where its tokens are in the text",
            expected="character offsets, to group tokens by characters",
            fix="Use a model with a tokenizer.json.",
        )
    members: dict[int, list[int]] = {}
    rest, special_unit = len(spans), len(spans) + 1
    for i, offset in enumerate(offsets):
        unit = special_unit if special[i] else _owner(offset, spans)
        members.setdefault(rest if unit is None else unit, []).append(i)
    for i, name in enumerate(names):
        if i not in members:
            raise SelectionError(
                f"no token starts in the unit {name!r}, characters {spans[i][0]} to {spans[i][1]}",
                expected="spans that contain tokens and do not overlap",
                fix="Check its characters.",
            )
    texts = (*names, REST, SPECIAL_TOKENS)
    return Units(
        tuple(texts[unit] for unit in members),
        tuple(tuple(group) for group in members.values()),
        tuple(unit == special_unit for unit in members),
    )


def group_regions(
    regions: Mapping[str, Any], grid: tuple[int, int, int], *, special: Sequence[bool]
) -> Units:
    """Group the patches of an image by regions: (first row, first column, last row, last column).

    grid: the token of the first patch, and the numbers of rows and columns of patches.
    Patches outside of the regions are the unit "(rest)", and special tokens "(special tokens)".
    Raises InputError for regions outside of the image, and for regions that overlap.
    """
    first, n_rows, n_columns = grid
    owner: dict[int, int] = {}
    for number, (name, region) in enumerate(regions.items()):
        values = list(region) if isinstance(region, list | tuple) else []
        is_box = len(values) == 4 and all(type(value) is int for value in values)
        top, left, bottom, right = values if is_box else (0, 0, -1, -1)
        if not (0 <= top <= bottom < n_rows and 0 <= left <= right < n_columns):
            raise InputError(
                f"the region {name!r} is {quote(region)}",
                expected=f"(first row, first column, last row, last column) in {n_rows} x "
                f"{n_columns} patches",
                fix="Rows and columns count from 0, and both ends are included.",
            )
        for row in range(top, bottom + 1):
            for column in range(left, right + 1):
                token = first + row * n_columns + column
                if owner.setdefault(token, number) != number:
                    raise InputError(
                        f"the region {name!r} overlaps another at row {row}, column {column}",
                        expected="regions that do not overlap",
                        fix="Separate them.",
                    )
    places = tuple((owner.get(i, -2), owner.get(i, -2) + 1) for i in range(len(special)))
    spans = [(number, number + 1) for number in range(len(regions))]
    return group_by_spans(spans, list(map(str, regions)), special=special, offsets=places)


def number_repeated(names: Sequence[str]) -> list[str]:
    """Names with numbers where they repeat.

    >>> number_repeated(["user", "assistant", "user"])
    ['user 1', 'assistant', 'user 2']
    """
    seen: dict[str, int] = {}
    numbered = []
    for name in names:
        seen[name] = seen.get(name, 0) + 1
        numbered.append(f"{name} {seen[name]}" if list(names).count(name) > 1 else name)
    return numbered


def _owner(offset: tuple[int, int] | None, spans: Sequence[tuple[int, int]]) -> int | None:
    """The span that a token starts in, where the spaces before it do not count."""
    if offset is None:
        return None
    for i, (start, end) in enumerate(spans):
        if start <= offset[0] < end or offset[0] < start < offset[1]:
            return i
    return None


def find_spans(text: str, parts: Any) -> list[tuple[int, int]]:
    """Return the character spans of parts given as text, as (start, end), or several of these.

    A text stands for all its occurrences as whole words, or if there is none, for all occurrences.
    Raises InputError if it is not in the text.

    >>> find_spans("the cats and the cat", "cat"), find_spans("the cats", [[4, 8]])
    ([(17, 20)], [(4, 8)])
    """
    several = isinstance(parts, list | tuple) and not is_span(parts)
    spans: list[tuple[int, int]] = []
    for part in parts if several else [parts]:
        if is_span(part) and 0 <= part[0] < part[1] <= len(text):
            spans.append((int(part[0]), int(part[1])))
            continue
        found: list[tuple[int, int]] = []
        if isinstance(part, str) and part.strip():
            name = re.escape(part.strip())
            found = [m.span() for m in re.finditer(rf"(?<!\w){name}(?!\w)", text)]
            found = found or [m.span() for m in re.finditer(name, text)]
        if not found:
            raise InputError(
                f"{part!r} is not in the text",
                expected="a part of the text, or character offsets such as [4, 8]",
                fix="Check the text, and the characters.",
            )
        spans += found
    return spans


def is_span(value: Any) -> bool:
    """Whether a value is a pair of whole numbers, such as the start and end of a span."""
    return (
        isinstance(value, list | tuple)
        and len(value) == 2
        and all(isinstance(number, int) and not isinstance(number, bool) for number in value)
    )


def overlaps(offset: tuple[int, int] | None, spans: Sequence[tuple[int, int]]) -> bool:
    """Whether a token overlaps one of the spans."""
    return offset is not None and any(
        max(offset[0], start) < min(offset[1], end) for start, end in spans
    )


def name_spans(text: str, spans: Any) -> tuple[list[tuple[int, int]], list[str]]:
    """Return spans and their names, from what users give.

    spans: names with a text or (start, end) each; or a list of texts or (start, end), which are
    named by their text. A text must occur once.
    Raises InputError for a text that is missing or occurs several times, and for overlaps.
    """
    if isinstance(spans, Mapping):
        items = [(str(name), part) for name, part in spans.items()]
    elif isinstance(spans, list | tuple) and spans:
        items = [("", part) for part in spans]
    else:
        raise InputError(
            f"units is {spans!r}",
            expected="'tokens', 'words', 'sentences', 'segments', names with spans, or spans",
            fix='For example units={"claim": "the text of the claim", "source": (120, 260)}.',
        )
    found: list[tuple[int, int]] = []
    names: list[str] = []
    for name, part in items:
        places = find_spans(text, part)
        if len(places) > 1:
            raise InputError(
                f"the unit {name or part!r} occurs {len(places)} times in the text",
                expected="a text that occurs once",
                fix=f"Give its characters, such as {places[0]}.",
            )
        found += places
        names.append(name or text[slice(*places[0])].strip())
    for (_, end), (start, _) in zip(sorted(found), sorted(found)[1:], strict=False):
        if start < end:
            raise InputError(
                f"two units share the characters {start} to {end}",
                expected="units that do not overlap",
                fix="Separate them.",
            )
    return found, names


def merge_units(attribution: Attribution, units: Units) -> Attribution:
    """Merge the scores of tokens into scores of words or other units.

    Scores are summed over the tokens attended to, and averaged over the attending positions.
    attribution: scores [..., layers, positions, tokens] of all tokens; of each unit, all positions
    or none.
    Returns scores [..., layers, selected units, units]; row sums do not change.
    Raises InputError for maximum flows, which cannot be summed, or if tokens are missing;
    SelectionError if a unit is selected only in part.

    >>> import numpy as np
    >>> scores = np.asarray([[[0.5, 0.3, 0.2]]])
    >>> tokens = ("key", "cabinet", "##s")
    >>> words = find_words(tokens, special=[False] * 3)
    >>> merge_units(Attribution(scores, tokens, "rollout", (1,), (0,)), words).scores
    array([[[0.5, 0.5]]])
    """
    unit_of = {token: i for i, group in enumerate(units.groups) for token in group}
    chosen = list(dict.fromkeys(unit_of.get(position, 0) for position in attribution.positions))
    for unit in chosen:
        if not set(attribution.positions) >= set(units.groups[unit]):
            raise SelectionError(
                f"only some positions of {units.texts[unit]!r} were computed",
                expected=f"all of {', '.join(map(str, units.groups[unit]))}",
                fix="Select all of its positions.",
            )
    rows = [Row(units.texts[unit], units.groups[unit]) for unit in chosen]
    merged = merge_columns(merge_rows(attribution, rows), units)
    return replace(merged, positions=tuple(chosen), rows=())


def merge_columns(attribution: Attribution, units: Units) -> Attribution:
    """Add up the scores of the tokens of each unit, for an attribution that has rows."""
    if attribution.method in NOT_ADDITIVE:
        raise InputError(
            f"the attribution is {attribution.method}, and maximum flows cannot be summed",
            expected="scores that can be summed, such as rollout",
            fix="Compute the flow of units: flow(graph, units=units).",
        )
    n = sum(len(group) for group in units.groups)
    if attribution.columns != tuple(range(n)) or len(attribution.tokens) != n:
        raise InputError(
            f"the attribution has {len(attribution.columns)} of {len(attribution.tokens)} tokens",
            expected=f"all {n} tokens",
            fix="Merge units before removing tokens.",
        )
    xp = array_namespace(attribution.scores)
    attended = [xp.sum(_take(attribution.scores, group, -1), axis=-1) for group in units.groups]
    return replace(
        attribution,
        scores=xp.stack(attended, axis=-1),
        tokens=units.texts,
        columns=(),
        settings={**attribution.settings, "words": True},
        offsets=units.merge_offsets(attribution.offsets),
    )


def merge_rows(attribution: Attribution, rows: Sequence[Row]) -> Attribution:
    """Average the scores of the positions of each row, all of which the attribution has.

    Returns scores [..., layers, rows, tokens].
    """
    xp = array_namespace(attribution.scores)
    axis_of = {position: axis for axis, position in enumerate(attribution.positions)}
    means = [
        xp.mean(_take(attribution.scores, [axis_of[i] for i in row.positions], -2), axis=-2)
        for row in rows
    ]
    return replace(
        attribution,
        scores=xp.stack(means, axis=-2),
        positions=tuple(range(len(rows))),
        rows=tuple(rows),
    )


def _take(array: Array, indices: Sequence[int], axis: int) -> Array:
    xp = array_namespace(array)
    return xp.take(array, xp.asarray(list(indices), device=device_of(array)), axis=axis)
