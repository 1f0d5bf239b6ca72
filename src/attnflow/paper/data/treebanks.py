"""Agreement examples from treebanks in the CoNLL-U format of Universal Dependencies.

A subject is an `nsubj` tagged NN or NNS that precedes the finite verb of its clause. That verb is
the predicate itself if it is finite, otherwise its first finite auxiliary or copula.
`read_conllu` yields examples; `extract_agreement` writes the tables that `read_agreement_table`
reads.
"""

import io
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from gzip import GzipFile
from pathlib import Path

from attnflow.errors import InputError
from attnflow.paper.data.data_sets import (
    NUMBER_OF_NOUN,
    NUMBER_OF_VERB,
    AgreementExample,
    invalid_line,
    open_lines,
)
from attnflow.storage import write_atomic

MAX_TOKENS = 50  # of a sentence, as in the data of Linzen et al.
# "The point is that she sings": "point" is the subject of "is", but both depend on "sings".
OUTER_SUBJECT = "nsubj:outer"
FINITE = {*NUMBER_OF_VERB, "VBD", "MD"}  # tags of finite verbs, also of those without number

HEADER = (
    *("treebank", "doc", "sentence", "xpos", "subj_index", "verb_index", "subj_pos", "verb_pos"),
    *("verb", "n_intervening", "n_diff_intervening"),
)


@dataclass(frozen=True)
class Token:
    """A word of a sentence. head: the index of its head; -1 for the root."""

    form: str
    tag: str
    head: int
    relation: str


def read_conllu(path: str | Path) -> Iterator[AgreementExample]:
    """Read a treebank, and yield an example for each subject and verb that agree.

    Skips sentences of more than 50 tokens, subjects with a conjunct before the verb, pairs whose
    numbers disagree, and repeated prefixes.
    Raises FileError, with the line number, for an invalid line.
    """
    seen = set()
    for document, sentence in read_sentences(path):
        if len(sentence) > MAX_TOKENS:
            continue
        for example in find_agreement(sentence, document):
            key = (example.prefix, example.number)
            if key not in seen:
                seen.add(key)
                yield example


def extract_agreement(treebanks: Sequence[str | Path], path: str | Path) -> int:
    """Write the agreement examples of treebanks to a gzipped table; return the number of rows.

    Skips sentences of more than 50 tokens, and repeated rows. The file is written atomically, and
    the same treebanks give the same bytes.
    Raises FileError, with the line number, for an invalid line; InputError if there are no
    examples; DiskError if the table cannot be written.
    """
    rows = list(dict.fromkeys(row for treebank in treebanks for row in _table_rows(Path(treebank))))
    if not rows:
        names = ", ".join(str(treebank) for treebank in treebanks)
        raise InputError(
            f"there is no subject that agrees with its verb in {names or 'no treebanks'}",
            expected="treebanks in CoNLL-U with the tags of the Penn Treebank",
            fix="Choose other files.",
        )
    text = "".join("\t".join(row) + "\n" for row in (HEADER, *rows))
    compressed = io.BytesIO()
    # Without the time of writing, which would change the bytes.
    with GzipFile(fileobj=compressed, mode="wb", mtime=0) as file:
        file.write(text.encode())
    table = Path(path)
    table.parent.mkdir(parents=True, exist_ok=True)
    write_atomic(table, lambda file: file.write(compressed.getvalue()))
    return len(rows)


def read_sentences(path: str | Path) -> Iterator[tuple[str | None, list[Token]]]:
    """Yield the sentences of a treebank, each with the name of its document or None.

    Multiword tokens and empty nodes are skipped.
    Raises FileError, with the line number, for an invalid line.
    """
    document: str | None = None
    tokens: list[Token] = []
    first_line = 1  # of the sentence
    with open_lines(path) as lines:
        for i, line in lines:
            if line.startswith("# newdoc id"):
                document = line.partition("=")[2].strip() or None
            if line.startswith("#"):
                continue
            if line.strip():
                first_line = i if not tokens else first_line
                token = _parse_token(path, i, line, len(tokens) + 1)
                tokens += [] if token is None else [token]
                continue
            if tokens:
                _check_heads(path, first_line, tokens)
                yield document, tokens
            tokens = []
    if tokens:
        _check_heads(path, first_line, tokens)
        yield document, tokens


