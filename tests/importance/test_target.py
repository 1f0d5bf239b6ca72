"""The arguments that all importance functions share with `explain`."""

from importlib.util import find_spec

import numpy as np
import pytest
import torch

from attnflow import load_model
from attnflow.errors import InputError
from attnflow.importance import blank_out, input_gradients, integrated_gradients
from attnflow.importance.blank_out import blank_out_batch
from attnflow.importance.gradients import input_gradients_batch
from attnflow.importance.target import predict_classes
from attnflow.models.inputs import encode_text
from tests.models.checkpoints import LIMIT, make_loaded, make_model, make_tokenizer
from tests.refusal import refusal

TEXT = "the key to cabinets"
FUNCTIONS = [
    blank_out,
    input_gradients,
    pytest.param(
        integrated_gradients,
        marks=pytest.mark.skipif(not find_spec("captum"), reason="captum is not installed"),
    ),
]
every = pytest.mark.parametrize("function", FUNCTIONS)


@every
def test_a_model_object_and_its_tokenizer(function):
    loaded = make_loaded()
    expected = function(TEXT, loaded).scores
    result = function(TEXT, loaded.model, tokenizer=loaded.tokenizer)
    np.testing.assert_array_equal(result.scores, expected)


@every
def test_token_ids(function):
    loaded = make_loaded()
    expected = function(TEXT, loaded)
    result = function(loaded.tokenizer(TEXT), loaded)
    assert result.tokens == expected.tokens
    np.testing.assert_array_equal(result.scores, expected.scores)


@every
def test_swapped_arguments(function):
    loaded = make_loaded()
    with refusal(InputError, "LoadedModel", "explain(text, model)"):
        function(loaded, TEXT)
    with refusal(InputError, "BertForSequenceClassification", "explain(text, model)"):
        function(loaded.model, TEXT)


@every
def test_several_texts_are_rejected(function):
    with refusal(InputError, "batch of 2"):
        function([TEXT, "here"], make_loaded())


@every
def test_a_long_text_is_rejected_or_cut(function):
    loaded = make_loaded()
    with refusal(InputError, "22 tokens", "truncate='cut'"):
        function("key " * 20, loaded)
    with pytest.warns(UserWarning, match="last 6 were cut"):
        assert len(function("key " * 20, loaded, truncate="cut").tokens) == LIMIT


@every
def test_the_model_keeps_its_mode_and_device(function):
    model = make_model(hidden_dropout_prob=0.5)
    expected = function(TEXT, model, tokenizer=make_tokenizer()).scores
    model.train()
    model.classifier.eval()
    modes = [module.training for module in model.modules()]
    result = function(TEXT, model, tokenizer=make_tokenizer(), device="cpu")
    np.testing.assert_array_equal(result.scores, expected)  # dropout was off
    assert [module.training for module in model.modules()] == modes
    with refusal(InputError, "'nowhere'", "device=..."):
        function(TEXT, model, tokenizer=make_tokenizer(), device="nowhere")


def test_batches_run_in_evaluation_mode():
    model = make_model(hidden_dropout_prob=0.5)
    loaded = load_model(model, make_tokenizer())
    encoded = [encode_text(loaded, text) for text in (TEXT, "here")]

    def compute():
        gradients = input_gradients_batch(loaded, encoded, [0, 1])
        return [
            predict_classes(loaded, encoded),
            *blank_out_batch(loaded, encoded, [0, 1]),
            *gradients["l2"],
        ]

    expected = compute()
    model.train()
    for values, reference in zip(compute(), expected, strict=True):
        np.testing.assert_array_equal(values, reference)
    assert all(module.training for module in model.modules())


@every
def test_the_model_is_moved_for_the_call_only(function):
    moves = []

    class Moved(type(make_model())):  # type: ignore[misc]
        def to(self, device):
            moves.append(str(device))
            return self

    model = Moved(make_model().config).eval()
    function(TEXT, model, tokenizer=make_tokenizer(), device="cuda:1")
    assert moves == ["cuda:1", "cpu"]
    assert all(weights.device == torch.device("cpu") for weights in model.parameters())
