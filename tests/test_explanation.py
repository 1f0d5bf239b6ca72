"""From text to explanation, on tiny random models."""

import json
import os
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
import torch

from attnflow import (
    AttentionGraph,
    Attentions,
    Attribution,
    Explanation,
    InputError,
    SelectionError,
    raw_attention,
    rollout,
)
from attnflow.errors import AttentionError, FileError
from attnflow.explainer import explain
from attnflow.models.inputs import encode_text
from tests.models.checkpoints import (
    LIMIT,
    VOCABULARY,
    eager_graph,
    make_loaded,
    make_model,
    make_tokenizer,
    save,
)
from tests.refusal import refusal

TEXT = "the key to cabinets"


@pytest.fixture(scope="module")
def classifier():
    return make_loaded()


@pytest.mark.parametrize(
    ("kind", "text", "position"),
    [
        ("BertForSequenceClassification", TEXT, 0),
        ("BertForMaskedLM", "the key [MASK] cabinets", 3),
        ("GPT2LMHeadModel", TEXT, 3),
        ("BertModel", TEXT, 0),
        ("GPT2Model", TEXT, 3),
    ],
)
def test_the_position_explained_and_the_methods(kind, text, position):
    loaded = make_loaded(kind)
    graph, output = eager_graph(loaded, text)
    explanation = explain(text, loaded, edges="attention")
    assert explanation.position == position
    assert explanation.tokens == graph.tokens
    np.testing.assert_allclose(
        explanation.raw().scores, raw_attention(graph, positions=position).scores, atol=1e-6
    )
    np.testing.assert_allclose(
        explanation.rollout().scores, rollout(graph, positions=position).scores, atol=1e-6
    )
    flow = explanation.flow(layers=-1, threads=1)
    assert flow.scores.shape == (1, 1, len(graph.tokens))
    assert (flow.scores >= np.asarray(explanation.rollout(layers=-1).scores) - 1e-6).all()
    if kind.endswith("Model") and "LMHead" not in kind:
        assert explanation.prediction is None
        return
    logits = output.logits[0] if kind.endswith("Classification") else output.logits[0, position]
    chances = logits.softmax(-1)
    prediction = explanation.prediction
    assert prediction is not None
    assert prediction.index == int(chances.argmax())
    assert prediction.probability == pytest.approx(float(chances.max()), abs=1e-6)
    assert len(prediction.top) == min(5, len(chances))
    assert prediction.target == prediction.top[0]


def test_the_default_edges_depend_on_the_kind_of_model():
    decoder, encoder = make_loaded("GPT2LMHeadModel"), make_loaded("BertForSequenceClassification")
    assert explain(TEXT, encoder).graph.settings["edges"] == "attention"
    assert explain(TEXT, decoder).graph.settings["edges"] == "alti"
    for options in ({"residual_weight": 0.5}, {"heads": "max"}):
        settings = explain(TEXT, decoder, **options).graph.settings
        assert settings["edges"] == "attention"


def test_a_decoder_that_cannot_be_followed_falls_back_to_attention(monkeypatch):
    from attnflow.models.capture import api

    def fail(*_: object, **__: object) -> None:
        raise AttentionError("layer 1 cannot be followed", expected="a sum", fix="Use attention.")

    monkeypatch.setattr(api, "run_contributions", fail)
    decoder = make_loaded("GPT2LMHeadModel")
    with pytest.warns(UserWarning, match="'attention'"):
        explanation = explain(TEXT, decoder)
    assert explanation.graph.settings["edges"] == "attention"
    with refusal(AttentionError, "layer 1"):
        explain(TEXT, decoder, edges="alti")


def test_gradient_edges_can_be_contrastive():
    decoder = make_loaded("GPT2LMHeadModel")
    one, other = (explain(TEXT, decoder, edges="gradient", target=i) for i in (5, 6))
    both = explain(TEXT, decoder, edges="gradient", target=5, against=6)
    swapped = explain(TEXT, decoder, edges="gradient", target=6, against=5)
    scores = [x.raw(layers=-1).to_numpy() for x in (one, other, both, swapped)]
    # The positive part of the gradient of a difference, head by head.
    assert not np.allclose(scores[2], scores[0])
    assert not np.allclose(scores[2], scores[3])
    assert both.prediction is not None
    assert both.prediction.target.index == 5
    with refusal(SelectionError):
        explain(TEXT, decoder, target=5, against=5)


def test_a_prediction_has_names(classifier):
    classifier.model.config.id2label = {0: "singular", 1: "plural"}
    prediction = explain(TEXT, classifier, target="Singular").prediction
    assert prediction is not None
    assert prediction.kind == "class"
    assert prediction.label == "plural"
    assert prediction.target.label == "singular"
    assert prediction.target.probability == pytest.approx(1 - prediction.probability, abs=1e-6)
    with refusal(SelectionError, "'dual'", "'plural'"):
        explain(TEXT, classifier, target="dual")