def find_agreement(
    sentence: Sequence[Token], document: str | None = None
) -> Iterator[AgreementExample]:
    """Yield an example for each subject and verb of a sentence, in the order of the subjects."""
    for i, subject in enumerate(sentence):
        is_subject = subject.relation in ("nsubj", OUTER_SUBJECT) and subject.head >= 0
        if not is_subject or subject.tag not in NUMBER_OF_NOUN:
            continue
        verb = _find_finite_verb(sentence, subject.head, outer=subject.relation == OUTER_SUBJECT)
        if verb is None or verb <= i or _has_conjunct(sentence, i, verb):
            continue
        number = NUMBER_OF_NOUN[subject.tag]
        if NUMBER_OF_VERB.get(sentence[verb].tag) != number:
            continue
        numbers = [NUMBER_OF_NOUN.get(token.tag, number) for token in sentence[i + 1 : verb]]
        yield AgreementExample(
            tuple(token.form for token in sentence[:verb]),
            number,
            i,
            sum(other != number for other in numbers),
            tuple(token.tag for token in sentence[:verb]),
            document,
        )


def _parse_token(path: str | Path, line_number: int, line: str, position: int) -> Token | None:
    """Parse a line. position: the expected number of the token, from 1.

    Returns None for a multiword token such as 1-2, and for an empty node such as 2.1.
    """
    cells = line.split("\t")
    if len(cells) != 10:
        raise invalid_line(path, line_number, f"{len(cells)} columns", "10, separated by tabs")
    number, form, _, _, tag, _, head, relation, _, _ = cells
    if "-" in number or "." in number:
        return None
    if number != str(position):
        raise invalid_line(path, line_number, f"token {number!r}", f"token {position}")
    if not head.isdecimal():
        raise invalid_line(path, line_number, f"the head is {head!r}", "a whole number")
    # Other subtypes, such as nsubj:pass, do not matter.
    base_relation = relation if relation == OUTER_SUBJECT else relation.partition(":")[0]
    return Token(form, tag, int(head) - 1, base_relation)


def _check_heads(path: str | Path, line_number: int, tokens: list[Token]) -> None:
    highest = max(token.head for token in tokens)
    if highest >= len(tokens):
        given = f"a head is {highest + 1} in a sentence of {len(tokens)} tokens"
        raise invalid_line(path, line_number, given, "heads within the sentence")


def _find_finite_verb(sentence: Sequence[Token], predicate: int, *, outer: bool) -> int | None:
    """Return the index of the finite verb of a clause, or None.

    outer: whether the clause is the one around the predicate's own clause; its verb is a copula.
    """
    if sentence[predicate].tag in FINITE and not outer:
        return predicate
    for i, token in enumerate(sentence):
        is_auxiliary = token.head == predicate and token.relation in ("aux", "cop")
        if is_auxiliary and token.tag in FINITE:
            return i
    return None


def _has_conjunct(sentence: Sequence[Token], subject: int, verb: int) -> bool:
    """Whether the subject is coordinated with another noun, which can make it plural."""
    return any(
        token.head == subject and token.relation == "conj" for token in sentence[subject:verb]
    )


def _table_rows(treebank: Path) -> Iterator[tuple[str, ...]]:
    name = treebank.name.partition(".")[0]
    for document, sentence in read_sentences(treebank):
        if len(sentence) > MAX_TOKENS:
            continue
        # Spaces separate tokens in the table, and a form may contain one.
        forms = " ".join(token.form.replace(" ", "_") for token in sentence)
        tags = " ".join(token.tag for token in sentence)
        for example in find_agreement(sentence):
            assert example.subject is not None, "find_agreement sets the subject"
            subject, verb = example.subject, len(example.prefix)
            n_nouns = sum(token.tag in NUMBER_OF_NOUN for token in sentence[subject + 1 : verb])
            words = (sentence[subject].tag, sentence[verb].tag, sentence[verb].form)
            cells = (subject, verb, *words, n_nouns, example.attractors)
            yield (name, document or name, forms, tags, *map(str, cells))
