"""Shards: pieces of the input of a fixed size, each computed and written as a whole.

What a shard holds depends on the input alone. So it is what a run resumes at, what engines are
given, and what ranges of shards are shared out by.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import count, islice
from typing import Any

from attnflow.corpus.example import Example, Refused, Result, Row, Scored
from attnflow.corpus.folder import Entry, Folder
from attnflow.corpus.parquet import write_parquet
from attnflow.corpus.rows import excerpt
from attnflow.corpus.settings import Settings
from attnflow.corpus.writing import write_whole


@dataclass(frozen=True)
class Shard:
    """Some rows of the input that follow each other. number: counts shards from 0."""

    number: int
    rows: tuple[Row, ...]

    @property
    def examples(self) -> list[Example]:
        """The rows that can be given to a model."""
        return [row for row in self.rows if isinstance(row, Example)]

    @property
    def refused(self) -> list[Refused]:
        """The rows that cannot."""
        return [row for row in self.rows if isinstance(row, Refused)]

    def before(self, index: int) -> "Shard":
        """The part of it that comes before a row of the input."""
        return Shard(self.number, self.rows[: index - self.first])

    @property
    def first(self) -> int:
        """The index of its first row."""
        row = self.rows[0]
        return (row if isinstance(row, Example) else row.example).index


def cut(
    rows: Iterable[Row],
    size: int,
    *,
    wanted: Callable[[int], bool],
    stop: int,
    at_end: Callable[[int], None],
) -> Iterator[Shard]:
    """Cut rows into shards of `size` and give those whose numbers are wanted, up to `stop`.

    at_end: called with the number of rows when the end of the input is seen.
    """
    stream = iter(rows)
    for number in count():
        if number >= stop:
            return
        held = tuple(islice(stream, size))
        if held and wanted(number):
            yield Shard(number, held)
        if len(held) < size:
            at_end(number * size + len(held))
            return


def count_pairs(settings: Settings, results: Iterable[Result]) -> int:
    """How many pairs of positions and tokens a flow was computed for, over all layers."""
    if "flow" not in settings.methods:
        return 0
    return sum(
        len(one.layers) * len(one.positions) * len(one.tokens)
        for one in results
        if isinstance(one, Scored)
    )


def write_shard(
    folder: Folder, shard: Shard, results: Sequence[Result], settings: Settings, size: int
) -> Entry:
    """Write what was computed for a shard: refused rows, scores, and last the journal.

    Killed before the journal is written, the shard does not count, and is computed again.
    """
    refused = [*shard.refused, *(one for one in results if isinstance(one, Refused))]
    refused.sort(key=lambda one: one.example.index)
    errors = None
    if refused:
        lines = "".join(f"{json.dumps(describe(one), ensure_ascii=False)}\n" for one in refused)
        errors = write_whole(
            folder.errors(shard.number), lambda file: file.write(lines.encode("utf-8"))
        )
    scored = [one for one in results if isinstance(one, Scored)]
    parquet = write_whole(
        folder.parquet(shard.number), lambda file: write_parquet(file, scored, settings)
    )
    entry = Entry(
        shard=shard.number,
        first=shard.number * size,
        rows=len(shard.rows),
        refused=len(refused),
        pairs=count_pairs(settings, results),
        parquet=parquet,
        errors=errors,
    )
    folder.finish(entry)
    return entry


def describe(refused: Refused) -> dict[str, Any]:
    """A refused row as a line of the errors file."""
    example = refused.example
    return {
        "index": example.index,
        "id": example.id,
        "line": example.line,
        "why": refused.why,
        "reason": refused.reason,
        "text": excerpt(example.text),
    }
