"""Tables of agreement examples made from treebanks, as `read_agreement_table` reads them."""

import gzip
import io
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from attnflow.data.conllu import LONGEST, Token, find_agreement, read_sentences
from attnflow.data.example import NUMBER_OF_NOUN
from attnflow.errors import InputError

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
            f"{names or 'no treebank'} has no pair of a noun and a verb that agree; expected "
            "treebanks in CoNLL-U with tags of the Penn Treebank. Give other files."
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
