"""Cases: the prediction of a text, the units that are ranked, and the evidence."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from attnflow import explain
from attnflow.errors import InputError, SelectionError
from attnflow.models.input_kinds import encode_inputs
from attnflow.models.inputs import encode_text
from attnflow.models.prediction import Contrast
from attnflow.study.case import Question, make_case
from attnflow.units import find_spans
from tests.models.checkpoints import VOCABULARY, make_loaded
from tests.refusal import refusal
from tests.study.small_models import make_encoder_decoder, make_llama, make_pieces

TEXT = "the key to the cabinets"


@pytest.fixture(scope="module")
def classifier():
    return make_loaded()


@pytest.fixture(scope="module")
def pieces():
    return make_pieces()


@pytest.fixture(scope="module")
def llama():
    return make_llama(start=True)


def log_p(loaded, words, position, target):
    """Log p of a token after some words, straight from the model."""
    ids = torch.tensor([[2, *(VOCABULARY[word] for word in words)]])
    with torch.no_grad():
        logits = loaded.model(input_ids=ids).logits[0, position].double()
    return float(logits.log_softmax(-1)[VOCABULARY[target]])


def test_the_case_of_a_classifier(classifier):
    case = make_case(classifier, TEXT)
    prediction = explain(TEXT, classifier).prediction
    assert prediction is not None
    best = prediction.target
    assert (case.label, case.steps[0].contrast) == (best.label, Contrast(best.index))
    assert case.probability == pytest.approx(best.probability, abs=1e-6)
    # [CLS] is the position, and special tokens are not ranked.
    assert case.positions == [0]
    assert case.units == ((1,), (2,), (3,), (4,), (5,))
    assert case.labels == ("the", "key", "to", "the", "cabinets")
    assert case.evidence is None


def test_a_text_may_be_encoded_already(classifier):
    case = make_case(classifier, encode_text(classifier, TEXT))
    assert case.labels == make_case(classifier, TEXT).labels
    [encoded], _ = encode_inputs(classifier, {"input_ids": [2, 5, 6, 3]})
    assert make_case(classifier, encoded).labels == ("the", "key")


def test_the_target_can_be_chosen(classifier):
    cases = [make_case(classifier, TEXT, Question(target=i)) for i in (0, "LABEL_1")]
    assert [case.label for case in cases] == ["LABEL_0", "LABEL_1"]
    assert sum(case.probability for case in cases) == pytest.approx(1)
    with refusal(SelectionError, "'good'"):
        make_case(classifier, TEXT, Question(target="good"))


def test_a_contrast_has_the_probability_among_two(llama):
    case = make_case(llama, "the key", Question(target="is", against="are"))
    assert case.steps[0].contrast == Contrast(VOCABULARY["is"], VOCABULARY["are"])
    p, other = (np.exp(log_p(llama, ["the", "key"], 2, word)) for word in ("is", "are"))
    assert case.label == "is"
    assert case.probability == pytest.approx(p / (p + other), rel=1e-5)


def test_the_next_token_of_a_decoder(llama):
    case = make_case(llama, "the key", Question(target="is"))
    assert case.encoded.tokens == ("[CLS]", "the", "key")
    assert case.positions == [2]
    assert case.units == ((1,), (2,))
    assert np.log(case.probability) == pytest.approx(
        log_p(llama, ["the", "key"], 2, "is"), rel=1e-5
    )


def test_the_mask_is_not_ranked():
    loaded = make_loaded("BertForMaskedLM")
    case = make_case(loaded, "the key [MASK] here", Question(target="is"))
    assert case.positions == [3]
    assert case.labels == ("the", "key", "here")
    with refusal(InputError, "no mask"):
        make_case(loaded, TEXT)


@pytest.mark.parametrize("kind", ["T5", "Bart"])
def test_the_text_of_an_encoder_decoder_is_that_of_its_encoder(kind):
    loaded = make_encoder_decoder(kind)
    case = make_case(loaded, "the key", words=True)
    # [CLS] the key [SEP], and [CLS] of the decoder.
    assert case.positions == [4]
    assert case.units == ((1,), (2,))
    chosen = case.tokens_of(np.asarray([True, False]))
    assert chosen.tolist() == [False, True, False, False]


def test_words_are_units_of_several_tokens(pieces):
    text = "the cabinets is key"
    tokens, words = (make_case(pieces, text, words=flag) for flag in (False, True))
    assert tokens.labels == ("the", "cabinet", "s", "is", "key")
    assert words.labels == ("the", "cabinets", "is", "key")
    assert words.units == ((1,), (2, 3), (4,), (5,))
    # The scores of a word are added up, those of [CLS] and [SEP] left out.
    assert words.merge([9, 1, 2, 3, 4, 5, 9]).tolist() == [1, 5, 4, 5]
    assert tokens.merge([9, 1, 2, 3, 4, 5, 9]).tolist() == [1, 2, 3, 4, 5]


def test_the_tokens_of_chosen_words(pieces):
    case = make_case(pieces, "the cabinets is key", words=True)
    chosen = np.asarray([[False, True, False, False], [True, False, False, True]])
    assert case.tokens_of(chosen).astype(int).tolist() == [
        [0, 0, 1, 1, 0, 0, 0],
        [0, 1, 0, 0, 0, 1, 0],
    ]


def test_words_are_found_where_the_tokenizer_was_not_asked(pieces):
    from attnflow.models.inputs import encode_texts

    [encoded] = encode_texts(pieces, ["the cabinets is key"], words=False)
    assert make_case(pieces, encoded, words=True).units == ((1,), (2, 3), (4,), (5,))  # type: ignore[arg-type]


def test_evidence_by_text(pieces):
    text = "the cabinets is the key"
    case = make_case(pieces, text, Question(evidence="the"))
    assert case.evidence is not None
    assert case.evidence.tolist() == [True, False, False, False, True, False]
    several = make_case(pieces, text, Question(evidence=["cabinets", "key"]))
    assert several.evidence is not None
    assert several.evidence.tolist() == [False, True, True, False, False, True]


def test_evidence_by_offsets(pieces):
    # "cabinet" is at 4 to 11, "s" at 11 to 12.
    text = "the cabinets is key"
    marked = {
        str(span): make_case(pieces, text, Question(evidence=span)).evidence
        for span in ([4, 8], (11, 12), [[0, 3], [13, 14]], [[10, 12]])
    }
    assert {name: np.flatnonzero(np.asarray(row)).tolist() for name, row in marked.items()} == {
        "[4, 8]": [1],
        "(11, 12)": [2],
        "[[0, 3], [13, 14]]": [0, 3],
        "[[10, 12]]": [1, 2],
    }
    words = make_case(pieces, text, Question(evidence=(11, 12)), words=True)
    assert words.evidence is not None
    assert words.evidence.tolist() == [False, True, False, False]


def test_spans_of_text():
    assert find_spans("cats and cat", "cat") == [(9, 12)]
    assert find_spans("a cats and cats", "cat") == [(2, 5), (11, 14)]  # no whole word
    assert find_spans("is (it) so?", " (it) ") == [(3, 7)]
    assert find_spans("a b a", ["b", [0, 1], "a"]) == [(2, 3), (0, 1), (0, 1), (4, 5)]
    assert find_spans("a.b a+b", "a+b") == [(4, 7)]


@pytest.mark.parametrize(
    "evidence", ["dog", "", " ", [3, 3], [0, 100], [-1, 2], [2, 1], 3, None, ["the", "dog"], [1.5]]
)
def test_evidence_that_is_not_in_the_text_is_refused(evidence):
    wrong = "dog" if evidence == ["the", "dog"] else evidence
    with refusal(InputError, "1.5" if evidence == [1.5] else repr(wrong), "[4, 8]"):
        find_spans("the cats", evidence)


def test_evidence_without_a_ranked_token_is_refused(pieces):
    with refusal(InputError, "(3, 4)"):  # a space
        make_case(pieces, "the key is", Question(evidence=(3, 4)))
    with refusal(InputError, "[]"):
        make_case(pieces, "the key is", Question(evidence=[]))


def test_evidence_needs_offsets(classifier):
    [encoded], _ = encode_inputs(classifier, {"input_ids": [2, 5, 6, 3]})
    encoded = replace(encoded, offsets=None)
    with refusal(InputError, "tokenizer"):
        make_case(classifier, encoded, Question(evidence="key"))


def test_a_continuation_is_predicted_token_by_token(llama):
    case = make_case(llama, "the key", Question(continuation="is here to"))
    # The last token of the continuation is predicted and not read.
    assert case.encoded.tokens == ("[CLS]", "the", "key", "is", "here")
    assert case.positions == [2, 3, 4]
    assert [step.contrast for step in case.steps] == [
        Contrast(VOCABULARY[word]) for word in ("is", "here", "to")
    ]
    assert case.label == "is here to"
    assert case.units == ((1,), (2,))  # of the prompt only
    assert case.labels == ("the", "key")
    words = ["the", "key", "is", "here"]
    targets = [(2, "is"), (3, "here"), (4, "to")]
    expected = sum(log_p(llama, words, position, target) for position, target in targets)
    assert np.log(case.probability) == pytest.approx(expected, rel=1e-5)


def test_a_continuation_of_one_token_is_the_next_token(llama):
    one = make_case(llama, "the key", Question(continuation="is"))
    other = make_case(llama, "the key", Question(target="is"))
    assert one.encoded.tokens == other.encoded.tokens
    assert one.steps == other.steps
    assert one.probability == pytest.approx(other.probability)


def test_a_continuation_has_words_and_evidence_of_the_prompt(llama):
    question = Question(continuation="the key", evidence="key")
    case = make_case(llama, "the key is", question, words=True)
    assert case.units == ((1,), (2,), (3,))
    assert case.evidence is not None
    assert case.evidence.tolist() == [False, True, False]
    assert case.tokens_of(case.evidence).tolist() == [False, False, True, False, False]


def test_a_decoder_can_generate_its_continuation(llama):
    case = make_case(llama, "the key", Question(generate=3))
    ids = [2, VOCABULARY["the"], VOCABULARY["key"]]
    for step in case.steps:  # the most probable token at each step
        with torch.no_grad():
            logits = llama.model(input_ids=torch.tensor([ids])).logits[0, -1]
        assert step.contrast.target == int(logits.argmax())
        assert step.position == len(ids) - 1
        ids.append(step.contrast.target)
    assert len(case.steps) == 3
    assert case.encoded.inputs["input_ids"][0].tolist() == ids[:-1]


def test_a_continuation_that_does_not_fit_is_refused(llama, classifier):
    with refusal(InputError, "target", "continuation"):
        make_case(llama, "the key", Question(continuation="is", target="is"))
    with refusal(InputError, "against", "continuation"):
        make_case(llama, "the key", Question(generate=2, against="is"))
    with refusal(InputError, "position", "continuation"):
        make_case(llama, "the key", Question(continuation="is", position=0))
    with refusal(InputError, "decoder", classifier.name):
        make_case(classifier, TEXT, Question(continuation="is"))
    with refusal(InputError, "empty", "continuation"):
        make_case(llama, "the key", Question(continuation=""))
    with refusal(InputError, "32"):  # the maximum length
        make_case(llama, "the key", Question(continuation="is " * 40))


def test_a_text_needs_two_units(classifier, pieces):
    with refusal(InputError, "1", "2"):
        make_case(classifier, "key")
    assert len(make_case(pieces, "cabinets").units) == 2
    with refusal(InputError, "1", "2"):
        make_case(pieces, "cabinets", words=True)


def test_a_long_text_is_refused_or_cut(classifier):
    text = "key " * 20
    with refusal(InputError, "16", "22"):
        make_case(classifier, text)
    with pytest.warns(UserWarning, match="22"):
        assert len(make_case(classifier, text, truncate="cut").units) == 14


def test_a_model_without_a_prediction_is_refused():
    with refusal(InputError, "BertModel"):
        make_case(make_loaded("BertModel"), TEXT)


def test_a_prediction_that_is_not_a_number_is_refused():
    loaded = make_loaded()
    with torch.no_grad():
        loaded.model.classifier.bias.fill_(torch.nan)
    with refusal(InputError, "NaN"):
        make_case(loaded, TEXT)
    decoder = make_llama()
    with torch.no_grad():
        decoder.model.model.norm.weight.fill_(torch.nan)
    with refusal(InputError, "NaN"):
        make_case(decoder, "the key", Question(continuation="is here"))
