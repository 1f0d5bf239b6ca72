"""The vocabulary of the verb-number model, and the replacement of words outside it."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import replace

from attnflow.models.builtin.verb_number import SPECIAL, TAGS, UNKNOWN
from attnflow.paper.data.data_sets import AgreementExample


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