def test_one_class_has_a_probability_of_its_own():
    prediction = explain(TEXT, make_loaded(num_labels=1)).prediction
    assert prediction is not None
    assert 0 < prediction.probability < 1


def test_any_position_can_be_explained():
    loaded = make_loaded("GPT2LMHeadModel")
    by_text, by_index = explain(TEXT, loaded, position="key"), explain(TEXT, loaded, position=1)
    assert by_text.position == by_index.position == 1
    assert by_text.prediction == by_index.prediction  # made at that position
    assert by_text.prediction != explain(TEXT, loaded).prediction
    with refusal(SelectionError, "'door'"):
        explain(TEXT, loaded, position="door")


def test_options_of_attributions(classifier):
    explanation = explain(TEXT, classifier)
    everywhere = explanation.rollout(positions=range(len(explanation.tokens)))
    assert everywhere.scores.shape == (2, 6, 6)
    assert explanation.rollout(layers=[2], positions="key").positions == (2,)
    np.testing.assert_allclose(explanation.flow(normalize="rows").scores.sum(-1), 1)
    assert explanation.raw(special="hide").columns == (1, 2, 3, 4)
    assert {t for t, _, _ in explanation.raw(special="rank_out").top(9, position=0)} == {
        *TEXT.split()
    }
    with refusal(InputError, "'softmax'"):
        explanation.rollout(normalize="softmax")  # type: ignore[arg-type]
    with refusal(InputError, "'drop'"):
        explanation.rollout(special="drop")  # type: ignore[arg-type]


def test_attributions_are_computed_once(classifier):
    explanation = explain(TEXT, classifier)
    assert explanation.flow() is explanation.flow()
    assert explanation.flow(layers=[1, 2]) is explanation.flow(layers=(1, 2))
    assert explanation.flow() is not explanation.flow(normalize="rows")


def test_an_explanation_can_be_read(classifier):
    assert repr(explain(TEXT, make_loaded("BertModel"))) == (
        "Explanation(6 tokens, 2 layers, position 0 '[CLS]')"
    )
    assert "position 0 '[CLS]', class 'plural' 0." in repr(explain(TEXT, classifier))


def test_a_decoder_can_be_normalized_by_its_receptive_field():
    explanation = explain(TEXT, make_loaded("GPT2LMHeadModel"))
    normalized = explanation.rollout(normalize="receptive_field")
    expected = rollout(explanation.graph, positions=3, normalize="receptive_field")
    np.testing.assert_array_equal(normalized.scores, expected.scores)
    assert explanation.graph.causal


@pytest.mark.parametrize("kind", ["BertForSequenceClassification", "GPT2LMHeadModel"])
def test_several_texts_are_explained_as_each_alone(kind):
    loaded = make_loaded(kind)  # GPT-2 has no padding token
    texts = ["the key to cabinets is here", "key", "the cabinets"]
    batch = explain(texts, loaded)
    assert [one.text for one in batch] == texts
    for one, text in zip(batch, texts, strict=True):
        alone = explain(text, loaded)
        assert one.tokens == alone.tokens
        np.testing.assert_allclose(one.rollout().scores, alone.rollout().scores, atol=1e-6)
        assert one.prediction is not None
        assert alone.prediction is not None
        assert one.prediction.index == alone.prediction.index
        assert one.prediction.probability == pytest.approx(alone.prediction.probability, abs=1e-6)
    with refusal(InputError, "text"):
        explain([], loaded)


def test_a_decoder_without_a_padding_token_classifies_texts_one_by_one():
    loaded = make_loaded("GPT2ForSequenceClassification")
    assert not loaded.supports_batches
    batch = explain(["the key to", "key"], loaded)
    assert [one.position for one in batch] == [2, 0]
    assert batch[1].prediction == explain("key", loaded).prediction
    padded = make_loaded("GPT2ForSequenceClassification", pad_token_id=0)
    assert padded.supports_batches
    again = explain(["the key to", "key"], padded)
    for one, other in zip(again, batch, strict=True):
        assert one.prediction is not None
        assert other.prediction is not None
        assert one.prediction.probability == pytest.approx(other.prediction.probability, abs=1e-6)


