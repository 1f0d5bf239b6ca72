"""Readers of the agreement data of Linzen, Dupoux and Goldberg (TACL 2016).

It was published in two forms: a "simple" one, and the whole table `agr_50_mostcommon_10K.tsv`.
In both, words outside the 10,000 most frequent are replaced by their part of speech in capitals.
"""

from collections.abc import Iterator
from pathlib import Path

from attnflow.data.example import (
    NUMBER_OF_VERB,
    AgreementExample,
    malformed,
    open_lines,
)
from attnflow.data.table import Columns, read_number

# What the whole table has in the columns that are read here.
NEEDED = ("sentence", "pos_sentence", "subj_index", "verb_index", "verb_pos", "n_diff_intervening")


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
        columns = Columns.from_header(path, lines, NEEDED)
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
