"""Agreement examples from treebanks in the CoNLL-U format of Universal Dependencies.

A subject is a `nsubj` tagged NN or NNS, to the left of the finite verb of its clause: the predicate
itself if it is VBZ or VBP, or else its first finite auxiliary or copula.

Tables of agreement examples made from treebanks, as `read_agreement_table` reads them.
"""

import gzip
import io
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from attnflow.errors import InputError
from attnflow.paper.data.readers import (
    NUMBER_OF_NOUN,
    NUMBER_OF_VERB,
    AgreementExample,
    malformed,
    open_lines,
)

LONGEST = 50  # tokens of a sentence, as in the data of Linzen et al.
# "The point is that she sings": "point" is the subject of "is", but both hang on "sings".
OUTER = "nsubj:outer"
FINITE = {*NUMBER_OF_VERB, "VBD", "MD"}  # tags of finite verbs, only some of which show number


@dataclass(frozen=True)
class Token:
    """One word of a sentence. head: the index of its head, -1 for the root."""

    form: str
    tag: str
    head: int
    relation: str


def read_conllu(path: str | Path) -> Iterator[AgreementExample]:
    """Read a treebank, and yield an example for each subject and verb that must agree.

    Sentences of more than 50 tokens are left out, and so are subjects with a conjunct before the
    verb, pairs whose numbers disagree, and repeated prefixes.
    Raises FileError, naming the line, for a line that is not as it should be.
    """
    seen = set()
    for document, sentence in read_sentences(path):
        if len(sentence) > LONGEST:
            continue
        for example in find_agreement(sentence, document):
            key = (example.prefix, example.number)
            if key not in seen:
                seen.add(key)
                yield example


def read_sentences(path: str | Path) -> Iterator[tuple[str | None, list[Token]]]:
    """Read the sentences of a treebank, each with the name of its document if it has one.

    Ranges of words written together and empty nodes are left out, as they are no tokens.
    """
    document: str | None = None
    tokens: list[Token] = []
    first = 1
    with open_lines(path) as lines:
        for i, line in lines:
            if line.startswith("# newdoc id"):
                document = line.partition("=")[2].strip() or None
            if line.startswith("#"):
                continue
            if line.strip():
                first = i if not tokens else first
                token = _parse(path, i, line, len(tokens) + 1)
                tokens += [] if token is None else [token]
                continue
            if tokens:
                yield document, _checked(path, first, tokens)
            tokens = []
    if tokens:
        yield document, _checked(path, first, tokens)


def _parse(path: str | Path, i: int, line: str, expected: int) -> Token | None:
    cells = line.split("\t")
    if len(cells) != 10:
        raise malformed(path, i, f"{len(cells)} columns", "10 columns with tabs between them")
    number, form, _, _, tag, _, head, relation, _, _ = cells
    if "-" in number or "." in number:
        return None
    if number != str(expected):
        raise malformed(path, i, f"token {number!r}", f"token {expected}")
    if not head.isdecimal():
        raise malformed(path, i, f"the head is {head!r}", "a whole number")
    kind = OUTER if relation == OUTER else relation.partition(":")[0]
    return Token(form, tag, int(head) - 1, kind)


def _checked(path: str | Path, first: int, tokens: list[Token]) -> list[Token]:
    highest = max(token.head for token in tokens)
    if highest >= len(tokens):
        given = f"a head is {highest + 1}, in a sentence of {len(tokens)} tokens"
        raise malformed(path, first, given, "heads within the sentence")
    return tokens


