"""Tables with a header and tabs between the columns, and agreement examples in such tables."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from attnflow.data.example import NUMBER_OF_VERB, AgreementExample, malformed, open_lines

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
