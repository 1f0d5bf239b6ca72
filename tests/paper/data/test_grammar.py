"""Generated agreement examples are what they claim to be."""

from collections import Counter

import pytest

from attnflow.errors import InputError
from attnflow.paper.data.data_sets import NOUNS, generate_agreement
from tests.refusal import refusal


def number_of(word):
    return next((number for number, nouns in NOUNS.items() if word in nouns), None)


def test_subjects_and_attractors_are_correct():
    for example in generate_agreement(300):
        assert example.subject is not None
        assert example.tags is not None
        assert number_of(example.prefix[example.subject]) == example.number
        between = [number_of(word) for word in example.prefix[example.subject + 1 :]]
        other = {"singular": "plural", "plural": "singular"}[example.number]
        assert between.count(other) == example.attractors
        assert len(example.tags) == len(example.prefix) < 50
        tag = example.tags[example.subject]
        assert tag == {"singular": "NN", "plural": "NNS"}[example.number]


def test_all_kinds_of_examples_are_generated():
    examples = list(generate_agreement(500, seed=1))
    assert set(Counter(e.attractors for e in examples)) == {0, 1, 2, 3, 4}
    assert 200 < Counter(e.number for e in examples)["plural"] < 300
    assert examples == list(generate_agreement(500, seed=1))
    assert examples != list(generate_agreement(500, seed=2))
    assert {e.attractors for e in generate_agreement(50, attractors=[2])} == {2}


@pytest.mark.parametrize("attractors", [[], [5], [-1]])
def test_invalid_numbers_of_attractors(attractors):
    with refusal(InputError, f"attractors is {attractors}", "0 to 4"):
        list(generate_agreement(1, attractors=attractors))
