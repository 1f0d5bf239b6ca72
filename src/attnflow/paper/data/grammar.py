"""A small grammar that generates agreement examples, for tests and for use without data sets.

In "the big key near the old cabinets behind the door" the subject is "key". "cabinets" is an
attractor, because its number differs from the subject's; "door" is not.
"""

from collections.abc import Iterator, Sequence
from random import Random

from attnflow.errors import InputError
from attnflow.models.builtin import NUMBERS
from attnflow.paper.data.data_sets import AgreementExample, Number

MOST_ATTRACTORS = 4

NOUNS = {
    "singular": (
        *("key", "cabinet", "author", "book", "child", "door", "river", "city", "woman", "dog"),
        *("teacher", "house", "car", "song", "tree", "picture", "garden", "student", "man", "box"),
    ),
    "plural": (
        *("keys", "cabinets", "authors", "books", "children", "doors", "rivers", "cities"),
        *("women", "dogs", "teachers", "houses", "cars", "songs", "trees", "pictures"),
        *("gardens", "students", "men", "boxes"),
    ),
}
TAG_OF_NOUN: dict[Number, str] = {"singular": "NN", "plural": "NNS"}
ADJECTIVES = ("big", "old", "new", "small", "famous", "white")
PREPOSITIONS = ("to", "of", "near", "behind", "in", "with")
OPENINGS = ((), ("yesterday", ","), ("he", "said", "that"), ("in", "general", ","))
TAGS_OF_OPENINGS = ((), ("NN", ","), ("PRP", "VBD", "IN"), ("IN", "JJ", ","))


def generate_agreement(
    n: int, *, seed: int = 0, attractors: Sequence[int] = range(MOST_ATTRACTORS + 1)
) -> Iterator[AgreementExample]:
    """Generate n examples; singular and plural subjects are equally likely.

    seed: the same seed generates the same examples.
    attractors: the numbers of attractors to choose from, with equal probability; each 0 to 4.
    Raises InputError for other numbers of attractors, or none.

    >>> [example.text for example in generate_agreement(2, seed=2, attractors=[1])]
    ['the white dog near the boxes', 'in general , the garden near the trees']
    """
    if not attractors or not all(0 <= k <= MOST_ATTRACTORS for k in attractors):
        raise InputError(
            f"attractors is {list(attractors)}",
            expected=f"numbers from 0 to {MOST_ATTRACTORS}",
            fix="Pass at least one.",
        )
    random = Random(seed)
    for _ in range(n):
        yield _generate_example(random, random.choice(NUMBERS), random.choice(list(attractors)))


def _generate_example(random: Random, number: Number, attractors: int) -> AgreementExample:
    opening = random.randrange(len(OPENINGS))
    tokens, tags = list(OPENINGS[opening]), list(TAGS_OF_OPENINGS[opening])
    other_number: Number = "plural" if number == "singular" else "singular"
    later_numbers: list[Number] = [other_number] * attractors
    if random.random() < 0.3:  # a noun with the subject's number, which is not an attractor
        later_numbers.insert(random.randint(0, attractors), number)
    _append_noun(random, tokens, tags, number)
    subject = len(tokens) - 1
    for later_number in later_numbers:
        tokens.append(random.choice(PREPOSITIONS))
        tags.append("IN")
        _append_noun(random, tokens, tags, later_number)
    return AgreementExample(
        tuple(tokens), number, subject, attractors, tuple(tags), document="grammar"
    )


def _append_noun(random: Random, tokens: list[str], tags: list[str], number: Number) -> None:
    """Append an article, sometimes an adjective, and a noun."""
    tokens.append("the")
    tags.append("DT")
    if random.random() < 0.25:
        tokens.append(random.choice(ADJECTIVES))
        tags.append("JJ")
    tokens.append(random.choice(NOUNS[number]))
    tags.append(TAG_OF_NOUN[number])
