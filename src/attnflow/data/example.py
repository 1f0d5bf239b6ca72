"""The two kinds of example that data sets are read as."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias

from attnflow.errors import FileError

Number: TypeAlias = Literal["singular", "plural"]
NUMBERS: tuple[Number, Number] = ("singular", "plural")

# Tags of the Penn Treebank: of the verb to predict, and of common nouns.
NUMBER_OF_VERB: dict[str, Number] = {"VBZ": "singular", "VBP": "plural"}
NUMBER_OF_NOUN: dict[str, Number] = {"NN": "singular", "NNS": "plural"}


@dataclass(frozen=True)
class AgreementExample:
    """A sentence up to its verb, and the number that the verb must have.

    prefix: the tokens before the verb. number: "singular" or "plural".
    subject: the index of the subject's noun in the prefix, if it is known.
    attractors: how many nouns between subject and verb have the other number, if it is known.
    tags: the part of speech of each token of the prefix, if it is known.
    document: where the sentence comes from, if it is known.
    """

    prefix: tuple[str, ...]
    number: Number
    subject: int | None = None
    attractors: int | None = None
    tags: tuple[str, ...] | None = None
    document: str | None = None

    @property
    def text(self) -> str:
        """The prefix with spaces between its tokens."""
        return " ".join(self.prefix)


@dataclass(frozen=True)
class SentimentExample:
    """A sentence or phrase of a film review, and whether it is "positive" or "negative"."""

    text: str
    sentiment: Literal["negative", "positive"]


@contextmanager
def open_lines(path: str | Path) -> Iterator[Iterator[tuple[int, str]]]:
    """Open a text file, gzipped or not, as lines numbered from 1 and without their ends.

    Raises FileError if it is missing, or is no such text.
    """
    import gzip
    import zlib

    name = Path(path)
    if not name.is_file():
        raise FileError(
            f"there is no file {name}; expected a data set. Name a file that is there; `attnflow "
            "data` lists the sets and where they are published."
        )
    opener = gzip.open if name.suffix == ".gz" else open
    try:
        # Text may hold characters that other line splitters take for the end of a line.
        with opener(name, "rt", encoding="utf-8", newline="\n") as file:
            yield ((i, line.rstrip("\r\n")) for i, line in enumerate(file, start=1))
    except (gzip.BadGzipFile, EOFError, UnicodeDecodeError, zlib.error) as error:
        raise FileError(
            f"{name} cannot be read ({error}); expected text in UTF-8"
            f"{', gzipped' if name.suffix == '.gz' else ''}. Get the file again."
        ) from error


def malformed(path: str | Path, line: int, given: str, expected: str) -> FileError:
    """The error for a line that is not as it should be."""
    return FileError(
        f"{path}, line {line}: {given}; expected {expected}. Correct the line, or get the file "
        "again."
    )
