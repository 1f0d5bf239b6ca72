"""Agreement and sentiment examples: readers of text files and tables, and a small grammar.

The agreement data of Linzen, Dupoux and Goldberg (TACL 2016) was published in two formats: a simple
one (`read_numpred`) and the full table `agr_50_mostcommon_10K.tsv` (`read_linzen`). Both replace
words outside the 10,000 most frequent ones by their part-of-speech tags. `read_agreement_table`
reads tables that attnflow extracted from treebanks. SST-2 is the Stanford Sentiment Treebank with
two classes (Socher et al. 2013).

`generate_agreement` generates agreement examples, for tests and for use without data. In "the big
key near the old cabinets behind the door" the subject is "key". "cabinets" is an attractor, because
its number differs from the subject's; "door" is not.
"""

import gzip
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Literal, TypeAlias

from attnflow.errors import FileError, InputError
from attnflow.models.builtin import NUMBERS

Number: TypeAlias = Literal["singular", "plural"]
Sentiment: TypeAlias = Literal["negative", "positive"]

# Tags of the Penn Treebank: of present-tense verbs, and of common nouns.
NUMBER_OF_VERB: dict[str, Number] = {"VBZ": "singular", "VBP": "plural"}
NUMBER_OF_NOUN: dict[str, Number] = {"NN": "singular", "NNS": "plural"}

SENTIMENTS: dict[str, Sentiment] = {"0": "negative", "1": "positive"}  # by label

# The columns that are read; the files have more.
TREEBANK_COLUMNS = (
    *("doc", "sentence", "xpos", "subj_index", "verb_index", "verb_pos", "n_diff_intervening"),
)
LINZEN_COLUMNS = (
    *("sentence", "pos_sentence", "subj_index", "verb_index", "verb_pos", "n_diff_intervening"),
)

# The words of the grammar.
MOST_ATTRACTORS = 4

NOUNS = {
    "singular": (
        *("key", "cabinet", "author", "book", "child", "door", "river", "city", "woman", "dog"),
        *("teacher", "house", "car", "song", "tree", "picture", "garden", "student", "man", "box"),
    ),
    "plural": (
        *("keys", "cabinets", "authors", "books", "children", "doors", "rivers", "cities"),
        *("women", "dogs", "teachers", "houses", "cars", "songs", "trees", "pictures"),
        *("gardens", "students", "men", "boxes"),
    ),
}
TAG_OF_NOUN: dict[Number, str] = {"singular": "NN", "plural": "NNS"}
ADJECTIVES = ("big", "old", "new", "small", "famous", "white")
PREPOSITIONS = ("to", "of", "near", "behind", "in", "with")
OPENINGS = ((), ("yesterday", ","), ("he", "said", "that"), ("in", "general", ","))
TAGS_OF_OPENINGS = ((), ("NN", ","), ("PRP", "VBD", "IN"), ("IN", "JJ", ","))


@dataclass(frozen=True)
class AgreementExample:
    """A sentence up to its verb, and the number of the verb.

    prefix: the tokens before the verb. number: "singular" or "plural".
    subject: the index in the prefix of the noun that is the subject.
    attractors: how many nouns between subject and verb have the other number.
    tags: the part-of-speech tag of each token of the prefix.
    document: the document that the sentence comes from.
    The last four are None if they are unknown.
    """

    prefix: tuple[str, ...]
    number: Number
    subject: int | None = None
    attractors: int | None = None
    tags: tuple[str, ...] | None = None
    document: str | None = None

    @property
    def text(self) -> str:
        """The prefix as text, its tokens separated by spaces."""
        return " ".join(self.prefix)


@dataclass(frozen=True)
class SentimentExample:
    """A sentence or phrase of a film review, and its sentiment."""

    text: str
    sentiment: Sentiment


def read_numpred(path: str | Path, *, attractors: int | None = None) -> Iterator[AgreementExample]:
    """Read a file in the simple format of Linzen et al.: VBZ or VBP, a tab, and the prefix.

    attractors: the number of attractors of every example in the file, N for `numpred.test.N`.
    Raises FileError, with the line number, for an invalid line.
    """
    with open_lines(path) as lines:
        for i, line in lines:
            verb, tab, prefix = line.partition("\t")
            if not tab or verb not in NUMBER_OF_VERB or "\t" in prefix:
                raise invalid_line(path, i, repr(line[:60]), "VBZ or VBP, a tab, and a prefix")
            tokens = tuple(prefix.split())
            if not tokens:
                raise invalid_line(path, i, "the prefix is empty", "at least one token")
            yield AgreementExample(tokens, NUMBER_OF_VERB[verb], attractors=attractors)