def test_importing_loads_neither_torch_nor_transformers():
    code = (
        "import sys, attnflow.explainer, attnflow.importance, attnflow.models.loading, "
        "attnflow.cli.explain; print({'torch', 'transformers', 'captum'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


def test_tokenizers_without_word_ids():
    import transformers

    tokenizer = transformers.ByT5Tokenizer()
    loaded = replace(make_loaded("BertModel"), tokenizer=tokenizer)
    loaded.model.resize_token_embeddings(len(tokenizer))
    encoded = encode_text(loaded, "a b")
    assert encoded.tokens == ("a", " ", "b", "</s>")
    assert encoded.special == (False, False, False, True)


@pytest.mark.parametrize("edges", ["effective", "value", "norm", "alti", "gradient_rescaled"])
def test_edges_are_weighted_as_asked(edges, classifier):
    explanation = explain(TEXT, classifier, edges=edges)
    assert explanation.graph.settings["edges"] == edges
    np.testing.assert_allclose(explanation.rollout().scores.sum(-1), 1, atol=1e-5)


def test_gradients_are_those_of_the_target(classifier):
    one, other = (explain(TEXT, classifier, edges="gradient", target=i) for i in (0, 1))
    assert not np.allclose(one.rollout().scores, other.rollout().scores)
    best = explain(TEXT, classifier, edges="gradient")
    assert best.prediction is not None
    same = (one, other)[best.prediction.index]
    np.testing.assert_array_equal(best.rollout().scores, same.rollout().scores)
    with refusal(InputError, "BertModel"):
        explain(TEXT, make_loaded("BertModel"), edges="gradient")
    with refusal(SelectionError, "'length'", "attention", "effective", "gradient"):
        explain(TEXT, classifier, edges="length")


def test_an_encoder_decoder_is_explained_from_the_start_of_its_decoder():
    import transformers

    torch.manual_seed(0)
    model = transformers.T5ForConditionalGeneration(
        transformers.T5Config(
            vocab_size=len(VOCABULARY),
            d_model=8,
            d_kv=4,
            d_ff=8,
            num_layers=1,
            num_heads=2,
        )
    )
    model.config.decoder_start_token_id = 0
    explanation = explain(TEXT, model, tokenizer=make_tokenizer())
    assert explanation.tokens == ("[CLS]", *TEXT.split(), "[SEP]", "[PAD]")
    assert explanation.position == 6
    assert explanation.prediction is not None
    assert explanation.prediction.kind == "next token"
    row = explanation.rollout(layers=-1).row(position=6)
    assert float(row[:6].sum()) > 0
    assert float(row.sum()) == pytest.approx(1)
    assert explanation.flow(layers=-1).scores.max() <= 1 + 1e-9


@pytest.mark.parametrize("text", ["", " \n\t"])
def test_an_empty_text_is_refused(text, classifier):
    with refusal(InputError, "empty"):
        explain(text, classifier)


@pytest.mark.parametrize("value", [3, 0.5, None, [TEXT, 3], [0.5]])
def test_an_input_of_another_type_is_refused(classifier, value):
    with refusal(InputError, "input_ids"):
        explain(value, classifier)


def test_token_ids_are_explained_as_they_are(classifier):
    encoding = classifier.tokenizer(TEXT, return_tensors="pt")
    expected = explain(TEXT, classifier)
    ids = encoding["input_ids"]
    [batch], [mapping], [tensor] = (explain(x, classifier) for x in (encoding, dict(encoding), ids))
    single, listed = (explain(x, classifier) for x in (ids[0], ids[0].tolist()))
    for explanation in (batch, mapping, tensor, single, listed):
        assert explanation.tokens == expected.tokens
        np.testing.assert_array_equal(explanation.rollout().scores, expected.rollout().scores)


def test_mode_and_device_of_the_model_do_not_change():
    model = make_model().train()
    model.bert.pooler.eval()  # one part is frozen
    modes = [module.training for module in model.modules()]
    explanation = explain(TEXT, model, tokenizer=make_tokenizer(), device="cpu")
    assert [module.training for module in model.modules()] == modes
    again = explain(TEXT, model.eval(), tokenizer=make_tokenizer())
    np.testing.assert_array_equal(explanation.rollout().scores, again.rollout().scores)


def test_an_explanation_is_saved_and_loaded(classifier, tmp_path):
    explanation = explain(TEXT, classifier)
    explanation.save(tmp_path / "text.safetensors")
    loaded = Explanation.load(tmp_path / "text.safetensors")
    for name in (
        "text",
        "tokens",
        "special",
        "words",
        "position",
        "prediction",
        "model",
        "offsets",
    ):
        assert getattr(loaded, name) == getattr(explanation, name)
    assert loaded.graph.settings == explanation.graph.settings
    np.testing.assert_array_equal(loaded.flow().scores, explanation.flow().scores)
    assert loaded.heads is not None
    assert explanation.heads is not None
    np.testing.assert_array_equal(loaded.heads.layers[0], explanation.heads.layers[0])
    (tmp_path / "text.safetensors").write_bytes(b"")
    with refusal(FileError, "text.safetensors"):
        Explanation.load(tmp_path / "text.safetensors")


ODD = [None, 1, -1, 10**30, "x", "", [], {}, [[]], [None], {"a": 1}, 1.5, True, [[1, 2, 3]], ["a"]]


@pytest.mark.parametrize("kind", [Explanation, Attribution])
def test_files_with_altered_headers_are_errors(kind, tmp_path):
    explanation = Explanation.from_attentions(Attentions([[[0.5, 0.5], [0.25, 0.75]]]))
    saved = explanation if kind is Explanation else explanation.rollout()
    saved.save(tmp_path / "saved.safetensors")
    raw = (tmp_path / "saved.safetensors").read_bytes()
    start = 8 + int.from_bytes(raw[:8], "little")
    header = json.loads(raw[8:start])
    labels = json.loads(header["__metadata__"]["attnflow"])
    altered = tmp_path / "altered.safetensors"
    n_refused = 0
    for name in labels:
        for value in ODD:
            header["__metadata__"]["attnflow"] = json.dumps({**labels, name: value})
            written = json.dumps(header).encode()
            altered.write_bytes(len(written).to_bytes(8, "little") + written + raw[start:])
            try:
                loaded = kind.load(altered)
            except FileError:
                n_refused += 1
                continue
            scores = loaded.rollout() if isinstance(loaded, Explanation) else loaded
            assert len(scores.top(2)) == 2
            assert repr(loaded)
    assert n_refused > 8 * len(labels)


def test_an_explanation_of_a_graph_can_be_saved(tmp_path):
    graph = AttentionGraph.encoder_decoder(
        encoder=[[[[0.5, 0.5], [0.25, 0.75]]]], decoder=[[[[1.0]]]], cross=[[[[0.5, 0.5]]]]
    )
    explanation = Explanation.from_graph(graph, position=-1)
    explanation.save(tmp_path / "graph.safetensors")
    loaded = Explanation.load(tmp_path / "graph.safetensors")
    np.testing.assert_array_equal(loaded.flow().scores, explanation.flow().scores)
    uniform = loaded.rollout(normalize="receptive_field")
    np.testing.assert_array_equal(
        uniform.scores, explanation.rollout(normalize="receptive_field").scores
    )
    with refusal(InputError, "Attentions", "AttentionGraph"):
        Explanation.from_graph(Attentions([[[1.0]]]))  # type: ignore[arg-type]


def test_a_data_frame_has_character_offsets(classifier):
    frame = explain(TEXT, classifier).rollout(layers=-1).to_pandas()
    labels = ["layer", "position", "index", "token", "piece"]
    assert list(frame.columns) == [*labels, "start", "end", "score"]
    texts = [TEXT[start:end] for start, end in zip(frame.start[1:-1], frame.end[1:-1], strict=True)]
    assert texts == list(frame.token[1:-1])
    assert frame.start.isna().tolist() == [True, *[False] * 4, True]  # [CLS] and [SEP]


def test_a_text_that_is_too_long_is_refused_or_cut(classifier):
    text = " ".join(["key"] * 18)
    with refusal(
        InputError,
        "20 tokens",
        classifier.name,
        f"at most {LIMIT}",
        "truncate='cut'",
    ):
        explain(text, classifier)
    with pytest.warns(UserWarning, match="16.*4"):
        explanation = explain(text, classifier, truncate="cut")
    assert explanation.tokens == ("[CLS]", *["key"] * 14, "[SEP]")
    assert len(explain(" ".join(["key"] * 14), classifier).tokens) == LIMIT
    with refusal(InputError, "17"):
        explain(" ".join(["key"] * 15), classifier)
    with refusal(InputError, "'start'", "'error'", "'cut'"):
        explain("key", classifier, truncate="start")  # type: ignore[call-overload]


def test_a_mask_is_needed_once():
    loaded = make_loaded("BertForMaskedLM")
    with refusal(InputError, "[MASK]"):
        explain("the key", loaded)
    with refusal(InputError, "2", "1"):
        explain("[MASK] [MASK]", loaded)
    assert explain("[MASK] [MASK]", loaded, position=2).position == 2


def test_models_are_loaded_by_folder(tmp_path):
    folder = save(tmp_path / "model")
    assert explain(TEXT, folder).tokens == ("[CLS]", *TEXT.split(), "[SEP]")
    assert explain(TEXT, folder, device="cpu").position == 0
    assert explain(TEXT).prediction is not None  # by the model that comes with attnflow
    with refusal(FileError, "config.json"):
        explain(TEXT, os.fspath(tmp_path))
