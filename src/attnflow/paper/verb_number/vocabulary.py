"""The vocabulary of the verb-number model, counted from examples."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import replace

from attnflow.models.builtin.verb_number import SPECIAL, TAGS, UNKNOWN
from attnflow.paper.data.readers import AgreementExample


def known_words(examples: Iterable[AgreementExample]) -> frozenset[str]:
    """All words of examples that are in the form already."""
    return frozenset(token for example in examples for token in example.prefix)


def replace_rare(example: AgreementExample, known: frozenset[str]) -> AgreementExample:
    """The example in lower case, with the tag of each word that is not known in its place.

    A word whose tag is not known either, or that has none, becomes [UNK].

    >>> example = AgreementExample(("The", "Zebras"), "plural", tags=("DT", "NNS"))
    >>> replace_rare(example, frozenset(["the", "NNS"])).prefix
    ('the', 'NNS')
    """
    tags = example.tags or ("",) * len(example.prefix)
    tokens = []
    for word, tag in zip(example.prefix, tags, strict=True):
        options = (word.lower(), tag)
        tokens.append(next((option for option in options if option in known), UNKNOWN))
    return replace(example, prefix=tuple(tokens))


def make_vocabulary(examples: Iterable[AgreementExample], *, rarest: int = 3) -> dict[str, int]:
    """Number the special tokens, the tags, and the words that occur `rarest` times or more.

    Words come in the order of how often they occur; the same examples give the same numbers.
    """
    counts = Counter(token for example in examples for token in example.prefix)
    frequent = [word for word, n in counts.items() if n >= rarest and word not in TAGS]
    words = sorted(set(frequent) - set(SPECIAL), key=lambda word: (-counts[word], word))
    return {word: i for i, word in enumerate([*SPECIAL, *TAGS, *words])}
