"""A small grammar that makes up agreement examples, for tests and for want of data.

"the big key near the old cabinets behind the door" has the subject "key" and one attractor, the
noun "cabinets", whose number is the other one; "door" has the subject's own.
"""

from collections.abc import Iterator, Sequence
from random import Random

from attnflow.errors import InputError
from attnflow.models.builtin.folders import NUMBERS
from attnflow.paper.data.readers import AgreementExample, Number

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
    """Make up n examples, as many singular as plural ones but for chance.

    attractors: how many an example may have; each is as likely. At most 4.
    The same seed gives the same examples.
    Raises InputError for attractors that the grammar cannot make.
    """
    if not attractors or not all(0 <= k <= MOST_ATTRACTORS for k in attractors):
        raise InputError(
            f"attractors is {list(attractors)}",
            expected=f"numbers from 0 to {MOST_ATTRACTORS}",
            fix="Give at least one.",
        )
    random = Random(seed)
    for _ in range(n):
        yield _make(random, random.choice(NUMBERS), random.choice(list(attractors)))


def _make(random: Random, number: Number, attractors: int) -> AgreementExample:
    opening = random.randrange(len(OPENINGS))
    tokens, tags = list(OPENINGS[opening]), list(TAGS_OF_OPENINGS[opening])
    other: Number = "plural" if number == "singular" else "singular"
    numbers: list[Number] = [other] * attractors
    if random.random() < 0.3:  # a noun that is no attractor, since it has the subject's number
        numbers.insert(random.randint(0, attractors), number)
    _add_noun(random, tokens, tags, number)
    subject = len(tokens) - 1
    for one in numbers:
        tokens.append(random.choice(PREPOSITIONS))
        tags.append("IN")
        _add_noun(random, tokens, tags, one)
    return AgreementExample(
        tuple(tokens), number, subject, attractors, tuple(tags), document="grammar"
    )


def _add_noun(random: Random, tokens: list[str], tags: list[str], number: Number) -> None:
    """Append an article, sometimes an adjective, and a noun."""
    tokens.append("the")
    tags.append("DT")
    if random.random() < 0.25:
        tokens.append(random.choice(ADJECTIVES))
        tags.append("JJ")
    tokens.append(random.choice(NOUNS[number]))
    tags.append(TAG_OF_NOUN[number])
