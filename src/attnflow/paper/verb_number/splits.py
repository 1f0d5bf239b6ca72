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
TREEBANKS = ("amalgum_agreement/agreement.tsv.gz", "ud_agreement/agreement.tsv.gz")
# Names of test sets.
NATURAL, NO_ATTRACTOR = "natural", "treebank, no attractor"


@dataclass(frozen=True)
class Split:
    """Training examples and held-out examples, with tags in place of rare words.

    natural: training examples of the natural distribution. treebanks: training examples with tags.
    hard: training examples with attractors.
    dev: held out, for choosing between models. test: held out, for reporting, by name of the set.
    """

    natural: Examples
    treebanks: Examples
    hard: Examples
    dev: Examples
    test: dict[str, Examples]

    @property
    def training(self) -> Examples:
        """All training examples."""
        return self.natural + self.treebanks + self.hard

    @property
    def held_out(self) -> set[tuple[str, ...]]:
        """The prefixes of the development and test sets."""
        return prefixes([*self.dev, *(example for part in self.test.values() for example in part)])


def split_folder(folder: str | Path) -> Split:
    """Read and split the data sets linzen_numpred, amalgum_agreement and ud_agreement.

    folder: the data folder, which contains a folder for each.
    Raises FileError if a file is missing or invalid.
    """
    random = Random(SEED)
    linzen = _split_linzen(folder, random)
    test, held_out = dict(linzen.test), linzen.held_out
    # Words that occur only in held-out prefixes cannot be learned, so they count as unknown.
    known = collect_words(linzen.training)
    automatic, gold = (
        tuple(replace_rare(example, known) for example in read_agreement_table(Path(folder) / name))
        for name in TREEBANKS
    )
    test[NO_ATTRACTOR], gold = _draw_documents(gold, random, N_TREEBANK)
    held_out |= prefixes(test[NO_ATTRACTOR])
    return Split(
        natural=exclude(linzen.natural, held_out),
        treebanks=exclude(automatic + gold, held_out),
        hard=exclude(linzen.hard, held_out),
        dev=linzen.dev,
        test=test,
    )


def read_test_sets(folder: str | Path) -> dict[str, Examples]:
    """Return the test sets of `split_folder`; without NO_ATTRACTOR if a treebank is missing."""
    if all((Path(folder) / table).is_file() for table in TREEBANKS):
        return split_folder(folder).test
    return _split_linzen(folder, Random(SEED)).test


def _split_linzen(folder: str | Path, random: Random) -> Split:
    """Read and split linzen_numpred."""
    data = Path(folder) / "linzen_numpred"
    natural = tuple(read_numpred(data / "numpred.val"))
    natural_test, dev, natural = _draw(natural, random, N_TEST, N_DEV)
    test = {NATURAL: natural_test}
    hard: Examples = ()
    for n, size in N_ATTRACTORS.items():
        examples = tuple(read_numpred(data / f"numpred.test.{n}", attractors=n))
        test[name_attractors(n)], rest = _draw(examples, random, size)
        hard += rest
    split = Split(natural=natural, treebanks=(), hard=hard, dev=dev, test=test)
    held_out = split.held_out
    return replace(split, natural=exclude(natural, held_out), hard=exclude(hard, held_out))


def split_grammar(n: int = 4000, *, seed: int = 0) -> Split:
    """Generate n examples with the grammar, and split them.

    A tenth is the development set, a tenth the test set. The grammar has few words: a model trained
    on it learns the agreement rule, but not English.
    """
    examples = tuple(generate_agreement(n, seed=seed))
    grammar_test, dev, rest = _draw(examples, Random(SEED), n // 10, n // 10)
    rest = exclude(rest, prefixes(grammar_test + dev))
    test = {"grammar": grammar_test}
    for k in range(MOST_ATTRACTORS + 1):
        test[f"grammar, attractors {k}"] = tuple(e for e in grammar_test if e.attractors == k)
    return Split(
        natural=(),
        treebanks=tuple(example for example in rest if example.attractors == 0),
        hard=tuple(example for example in rest if example.attractors),
        dev=dev,
        test=test,
    )


def prefixes(examples: Iterable[AgreementExample]) -> set[tuple[str, ...]]:
    """Return the prefixes of examples."""
    return {example.prefix for example in examples}


def exclude(examples: Examples, held_out: set[tuple[str, ...]]) -> Examples:
    """Return the examples whose prefix is not held out."""
    return tuple(example for example in examples if example.prefix not in held_out)


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