def find_agreement(
    sentence: Sequence[Token], document: str | None = None
) -> Iterator[AgreementExample]:
    """The pairs of subject and verb of one sentence, in the order of their subjects."""
    for i, subject in enumerate(sentence):
        of_clause = subject.relation in ("nsubj", OUTER) and subject.head >= 0
        if not of_clause or subject.tag not in NUMBER_OF_NOUN:
            continue
        verb = _finite_verb(sentence, subject.head, outer=subject.relation == OUTER)
        if verb is None or verb <= i or _has_conjunct(sentence, i, verb):
            continue
        number = NUMBER_OF_NOUN[subject.tag]
        if NUMBER_OF_VERB.get(sentence[verb].tag) != number:
            continue
        between = [NUMBER_OF_NOUN.get(token.tag, number) for token in sentence[i + 1 : verb]]
        yield AgreementExample(
            tuple(token.form for token in sentence[:verb]),
            number,
            i,
            sum(one != number for one in between),
            tuple(token.tag for token in sentence[:verb]),
            document,
        )


def _finite_verb(sentence: Sequence[Token], predicate: int, *, outer: bool) -> int | None:
    """The index of the finite verb of a clause; None if it has none.

    outer: whether it is the clause around the predicate's own, whose verb is a copula.
    """
    if sentence[predicate].tag in FINITE and not outer:
        return predicate
    for i, token in enumerate(sentence):
        helps = token.head == predicate and token.relation in ("aux", "cop")
        if helps and token.tag in FINITE:
            return i
    return None


def _has_conjunct(sentence: Sequence[Token], subject: int, verb: int) -> bool:
    """Whether "and" another noun belongs to the subject, which then may be plural."""
    return any(
        token.head == subject and token.relation == "conj" for token in sentence[subject:verb]
    )


HEADER = (
    *("treebank", "doc", "sentence", "xpos", "subj_index", "verb_index", "subj_pos", "verb_pos"),
    *("verb", "n_intervening", "n_diff_intervening"),
)


def extract_agreement(treebanks: Sequence[str | Path], path: str | Path) -> int:
    """Write the agreement examples of treebanks in CoNLL-U to a gzipped table; how many there are.

    Sentences of more than 50 tokens are left out, and so are repetitions. The table is written
    whole or not at all, and the same treebanks give the same bytes.
    Raises FileError, naming the line, for a line that is not as it should be, and InputError if
    there are no examples.
    """
    rows = list(dict.fromkeys(row for one in treebanks for row in _rows(Path(one))))
    if not rows:
        names = ", ".join(str(one) for one in treebanks)
        raise InputError(
            f"{names or 'no treebank'} has no pair of a noun and a verb that agree",
            expected="treebanks in CoNLL-U with tags of the Penn Treebank",
            fix="Give other files.",
        )
    text = "".join("\t".join(row) + "\n" for row in (HEADER, *rows))
    out = Path(path)
    out.parent.mkdir(parents=True, exist_ok=True)
    part = out.with_name(f"{out.name}.{os.getpid()}.part")
    packed = io.BytesIO()
    with gzip.GzipFile(fileobj=packed, mode="wb", mtime=0) as file:
        file.write(text.encode())
    try:
        part.write_bytes(packed.getvalue())
        part.replace(out)
    finally:
        part.unlink(missing_ok=True)
    return len(rows)


def _rows(treebank: Path) -> Iterator[tuple[str, ...]]:
    name = treebank.name.partition(".")[0]
    for document, sentence in read_sentences(treebank):
        if len(sentence) > LONGEST:
            continue
        # A form may hold a space, which stands between tokens in the table.
        forms = " ".join(token.form.replace(" ", "_") for token in sentence)
        tags = " ".join(token.tag for token in sentence)
        for example in find_agreement(sentence):
            assert example.subject is not None, "examples of treebanks have a subject"
            subject, verb = example.subject, len(example.prefix)
            cells = (subject, verb, sentence[subject].tag, sentence[verb].tag, sentence[verb].form)
            nouns = _count_nouns(sentence[subject + 1 : verb])
            counts = (nouns, example.attractors)
            yield (name, document or name, forms, tags, *map(str, (*cells, *counts)))


def _count_nouns(tokens: Sequence[Token]) -> int:
    return sum(token.tag in NUMBER_OF_NOUN for token in tokens)
