"""The vocabulary of the verb-number model, and its tokenizer."""

import pytest

from attnflow.models.builtin.verb_number import (
    TAGS,
    make_tokenizer,
    to_ids,
)
from attnflow.paper.data.data_sets import AgreementExample
from attnflow.paper.verb_number.splits import make_vocabulary, replace_rare

WORDS = ["the", "key", "keys", "children", "'s", "do", "n't", "(", ")", ",", "four-year", "nn"]


@pytest.fixture(scope="module")
def vocabulary():
    return make_vocabulary([AgreementExample(tuple(WORDS), "plural")], min_count=1)


def tokens(vocabulary, text, **options):
    tokenizer = make_tokenizer(vocabulary, max_length=64, **options)
    return tokenizer.convert_ids_to_tokens(tokenizer(text)["input_ids"])


def test_words_are_sorted_by_frequency():
    examples = [AgreementExample(("b", "a", "a", "NN", "c", "c"), "plural")]
    vocabulary = make_vocabulary(examples, min_count=2)
    assert list(vocabulary)[:4] == ["[PAD]", "[UNK]", "[CLS]", "CC"]
    assert list(vocabulary)[3 + len(TAGS) :] == ["a", "c"]
    assert to_ids(("a", "b", "NNS"), vocabulary) == [2, 3 + len(TAGS), 1, vocabulary["NNS"]]


def test_unknown_words_become_tags():
    known = frozenset(["the", "NNS"])
    tagged = AgreementExample(("The", "Zebras", "of"), "plural", tags=("DT", "NNS", "IN"))
    assert replace_rare(tagged, known).prefix == ("the", "NNS", "[UNK]")
    assert replace_rare(AgreementExample(("The", "x"), "plural"), known).prefix == ("the", "[UNK]")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("The KEY", "the key"),
        ("the NNS and NN nn", "the NNS [UNK] NN nn"),
        ("(the children's key),", "( the children 's key ) ,"),
        ("the key, children's keys", "the key , children 's keys"),
        ("do n't don't", "do n't do n't"),
        ("four-year ) , the", "four-year ) , the"),
        ("PRP$ POS", "PRP$ POS"),
    ],
)
def test_text_is_tokenized_like_the_data(vocabulary, text, expected):
    assert tokens(vocabulary, text) == ["[CLS]", *expected.split()]


def test_the_causal_tokenizer_has_no_cls_token(vocabulary):
    assert tokens(vocabulary, "the key", causal=True) == ["[CLS]", "the", "key"]
    assert make_tokenizer(vocabulary, max_length=64, causal=True).cls_token is None