def read_linzen(path: str | Path) -> Iterator[AgreementExample]:
    """Read the full table of Linzen et al., `agr_50_mostcommon_10K.tsv`, gzipped or not.

    Its column `sentence` has tags in place of rare words. Indices count from 1. Cells that contain
    quotation marks are quoted, as Python's csv module writes them.
    Raises FileError, with the line number, for an invalid row.
    """
    with open_lines(path) as lines:
        columns = Columns.from_header(path, lines, LINZEN_COLUMNS)
        for i, line in lines:
            row = {name: _unquote(cell) for name, cell in columns.split(i, line).items()}
            tokens = tuple(row["sentence"].split())
            verb = parse_count(path, i, row, "verb_index") - 1
            subject = parse_count(path, i, row, "subj_index") - 1
            # The sentence may end at the verb.
            if not 0 <= subject < verb <= len(tokens):
                given = f"subject {subject + 1} and verb {verb + 1} of {len(tokens)} tokens"
                raise invalid_line(path, i, given, "a subject before its verb, counted from 1")
            tags = tuple(row["pos_sentence"].split())
            yield AgreementExample(
                tokens[:verb],
                _parse_verb(path, i, row),
                subject,
                parse_count(path, i, row, "n_diff_intervening"),
                tags[:verb] if len(tags) >= verb else None,
            )


def read_agreement_table(path: str | Path) -> Iterator[AgreementExample]:
    """Read a table of examples extracted from treebanks, gzipped or not.

    The columns `sentence` and `xpos` hold tokens and their tags, separated by spaces. Indices count
    from 0. The first column is the genre or treebank, `doc` the document.
    Raises FileError, with the line number, for an invalid row.
    """
    with open_lines(path) as lines:
        columns = Columns.from_header(path, lines, TREEBANK_COLUMNS)
        for i, line in lines:
            row = columns.split(i, line)
            tokens, tags = tuple(row["sentence"].split(" ")), tuple(row["xpos"].split(" "))
            if len(tokens) != len(tags):
                given = f"{len(tokens)} tokens and {len(tags)} tags"
                raise invalid_line(path, i, given, "one tag for each token")
            subject = parse_count(path, i, row, "subj_index")
            verb = parse_count(path, i, row, "verb_index")
            if not subject < verb < len(tokens):
                given = f"subject {subject} and verb {verb} of {len(tokens)} tokens"
                raise invalid_line(path, i, given, "a subject before its verb, counted from 0")
            yield AgreementExample(
                tokens[:verb],
                _parse_verb(path, i, row),
                subject,
                parse_count(path, i, row, "n_diff_intervening"),
                tags[:verb],
                f"{row[columns.names[0]]}/{row['doc']}",
            )


def read_sst2(path: str | Path) -> Iterator[SentimentExample]:
    """Read a table of SST-2, with the columns `sentence` and `label` (0 or 1).

    Raises FileError, with the line number, for an invalid row.
    """
    with open_lines(path) as lines:
        columns = Columns.from_header(path, lines, ("sentence", "label"))
        for i, line in lines:
            row = columns.split(i, line)
            if row["label"] not in SENTIMENTS:
                raise invalid_line(path, i, f"the label is {row['label']!r}", "0 or 1")
            if not row["sentence"].strip():
                raise invalid_line(path, i, "the sentence is empty", "text")
            yield SentimentExample(row["sentence"].strip(), SENTIMENTS[row["label"]])


@contextmanager
def open_lines(path: str | Path) -> Iterator[Iterator[tuple[int, str]]]:
    """Open a text file, gzipped if its name ends in `.gz`, and iterate over its lines.

    Yields pairs of a line number, from 1, and the line without its line break.
    Raises FileError if the file does not exist or is not UTF-8 text.
    """
    file_path = Path(path)
    if not file_path.is_file():
        raise FileError(
            f"there is no file {file_path}",
            expected="a file of a data set",
            fix="Run `attnflow data` to see where the data sets are published.",
        )
    is_gzipped = file_path.suffix == ".gz"
    opener = gzip.open if is_gzipped else open
    try:
        # Not str.splitlines, which also splits at characters that occur inside sentences.
        with opener(file_path, "rt", encoding="utf-8", newline="\n") as file:
            yield ((i, line.rstrip("\r\n")) for i, line in enumerate(file, start=1))
    except (gzip.BadGzipFile, EOFError, UnicodeDecodeError, zlib.error) as error:
        raise FileError(
            f"{file_path} cannot be read ({error})",
            expected="gzipped UTF-8 text" if is_gzipped else "UTF-8 text",
            fix="Download the file again.",
        ) from error


