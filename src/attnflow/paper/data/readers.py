"""The two kinds of example that data sets are read as.

Tables with a header and tabs between the columns, and agreement examples in such tables.

Readers of the agreement data of Linzen, Dupoux and Goldberg (TACL 2016).

It was published in two forms: a "simple" one, and the whole table `agr_50_mostcommon_10K.tsv`.
In both, words outside the 10,000 most frequent are replaced by their part of speech in capitals.

Reader of SST-2, the Stanford Sentiment Treebank with two classes (Socher et al. 2013).
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias

from attnflow.errors import FileError

Number: TypeAlias = Literal["singular", "plural"]

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
            f"there is no file {name}",
            expected="a data set",
            fix="Name a file that is there; `attnflow data` lists the sets and where they are "
            "published.",
        )
    opener = gzip.open if name.suffix == ".gz" else open
    try:
        # Text may hold characters that other line splitters take for the end of a line.
        with opener(name, "rt", encoding="utf-8", newline="\n") as file:
            yield ((i, line.rstrip("\r\n")) for i, line in enumerate(file, start=1))
    except (gzip.BadGzipFile, EOFError, UnicodeDecodeError, zlib.error) as error:
        raise FileError(
            f"{name} cannot be read ({error})",
            expected=f"text in UTF-8{', gzipped' if name.suffix == '.gz' else ''}",
            fix="Get the file again.",
        ) from error


def malformed(path: str | Path, line: int, given: str, expected: str) -> FileError:
    """The error for a line that is not as it should be."""
    return FileError(
        f"{path}, line {line}: {given}",
        expected=f"{expected}",
        fix="Correct the line, or get the file again.",
    )


NEEDED = ("doc", "sentence", "xpos", "subj_index", "verb_index", "verb_pos", "n_diff_intervening")


@dataclass(frozen=True)
class Columns:
    """The names of the columns of a table. path: the file, for error messages."""

    path: str | Path
    names: tuple[str, ...]

    @classmethod
    def from_header(
        cls, path: str | Path, lines: Iterator[tuple[int, str]], needed: Sequence[str]
    ) -> "Columns":
        """Read the header, the first of the lines. Raises FileError if columns are missing."""
        _, header = next(lines, (1, ""))
        names = tuple(header.split("\t"))
        missing = [name for name in needed if name not in names]
        if missing:
            raise malformed(
                path, 1, f"the header lacks {', '.join(missing)}", f"columns {', '.join(needed)}"
            )
        return cls(path, names)

    def split(self, line: int, text: str) -> dict[str, str]:
        """The cells of a row by the names of their columns."""
        cells = text.split("\t")
        if len(cells) != len(self.names):
            raise malformed(
                self.path, line, f"{len(cells)} cells", f"{len(self.names)}, as in the header"
            )
        return dict(zip(self.names, cells, strict=True))


def read_number(path: str | Path, line: int, row: Mapping[str, str], name: str) -> int:
    """A whole number in a row, 0 or greater."""
    if not row[name].isascii() or not row[name].isdecimal():
        raise malformed(path, line, f"{name} is {row[name]!r}", "a whole number")
    return int(row[name])


def read_agreement_table(path: str | Path) -> Iterator[AgreementExample]:
    """Read examples extracted from treebanks: tokens, tags, and where subject and verb are.

    The columns `sentence` and `xpos` are parallel, with spaces between tokens; indices count
    from 0. The first column names the genre or the treebank, `doc` the document.
    Raises FileError, naming the line, for a row that is not as it should be.
    """
    with open_lines(path) as lines:
        columns = Columns.from_header(path, lines, NEEDED)
        for i, line in lines:
            row = columns.split(i, line)
            tokens, tags = tuple(row["sentence"].split(" ")), tuple(row["xpos"].split(" "))
            if len(tokens) != len(tags):
                given = f"{len(tokens)} tokens and {len(tags)} tags"
                raise malformed(path, i, given, "one tag for each token")
            subject, verb = (read_number(path, i, row, f"{w}_index") for w in ("subj", "verb"))
            if not subject < verb < len(tokens):
                given = f"subject {subject} and verb {verb} of {len(tokens)} tokens"
                raise malformed(path, i, given, "a subject before its verb, counted from 0")
            if row["verb_pos"] not in NUMBER_OF_VERB:
                raise malformed(path, i, f"the verb is {row['verb_pos']!r}", "VBZ or VBP")
            yield AgreementExample(
                tokens[:verb],
                NUMBER_OF_VERB[row["verb_pos"]],
                subject,
                read_number(path, i, row, "n_diff_intervening"),
                tags[:verb],
                f"{row[columns.names[0]]}/{row['doc']}",
            )


# What the whole table has in the columns that are read here.
LINZEN_COLUMNS = (
    "sentence",
    "pos_sentence",
    "subj_index",
    "verb_index",
    "verb_pos",
    "n_diff_intervening",
)


def read_numpred(path: str | Path, *, attractors: int | None = None) -> Iterator[AgreementExample]:
    """Read a file of the simple form: VBZ or VBP, a tab, and the prefix.

    attractors: how many each example of the file has, if that is known: N for `numpred.test.N`.
    Raises FileError, naming the line, for a line that is something else.
    """
    with open_lines(path) as lines:
        for i, line in lines:
            verb, tab, prefix = line.partition("\t")
            if not tab or verb not in NUMBER_OF_VERB or "\t" in prefix:
                raise malformed(path, i, repr(line[:60]), "VBZ or VBP, a tab, and a prefix")
            tokens = tuple(prefix.split())
            if not tokens:
                raise malformed(path, i, "the prefix is empty", "at least one token")
            yield AgreementExample(tokens, NUMBER_OF_VERB[verb], attractors=attractors)


def read_linzen(path: str | Path) -> Iterator[AgreementExample]:
    """Read the whole table, `agr_50_mostcommon_10K.tsv` or a gzipped copy.

    Its `sentence` has rare words replaced by tags. Its indices count from 1. Cells that hold
    quotation marks are quoted, as Python's csv module writes them.
    Raises FileError, naming the line, for a row that is not as it should be.
    """
    with open_lines(path) as lines:
        columns = Columns.from_header(path, lines, LINZEN_COLUMNS)
        for i, line in lines:
            row = {name: _unquote(cell) for name, cell in columns.split(i, line).items()}
            tokens = tuple(row["sentence"].split())
            verb = read_number(path, i, row, "verb_index") - 1
            subject = read_number(path, i, row, "subj_index") - 1
            if not 0 <= subject < verb <= len(tokens):
                given = f"subject {subject + 1} and verb {verb + 1} of {len(tokens)} tokens"
                raise malformed(path, i, given, "a subject before its verb, counted from 1")
            if row["verb_pos"] not in NUMBER_OF_VERB:
                raise malformed(path, i, f"the verb is {row['verb_pos']!r}", "VBZ or VBP")
            tags = tuple(row["pos_sentence"].split())
            yield AgreementExample(
                tokens[:verb],
                NUMBER_OF_VERB[row["verb_pos"]],
                subject,
                read_number(path, i, row, "n_diff_intervening"),
                tags[:verb] if len(tags) >= verb else None,
            )


def _unquote(cell: str) -> str:
    """A cell without the quotation marks around it, if it was quoted.

    >>> _unquote('"the ""key"" is"')
    'the "key" is'
    """
    quoted = len(cell) > 1 and cell.startswith('"') and cell.endswith('"')
    return cell[1:-1].replace('""', '"') if quoted else cell


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
