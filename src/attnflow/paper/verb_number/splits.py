"""Training, development and test sets of the verb-number model, and its vocabulary.

The split is the same in every run, whatever the seed of the training. No held-out prefix occurs in
the training examples, in any file.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from attnflow.models.builtin.verb_number import SPECIAL, TAGS, UNKNOWN
from attnflow.paper.data.data_sets import (
    MOST_ATTRACTORS,
    AgreementExample,
    generate_agreement,
    name_attractors,
    read_agreement_table,
    read_numpred,
)

Examples: TypeAlias = tuple[AgreementExample, ...]

SEED = 2020  # of the split
N_TEST, N_DEV = 2000, 1500  # held-out examples of the natural distribution
N_ATTRACTORS = {1: 500, 2: 500, 3: 300, 4: 120, 5: 40}  # held out, by number of attractors
N_TREEBANK = 500  # held out from the gold treebanks, in whole documents
# Tables of examples: from gold treebanks, which a test set is drawn from, and from parsed text.
GOLD = "ud_agreement/agreement.tsv.gz"
PARSED = (
    "amalgum_agreement/agreement.tsv.gz",
    "gum_agreement/agreement.tsv.gz",
    "wikipedia_agreement/core.tsv.gz",
    "wikipedia_agreement/tail.tsv.gz",
)
COPY_WORDS = 6  # equal words that make a prefix a copy of another one
# Names of test sets.
NATURAL, NO_ATTRACTOR = "natural", "treebank, no attractor"


@dataclass(frozen=True)
class Split:
    """Training examples and held-out examples, with tags in place of rare words.

    dev: held out, for choosing between models. test: held out, for reporting, by name of the set.
    """

    training: Examples
    dev: Examples
    test: dict[str, Examples]

    @property
    def held_out(self) -> set[tuple[str, ...]]:
        """The prefixes of the development and test sets."""
        return prefixes([*self.dev, *(example for part in self.test.values() for example in part)])


def split_folder(folder: str | Path) -> Split:
    """Read and split linzen_numpred and the tables extracted from treebanks and Wikipedia.

    folder: the data folder, which contains a folder for each data set.
    Raises FileError if a file is missing or invalid.
    """
    root, random = Path(folder), Random(SEED)
    linzen = _split_linzen(root, random)
    # Words that occur only in held-out prefixes cannot be learned, so they count as unknown.
    known = collect_words(linzen.training)

    def read(name: str) -> Examples:
        return tuple(replace_rare(example, known) for example in read_agreement_table(root / name))

    held_out_gold, gold = _draw_documents(read(GOLD), random, N_TREEBANK)
    test = {**linzen.test, NO_ATTRACTOR: held_out_gold}
    held_out = linzen.held_out | prefixes(held_out_gold)
    parsed = gold + tuple(example for name in PARSED for example in read(name))
    return Split(
        training=exclude(linzen.training, held_out) + exclude_copies(parsed, held_out),
        dev=linzen.dev,
        test=test,
    )


def read_test_sets(folder: str | Path) -> dict[str, Examples]:
    """Return the test sets of `split_folder`; without NO_ATTRACTOR if the treebanks are missing."""
    root, random = Path(folder), Random(SEED)
    linzen = _split_linzen(root, random)
    if not (root / GOLD).is_file():
        return linzen.test
    known = collect_words(linzen.training)
    gold = tuple(replace_rare(example, known) for example in read_agreement_table(root / GOLD))
    return {**linzen.test, NO_ATTRACTOR: _draw_documents(gold, random, N_TREEBANK)[0]}


def _split_linzen(folder: Path, random: Random) -> Split:
    """Read and split linzen_numpred."""
    data = folder / "linzen_numpred"
    natural = tuple(read_numpred(data / "numpred.val"))
    natural_test, dev, training = _draw(natural, random, N_TEST, N_DEV)
    test = {NATURAL: natural_test}
    for n, size in N_ATTRACTORS.items():
        examples = tuple(read_numpred(data / f"numpred.test.{n}", attractors=n))
        test[name_attractors(n)], rest = _draw(examples, random, size)
        training += rest
    split = Split(training=training, dev=dev, test=test)
    return replace(split, training=exclude(training, split.held_out))


def split_grammar(n: int = 4000, *, seed: int = 0) -> Split:
    """Generate n examples with the grammar, and split them.

    A tenth is the development set, a tenth the test set. The grammar has few words: a model trained
    on it learns the agreement rule, but not English.
    """
    examples = tuple(generate_agreement(n, seed=seed))
    grammar_test, dev, rest = _draw(examples, Random(SEED), n // 10, n // 10)
    test = {"grammar": grammar_test}
    for k in range(MOST_ATTRACTORS + 1):
        test[f"grammar, attractors {k}"] = tuple(e for e in grammar_test if e.attractors == k)
    return Split(training=exclude(rest, prefixes(grammar_test + dev)), dev=dev, test=test)


def prefixes(examples: Iterable[AgreementExample]) -> set[tuple[str, ...]]:
    """Return the prefixes of examples."""
    return {example.prefix for example in examples}


def exclude(examples: Examples, held_out: set[tuple[str, ...]]) -> Examples:
    """Return the examples whose prefix is not held out."""
    return tuple(example for example in examples if example.prefix not in held_out)


def exclude_copies(examples: Examples, held_out: set[tuple[str, ...]]) -> Examples:
    """Return the examples whose prefix is neither held out nor a copy of a held-out one.

    A copy may have tags for words, words for tags, or other tags. At least COPY_WORDS positions
    must have the same word.
    """
    words = sorted({token for prefix in held_out for token in prefix} - {*TAGS, UNKNOWN})
    # Tags are 0, words of held-out prefixes are from 1, and all other words -1.
    ids = {word: i + 1 for i, word in enumerate(words)} | dict.fromkeys((*TAGS, UNKNOWN), 0)

    def group(prefixes: Iterable[tuple[str, ...]]) -> dict[int, NDArray[np.int32]]:
        """Return the ids of prefixes [prefixes, tokens] by their number of tokens."""
        rows: dict[int, list[list[int]]] = {}
        for prefix in prefixes:
            rows.setdefault(len(prefix), []).append([ids.get(token, -1) for token in prefix])
        return {n: np.asarray(row, dtype=np.int32) for n, row in rows.items() if n >= COPY_WORDS}

    held = group(held_out)
    copies = {
        n: iter(_find_copies(rows, held[n]))
        for n, rows in group(example.prefix for example in examples).items()
        if n in held
    }
    return tuple(
        example
        for example in examples
        if not next(copies.get(len(example.prefix), iter(())), False)
        and example.prefix not in held_out
    )


def _find_copies(rows: NDArray[np.int32], held: NDArray[np.int32]) -> NDArray[np.bool_]:
    """Return which rows are copies of one of the held-out rows; see `exclude_copies`."""
    found = [np.zeros(0, dtype=bool)]
    for start in range(0, len(rows), 500):
        chunk = rows[start : start + 500, None]
        equal = (chunk == held) & (chunk > 0)  # [rows, held-out rows, tokens]
        fits = (equal | (chunk == 0) | (held == 0)).all(-1)
        found.append((fits & (equal.sum(-1) >= COPY_WORDS)).any(-1))
    return np.concatenate(found)


def _draw(examples: Sequence[AgreementExample], random: Random, *sizes: int) -> list[Examples]:
    """Draw random parts of these sizes. Returns them and the rest; no two share a prefix."""
    rest = random.sample(list(examples), len(examples))
    parts: list[Examples] = []
    for size in sizes:
        part = tuple(rest[:size])
        parts.append(part)
        rest = list(exclude(tuple(rest[size:]), prefixes(part)))
    return [*parts, tuple(rest)]


def _draw_documents(examples: Examples, random: Random, size: int) -> tuple[Examples, Examples]:
    """Draw whole documents until they have `size` examples without attractors.

    Returns these examples, and all examples of the other documents.
    """
    documents = sorted({str(example.document) for example in examples})
    random.shuffle(documents)
    chosen: set[str] = set()
    drawn: list[AgreementExample] = []
    for document in documents:
        if len(drawn) >= size:
            break
        chosen.add(document)
        drawn += [e for e in examples if e.document == document and e.attractors == 0]
    return tuple(drawn), tuple(e for e in examples if str(e.document) not in chosen)


def make_vocabulary(examples: Iterable[AgreementExample], *, min_count: int = 3) -> dict[str, int]:
    """Number the special tokens, the tags, and the words that occur at least `min_count` times.

    Words are sorted by frequency, then alphabetically: the same examples give the same ids.
    """
    counts = Counter(token for example in examples for token in example.prefix)
    frequent = {word for word, n in counts.items() if n >= min_count} - {*SPECIAL, *TAGS}
    words = sorted(frequent, key=lambda word: (-counts[word], word))
    return {word: i for i, word in enumerate([*SPECIAL, *TAGS, *words])}


def collect_words(examples: Iterable[AgreementExample]) -> frozenset[str]:
    """Return all tokens of the prefixes."""
    return frozenset(token for example in examples for token in example.prefix)


def replace_rare(example: AgreementExample, known: frozenset[str]) -> AgreementExample:
    """Return the example in lower case, with unknown words replaced by their tags.

    A word whose tag is missing or unknown too becomes [UNK].

    >>> example = AgreementExample(("The", "Zebras"), "plural", tags=("DT", "NNS"))
    >>> replace_rare(example, frozenset(["the", "NNS"])).prefix
    ('the', 'NNS')
    """
    tags = example.tags or ("",) * len(example.prefix)
    tokens = []
    for word, tag in zip(example.prefix, tags, strict=True):
        candidates = (word.lower(), tag)
        tokens.append(next((token for token in candidates if token in known), UNKNOWN))
    return replace(example, prefix=tuple(tokens))
