"""Agreement sentences of a file that the user has: any form that attnflow reads."""

import json
from dataclasses import replace
from pathlib import Path
from random import Random

from attnflow.models.builtin.folders import BUNDLED, find_folder
from attnflow.paper.data.readers import (
    AgreementExample,
    open_lines,
    read_agreement_table,
    read_linzen,
    read_numpred,
)
from attnflow.paper.data.treebanks import read_conllu
from attnflow.paper.verb_number.vocabulary import replace_rare


def read_file(path: Path) -> tuple[AgreementExample, ...]:
    """The examples of a file, each prefix once, in the form that the verb-number model knows.

    What kind of file it is, its name and first line tell: `.conllu` is a treebank, a header with
    `pos_sentence` the whole table of Linzen et al., one with `xpos` a table of treebanks, and all
    else the simple form; of numpred.test.N, N is the number of attractors.
    Raises FileError, naming the line, for a line that is not as it should be.
    """
    with open_lines(path) as lines:
        header = next(lines, (1, ""))[1].split("\t")
    if ".conllu" in path.name:
        examples = read_conllu(path)
    elif "pos_sentence" in header:
        examples = read_linzen(path)
    elif "xpos" in header:
        examples = read_agreement_table(path)
    else:
        last = path.name.removesuffix(".gz").rpartition(".")[2]
        examples = read_numpred(path, attractors=int(last) if last.isdecimal() else None)
    known = _known_words()
    found: dict[tuple[str, ...], AgreementExample] = {}
    for example in examples:
        # Only where tags are given can they stand for words that the model does not know.
        formed = example if example.tags is None else replace_rare(example, known)
        found.setdefault(formed.prefix, replace(formed, tags=None))
    return tuple(found.values())


def draw(
    examples: tuple[AgreementExample, ...], n: int | None, seed: int
) -> tuple[AgreementExample, ...]:
    """As many random ones; all if there are no more, or no n is given."""
    if n is None or n >= len(examples):
        return examples
    return tuple(Random(seed).sample(examples, n))


def _known_words() -> frozenset[str]:
    """The words and tags of the bundled model."""
    folder = find_folder(BUNDLED[0])
    assert folder is not None, "the bundled model has a folder"
    text = (folder / "tokenizer.json").read_text(encoding="utf-8")
    return frozenset(json.loads(text)["model"]["vocab"])