@dataclass(frozen=True)
class Columns:
    """The column names of a tab-separated table. path: the file, for error messages."""

    path: str | Path
    names: tuple[str, ...]

    @classmethod
    def from_header(
        cls, path: str | Path, lines: Iterator[tuple[int, str]], required: Sequence[str]
    ) -> "Columns":
        """Read the header, which is the first line.

        Raises FileError if required columns are missing.
        """
        _, header = next(lines, (1, ""))
        names = tuple(header.split("\t"))
        missing = [name for name in required if name not in names]
        if missing:
            given = f"the header has no {', '.join(missing)}"
            raise invalid_line(path, 1, given, f"the columns {', '.join(required)}")
        return cls(path, names)

    def split(self, line_number: int, line: str) -> dict[str, str]:
        """Return the cells of a row by column name.

        Raises FileError if the row has more or fewer cells than the header.
        """
        cells = line.split("\t")
        if len(cells) != len(self.names):
            given = f"{len(cells)} cells"
            raise invalid_line(
                self.path, line_number, given, f"{len(self.names)}, as in the header"
            )
        return dict(zip(self.names, cells, strict=True))


def parse_count(path: str | Path, line_number: int, row: Mapping[str, str], column: str) -> int:
    """Return the whole number in a cell. Raises FileError if it is not a number of 0 or more."""
    cell = row[column]
    if not cell.isascii() or not cell.isdecimal():
        raise invalid_line(path, line_number, f"{column} is {cell!r}", "a whole number")
    return int(cell)


def invalid_line(path: str | Path, line_number: int, given: str, expected: str) -> FileError:
    """Return the error for an invalid line of a file."""
    return FileError(
        f"{path}, line {line_number}: {given}",
        expected=expected,
        fix="Correct the line, or download the file again.",
    )


def _parse_verb(path: str | Path, line_number: int, row: Mapping[str, str]) -> Number:
    tag = row["verb_pos"]
    if tag not in NUMBER_OF_VERB:
        raise invalid_line(path, line_number, f"verb_pos is {tag!r}", "VBZ or VBP")
    return NUMBER_OF_VERB[tag]


def _unquote(cell: str) -> str:
    """Remove the quotation marks around a quoted cell.

    >>> _unquote('"the ""key"" is"')
    'the "key" is'
    """
    is_quoted = len(cell) > 1 and cell.startswith('"') and cell.endswith('"')
    return cell[1:-1].replace('""', '"') if is_quoted else cell


def name_attractors(n: int) -> str:
    """Return the name of the set of examples with n attractors.

    >>> name_attractors(1), name_attractors(2)
    ('1 attractor', '2 attractors')
    """
    return f"{n} attractor{'' if n == 1 else 's'}"


def generate_agreement(
    n: int, *, seed: int = 0, attractors: Sequence[int] = range(MOST_ATTRACTORS + 1)
) -> Iterator[AgreementExample]:
    """Generate n examples; singular and plural subjects are equally likely.

    seed: the same seed generates the same examples.
    attractors: the numbers of attractors to choose from, with equal probability; each 0 to 4.
    Raises InputError for other numbers of attractors, or none.

    >>> [example.text for example in generate_agreement(2, seed=2, attractors=[1])]
    ['the white dog near the boxes', 'in general , the garden near the trees']
    """
    if not attractors or not all(0 <= k <= MOST_ATTRACTORS for k in attractors):
        raise InputError(
            f"attractors is {list(attractors)}",
            expected=f"numbers from 0 to {MOST_ATTRACTORS}",
            fix="Pass at least one.",
        )
    random = Random(seed)
    for _ in range(n):
        yield _generate_example(random, random.choice(NUMBERS), random.choice(list(attractors)))


def _generate_example(random: Random, number: Number, attractors: int) -> AgreementExample:
    opening = random.randrange(len(OPENINGS))
    tokens, tags = list(OPENINGS[opening]), list(TAGS_OF_OPENINGS[opening])
    other_number: Number = "plural" if number == "singular" else "singular"
    later_numbers: list[Number] = [other_number] * attractors
    if random.random() < 0.3:  # a noun with the subject's number, which is not an attractor
        later_numbers.insert(random.randint(0, attractors), number)
    _append_noun(random, tokens, tags, number)
    subject = len(tokens) - 1
    for later_number in later_numbers:
        tokens.append(random.choice(PREPOSITIONS))
        tags.append("IN")
        _append_noun(random, tokens, tags, later_number)
    return AgreementExample(
        tuple(tokens), number, subject, attractors, tuple(tags), document="grammar"
    )


def _append_noun(random: Random, tokens: list[str], tags: list[str], number: Number) -> None:
    """Append an article, sometimes an adjective, and a noun."""
    tokens.append("the")
    tags.append("DT")
    if random.random() < 0.25:
        tokens.append(random.choice(ADJECTIVES))
        tags.append("JJ")
    tokens.append(random.choice(NOUNS[number]))
    tags.append(TAG_OF_NOUN[number])
