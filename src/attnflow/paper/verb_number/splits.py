"""Which examples train the verb-number model, and which are held out to test it.

The split is the same in every run, whatever the seed of the training. A prefix that is held out
occurs nowhere in what is trained on, in whichever file.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random

from attnflow.paper.data.grammar import MOST_ATTRACTORS, generate_agreement
from attnflow.paper.data.readers import AgreementExample, read_agreement_table, read_numpred
from attnflow.paper.verb_number.vocabulary import known_words, replace_rare

Examples = tuple[AgreementExample, ...]

SEED = 2020  # of the split
N_TEST, N_DEV = 2000, 1500  # prefixes of the natural distribution
N_ATTRACTORS = {1: 500, 2: 500, 3: 300, 4: 120, 5: 40}  # held out, by the number of attractors
N_TREEBANK = 500  # held out of the gold treebanks, by whole documents


@dataclass(frozen=True)
class Split:
    """Examples to train on and examples that are held out, all in the form of the vocabulary.

    natural: of the natural distribution. treebanks: with tags. hard: with attractors.
    dev: to choose between models by. test: sets to report on, by name.
    """

    natural: Examples
    treebanks: Examples
    hard: Examples
    dev: Examples
    test: dict[str, Examples]

    @property
    def training(self) -> Examples:
        """All that is trained on."""
        return self.natural + self.treebanks + self.hard


def split_folder(folder: str | Path) -> Split:
    """Read `linzen_numpred`, `amalgum_agreement` and `ud_agreement` in a folder, and split them.

    Raises FileError if a file is missing or is not what it should be.
    """
    root, random = Path(folder), Random(SEED)
    linzen = root / "linzen_numpred"
    natural = tuple(read_numpred(linzen / "numpred.val"))
    test, dev, natural = _take(natural, random, N_TEST, N_DEV)
    tests = {"natural": test}
    hard: Examples = ()
    for n, size in N_ATTRACTORS.items():
        examples = tuple(read_numpred(linzen / f"numpred.test.{n}", attractors=n))
        tests[f"{n} attractor{'s' if n > 1 else ''}"], rest = _take(examples, random, size)
        hard += rest
    held = prefixes([*dev, *(example for part in tests.values() for example in part)])
    natural, hard = without(natural, held), without(hard, held)
    # Words that occur in held-out prefixes only could not be learnt: they count as unknown.
    known = known_words(natural + hard)
    automatic, gold = (
        tuple(replace_rare(example, known) for example in read_agreement_table(root / name))
        for name in ("amalgum_agreement/agreement.tsv.gz", "ud_agreement/agreement.tsv.gz")
    )
    tests["treebank, no attractor"], gold = _take_documents(gold, random, N_TREEBANK)
    held |= prefixes(tests["treebank, no attractor"])
    parts = [without(part, held) for part in (natural, automatic + gold, hard)]
    return Split(parts[0], parts[1], parts[2], dev, tests)


def split_grammar(n: int = 4000, *, seed: int = 0) -> Split:
    """Make up n examples by the grammar, for want of data, and split them.

    A tenth is held out to choose models by, another to test them. Words are few, so that a model
    trained on this knows the rule, and no English.
    """
    made = tuple(generate_agreement(n, seed=seed))
    test, dev, rest = _take(made, Random(SEED), n // 10, n // 10)
    rest = without(rest, prefixes(test + dev))
    easy = tuple(example for example in rest if example.attractors == 0)
    hard = tuple(example for example in rest if example.attractors)
    tests = {"grammar": test}
    for k in range(MOST_ATTRACTORS + 1):
        tests[f"grammar, attractors {k}"] = tuple(e for e in test if e.attractors == k)
    return Split((), easy, hard, dev, tests)


def prefixes(examples: Iterable[AgreementExample]) -> set[tuple[str, ...]]:
    """The prefixes of examples."""
    return {example.prefix for example in examples}


def without(examples: Examples, held: set[tuple[str, ...]]) -> Examples:
    """The examples whose prefix is not held out."""
    return tuple(example for example in examples if example.prefix not in held)


def _take(examples: Sequence[AgreementExample], random: Random, *sizes: int) -> list[Examples]:
    """Random parts of these sizes, in which no two parts share a prefix, and the rest."""
    left = random.sample(list(examples), len(examples))
    parts: list[Examples] = []
    for size in sizes:
        part = tuple(left[:size])
        parts.append(part)
        left = list(without(tuple(left[size:]), prefixes(part)))
    return [*parts, tuple(left)]


def _take_documents(examples: Examples, random: Random, size: int) -> tuple[Examples, Examples]:
    """Examples without attractors of random whole documents, and those of all other documents."""
    documents = sorted({str(example.document) for example in examples})
    random.shuffle(documents)
    chosen: set[str] = set()
    taken: list[AgreementExample] = []
    for document in documents:
        if len(taken) >= size:
            break
        chosen.add(document)
        taken += [e for e in examples if e.document == document and e.attractors == 0]
    return tuple(taken), tuple(e for e in examples if str(e.document) not in chosen)
