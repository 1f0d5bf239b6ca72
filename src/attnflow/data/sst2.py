"""Reader of SST-2, the Stanford Sentiment Treebank with two classes (Socher et al. 2013)."""

from collections.abc import Iterator
from pathlib import Path
from typing import Literal

from attnflow.data.example import SentimentExample, malformed, open_lines
from attnflow.data.table import Columns

SENTIMENTS: dict[str, Literal["negative", "positive"]] = {"0": "negative", "1": "positive"}


def read_sst2(path: str | Path) -> Iterator[SentimentExample]:
    """Read a table with the columns `sentence` and `label`, which is 0 or 1.

    Raises FileError, naming the line, for a row that is not as it should be.
    """
    with open_lines(path) as lines:
        columns = Columns.from_header(path, lines, ("sentence", "label"))
        for i, line in lines:
            row = columns.split(i, line)
            if row["label"] not in SENTIMENTS:
                raise malformed(path, i, f"the label is {row['label']!r}", "0 or 1")
            if not row["sentence"].strip():
                raise malformed(path, i, "the sentence is empty", "some text")
            yield SentimentExample(row["sentence"].strip(), SENTIMENTS[row["label"]])
