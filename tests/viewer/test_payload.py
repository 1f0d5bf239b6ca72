"""The header and the arrays: the numbers of the library, rounded to float16."""

import json
from dataclasses import replace

import numpy as np
import pytest

from attnflow import AttentionGraph, Explanation, InputError, SelectionError, flow, raw_attention
from attnflow.edges.registry import EDGES
from attnflow.explainer import explain
from attnflow.explanation import ImageGrid
from attnflow.methods.registry import default_methods
from attnflow.notes import explanation_notes
from attnflow.predictions import Outcome, Prediction
from attnflow.viewer import payload as payload_module
from attnflow.viewer.header import PAGE_METHODS, name_examples
from attnflow.viewer.payload import make_payload
from tests.models.checkpoints import VOCABULARY, make_tokenizer
from tests.refusal import refusal
from tests.viewer.examples import (
    HOSTILE,
    causal_explanation,
    classifier_explanation,
    hostile_explanation,
    random_explanation,
)

TEXT = "the key to cabinets"


def read_chunk(payload, key):
    """A chunk as an array of the shape that the header gives."""
    example = payload.header()["examples"][int(key.partition("/")[0])]
    return np.frombuffer(payload.chunk(key), "<f2").reshape(example["chunks"][key]["shape"])


def with_settings(explanation, **settings):
    graph = explanation.graph
    return replace(explanation, graph=replace(graph, settings={**graph.settings, **settings}))


def test_arrays_are_those_of_the_library():
    explanation = classifier_explanation()
    payload = make_payload([explanation])
    attention = raw_attention(explanation.graph).to_numpy()
    flows = flow(explanation.graph).to_numpy()
    assert explanation.heads is not None
    for layer in (1, 2):
        np.testing.assert_array_equal(
            read_chunk(payload, f"0/attention/{layer}"), attention[layer - 1].astype(np.float16)
        )
        np.testing.assert_array_equal(
            read_chunk(payload, f"0/flow/{layer}"), flows[layer - 1].astype(np.float16)
        )
        np.testing.assert_array_equal(
            read_chunk(payload, f"0/heads/{layer}"), explanation.heads.layers[layer - 1]
        )
        np.testing.assert_array_equal(
            payload.flow(0, 3, layer), flows[layer - 1, 3].astype(np.float32)
        )


def test_the_header_describes_the_example():
    explanation = classifier_explanation()
    header = json.loads(make_payload([explanation], title="a title").header_json())
    assert header["format"] == 1
    assert header["title"] == "a title"
    [example] = header["examples"]
    assert example["tokens"] == list(explanation.tokens)
    assert example["special"] == [True, False, False, False, False, True]
    assert example["words"]["groups"] == [[i] for i in range(6)]
    assert (example["n_layers"], example["n_heads"]) == (2, 2)
    assert example["model"] == explanation.model
    assert example["residual_weights"] == [0.5, 0.5]
    assert example["carried"] == []
    assert example["image"] is None
    assert example["flow_rows"] is None
    assert not example["causal"]
    assert explanation.prediction is not None
    assert example["prediction"]["target"] == {
        "label": explanation.prediction.label,
        "probability": explanation.prediction.probability,
    }
    assert example["chunks"]["0/heads/2"] == {"shape": [2, 6, 6], "dtype": "float16"}
    assert example["name"].endswith("· 2 layers")


def test_the_header_lists_the_registered_methods(toy_method):
    methods = make_payload([random_explanation(1, 3)]).header()["methods"]
    assert [method["name"] for method in methods] == list(default_methods())
    computed = {method["name"]: method["computed"] for method in methods}
    assert {computed[name] for name in PAGE_METHODS} == {"page"}
    assert methods[-1] == {
        "name": "toy",
        "title": toy_method.title,
        "summary": toy_method.summary,
        "computed": "data",
    }


def test_scores_of_other_methods_are_chunks(toy_method):
    explanations = [classifier_explanation(), random_explanation(1, 3)]
    payload = make_payload(explanations)
    for index, explanation in enumerate(explanations):
        scores = toy_method.attribute(explanation.graph).to_numpy()
        for layer in range(1, explanation.graph.n_layers + 1):
            np.testing.assert_array_equal(
                read_chunk(payload, f"{index}/scores/toy/{layer}"),
                scores[layer - 1].astype(np.float16),
            )


def test_scores_of_other_methods_have_the_rows_of_flow(toy_method, monkeypatch):
    monkeypatch.setattr(payload_module, "FLOW_PAIRS", 2 * 6 * 6 - 1)
    explanation = replace(classifier_explanation(), position=4)
    payload = make_payload([explanation])
    scores = toy_method.attribute(explanation.graph, positions=4).to_numpy()
    np.testing.assert_array_equal(
        read_chunk(payload, "0/scores/toy/2"), scores[1].astype(np.float16)
    )


def test_methods_that_the_page_computes_are_not_chunks():
    assert {chunk.kind for chunk in make_payload([random_explanation(1, 3)]).chunks.values()} == {
        "attention",
        "heads",
        "normalized",
        "notes",
        "scores",
    }
    assert "0/scores/rollout/1" not in make_payload([random_explanation(1, 3)]).chunks


@pytest.mark.parametrize("name", ["attention", "value"])
def test_the_header_names_edges_and_heads(name):
    explanation = with_settings(random_explanation(1, 3), edges=name, heads="max")
    [example] = make_payload([explanation]).header()["examples"]
    assert example["edges"] == {"name": name, "title": EDGES[name].title}
    assert example["heads"] == "max"


def test_edges_default_to_attention_and_may_be_unknown():
    plain, unknown = random_explanation(1, 3), with_settings(random_explanation(1, 3), edges="mine")
    examples = make_payload([plain, unknown]).header()["examples"]
    assert examples[0]["edges"]["name"] == "attention"
    assert examples[0]["heads"] == "mean"
    assert examples[1]["edges"] == {"name": "mine", "title": "mine"}


@pytest.mark.parametrize("pairs", [10**6, 1], ids=["all positions", "the explained position"])
def test_scores_normalized_by_the_receptive_field_are_chunks(monkeypatch, pairs):
    monkeypatch.setattr(payload_module, "FLOW_PAIRS", pairs)
    explanation = causal_explanation(2, 5)
    payload = make_payload([explanation])
    rows = payload.header()["examples"][0]["normalized_rows"]
    assert rows == (None if pairs > 1 else [4])
    for method in PAGE_METHODS:
        expected = explanation.attribute(
            method, positions=range(5) if rows is None else rows, normalize="receptive_field"
        )
        np.testing.assert_array_equal(
            read_chunk(payload, f"0/normalized/{method}/2"),
            expected.to_numpy()[1].astype(np.float16),
        )


def test_notes_are_those_of_the_library():
    explanation = causal_explanation(6, 8)  # its first token is a sink
    payload = make_payload([explanation])
    notes = json.loads(payload.chunk("0/notes"))
    for method in PAGE_METHODS:
        scores = explanation.attribute(method)
        for layer in scores.layers:
            expected = explanation_notes(explanation, scores, layer=layer)
            indices = notes["rows"].get(f"{method}/{layer}/none/tokens/show", [])
            assert [notes["texts"][i] for i in indices] == expected
    assert any("sink" in text for text in notes["texts"])
    assert "rollout/6/none/tokens/show" in notes["rows"]
    assert payload.header()["examples"][0]["chunks"]["0/notes"] == {"shape": [], "dtype": "json"}


def test_notes_know_words_and_hidden_tokens():
    graph = AttentionGraph.from_weights(
        np.tile([0.6, 0.1, 0.1, 0.2], (1, 4, 1)), tokens=["[CLS]", "cabinet", "##s", "[SEP]"]
    )
    payload = make_payload([Explanation.from_graph(graph, position=1)])
    notes = json.loads(payload.chunk("0/notes"))
    keys = {key for key in notes["rows"] if key.startswith("raw/1/none")}
    assert keys == {"raw/1/none/tokens/show", "raw/1/none/words/show"}  # no sink is left
    assert not [key for key in notes["rows"] if key.startswith("flow/1/none/words")]


def test_what_is_not_attention_is_not_called_attention():
    plain, alti = (with_settings(random_explanation(1, 3), edges=e) for e in ("attention", "alti"))
    titles = [make_payload([plain]).methods[0].title, make_payload([plain, alti]).methods[0].title]
    assert titles == ["Raw attention", "Raw edge weights"]


def test_the_header_has_the_settings_in_words():
    explanation = with_settings(
        replace(random_explanation(1, 3), model="gpt2"),
        edges="alti",
        residual_weight="inside the edges",
    )
    payload = make_payload([explanation])
    [example] = payload.header()["examples"]
    assert example["settings"] == [
        "gpt2",
        "edges: ALTI",
        "residual connection inside the edges",
        "heads: mean",
    ]
    assert payload.page_title == "word1 word2 · gpt2 · edges: ALTI"
    assert make_payload([explanation], title="mine").page_title == "mine"


def test_several_explanations_are_compared():
    payload = make_payload([classifier_explanation(), random_explanation(1, 3)])
    assert payload.title == "the key to cabinets"
    assert [len(example["tokens"]) for example in payload.header()["examples"]] == [6, 3]
    assert "1/flow/1" in payload.chunks
    assert "1/flow/2" not in payload.chunks
    np.testing.assert_array_equal(
        read_chunk(payload, "1/attention/1"),
        payload.examples[1].graph.attention[0].astype(np.float16),
    )


def test_examples_are_named_by_their_differences():
    bert = replace(classifier_explanation(), model="bert")
    gpt = replace(bert, model="gpt")
    assert name_examples([bert]) == ["bert · 2 layers"]
    assert name_examples([bert, gpt]) == ["bert · 2 layers", "gpt · 2 layers"]
    assert name_examples([bert, replace(bert, text="x" * 50)]) == [TEXT, "x" * 39 + "…"]
    assert name_examples([bert, replace(gpt, text="x")]) == [
        f"{TEXT} · bert · 2 layers",
        "x · gpt · 2 layers",
    ]


def test_examples_that_differ_in_their_graph_are_named_by_it():
    one = with_settings(classifier_explanation(), edges="attention", heads="mean")
    other = with_settings(classifier_explanation(), edges="alti", heads="mean")
    assert name_examples([one, other]) == ["edges: attention", "edges: ALTI"]


def test_large_graphs_have_flow_of_the_explained_position_only(monkeypatch):
    monkeypatch.setattr(payload_module, "FLOW_PAIRS", 2 * 6 * 6 - 1)
    payload = make_payload([classifier_explanation()])
    assert payload.header()["examples"][0]["flow_rows"] == [0]
    rows = read_chunk(payload, "0/flow/2")
    assert rows.shape == (1, 6)
    flows = flow(classifier_explanation().graph).to_numpy()
    np.testing.assert_array_equal(rows[0], flows[1, 0].astype(np.float16))
    np.testing.assert_array_equal(payload.flow(0, 0, 2), flows[1, 0].astype(np.float32))
    np.testing.assert_array_equal(payload.flow(0, 4, 2), flows[1, 4].astype(np.float32))


def record_progress(payload):
    seen = []
    payload.compute(lambda done, total: seen.append((done, total)))
    return seen


def test_progress_counts_the_pairs_of_all_examples():
    seen = record_progress(make_payload([random_explanation(2, 4), random_explanation(1, 3)]))
    assert {total for _, total in seen} == {2 * 4 * 4 + 1 * 3 * 3}
    assert seen[-1][0] == seen[-1][1]
    assert seen == sorted(seen)


@pytest.mark.usefixtures("toy_method")
def test_progress_counts_the_pairs_of_all_methods():
    seen = record_progress(make_payload([random_explanation(2, 4)]))
    assert {total for _, total in seen} == {2 * (2 * 4 * 4)}
    assert seen[-1] == (64, 64)
    assert seen == sorted(seen)


@pytest.mark.parametrize(
    "key", ["", "0", "0/attention/0", "0/attention/3", "1/flow/1", "0/rollout/1", "0/flow/-1",
            "0/flow/1/2", "../flow/1", "0/flow/²", "0/flow/" + "1" * 60, "0/weights/1",
            "0/scores/flow/1", "0/scores/toy/1"]
)  # fmt: skip
def test_other_arrays_do_not_exist(key):
    with refusal(SelectionError, repr(key[:40]), "0/attention/1"):
        make_payload([classifier_explanation()]).chunk(key)


@pytest.mark.parametrize(
    ("request_", "fragments"),
    [((1, 0, 1), ["example 1", "0 to 0"]), ((0, 6, 1), ["6"]), ((0, 0, 3), ["3"])],
    ids=["example", "position", "layer"],
)
def test_other_flow_does_not_exist(request_, fragments):
    with refusal(SelectionError, *fragments):
        make_payload([classifier_explanation()]).flow(*request_)


def test_explanations_are_required():
    with refusal(InputError, "no explanation", "attnflow.explain"):
        make_payload([])
    with refusal(InputError, "str", "Explanation", "attnflow.explain"):
        make_payload(["text"])  # type: ignore[list-item]


def test_carried_positions_are_listed_by_layer():
    import transformers

    config = transformers.T5Config(
        vocab_size=len(VOCABULARY), d_model=8, d_kv=4, d_ff=8, num_layers=1, num_heads=2
    )
    model = transformers.T5ForConditionalGeneration(config).eval()
    model.config.decoder_start_token_id = 0
    explanation = explain("key", model, tokenizer=make_tokenizer(), edges="attention")  # 3 + 1
    example = make_payload([explanation]).header()["examples"][0]
    # The encoder layer carries the decoder's position; the two decoder layers carry the others.
    assert example["carried"] == [[1, 3], [2, 0], [2, 1], [2, 2], [3, 0], [3, 1], [3, 2]]
    assert example["n_heads"] == 0
    assert not [key for key in example["chunks"] if "/weights/" in key]


def test_weights_that_the_page_cannot_compute_are_chunks():
    explanation = random_explanation(2, 3)
    weights = explanation.graph.weights.copy()
    weights[1, 2] = weights[1, :2].mean(0)  # not attention with the residual connection
    payload = make_payload(
        [replace(explanation, graph=replace(explanation.graph, weights=weights))]
    )
    assert [key for key in payload.chunks if "/weights/" in key] == ["0/weights/2"]
    np.testing.assert_array_equal(read_chunk(payload, "0/weights/2"), weights[1].astype(np.float16))


def test_the_header_is_ascii_and_holds_every_token():
    text = make_payload([hostile_explanation()]).header_json()
    assert text.isascii()
    assert json.loads(text)["examples"][0]["tokens"] == list(HOSTILE)


def test_a_probability_that_is_not_a_number_is_null():
    unknown = Outcome("x", 0, float("nan"))
    prediction = Prediction("class", (unknown,), unknown)
    explanation = replace(classifier_explanation(), prediction=prediction)
    example = json.loads(make_payload([explanation]).header_json())["examples"][0]
    assert example["prediction"]["target"] == {"label": "x", "probability": None}


def test_the_header_holds_the_image():
    image = ImageGrid(b"png", rows=1, columns=2, first=1, width=20, height=10)
    explanation = replace(classifier_explanation(), image=image)
    assert make_payload([explanation]).header()["examples"][0]["image"] == {
        "src": "data:image/png;base64,cG5n",
        "rows": 1,
        "columns": 2,
        "first": 1,
        "width": 20,
        "height": 10,
    }


@pytest.mark.usefixtures("toy_method")
def test_memory_is_counted():
    payload = make_payload([random_explanation(2, 4)])
    before = payload.n_bytes()
    assert before == 2 * 2 * 4 * 4 * 8 + 2 * 2 * 4 * 4 * 8  # weights, attention; heads
    payload.compute()
    # Flow and the toy method; and all four methods, normalized by the receptive field.
    assert payload.n_bytes() == before + (2 + 4) * (2 * 4 * 4 * 8)


def test_options_say_what_the_viewer_shows_first():
    explanation = classifier_explanation()
    payload = make_payload(
        [explanation], method="flow", layer=-1, special="rank_out", words=True, top=2
    )
    assert payload.header()["state"] == {
        "method": "flow",
        "layer": 2,
        "special": True,
        "units": "words",
        "topK": 2,
    }
    assert make_payload([explanation]).header()["state"] == {}
    with refusal(SelectionError, "3", "1 to 2"):
        make_payload([explanation], layer=3)
    with refusal(SelectionError, "magic"):
        make_payload([explanation], method="magic")


def test_a_check_of_a_method_is_part_of_the_header():
    payload = replace(make_payload([classifier_explanation()]), checks={"flow": "no better"})
    assert payload.header()["checks"] == {"flow": "no better"}


def test_layers_and_sides_of_an_encoder_decoder_are_named():
    source, target = np.full((2, 2), 0.5), np.tril(np.full((3, 3), 0.5))
    target[0, 0] = target[2] = 1
    target /= target.sum(-1, keepdims=True)
    graph = AttentionGraph.encoder_decoder(
        encoder=source[None, None],
        decoder=np.stack([target[None]] * 2),
        cross=np.full((2, 1, 3, 2), 0.5),
        tokens=["a", "b", "x", "y", "z"],
    )
    example = make_payload([Explanation.from_graph(graph)]).header()["examples"][0]
    assert example["n_source"] == 2
    assert example["layer_names"] == [
        "encoder 1",
        *(f"decoder {n}, {kind}-attention" for n in (1, 2) for kind in ("self", "cross")),
    ]
    other = make_payload([classifier_explanation()]).header()["examples"][0]
    assert (other["n_source"], other["layer_names"]) == (0, [])


def test_labels_are_readable():
    graph = AttentionGraph.from_weights(
        np.full((1, 2, 2), 0.5), tokens=["\u0120caf\u00c3\u00a9", "\u010a"]
    )
    example = make_payload([Explanation.from_graph(graph)]).header()["examples"][0]
    assert example["tokens"] == ["\u0120caf\u00c3\u00a9", "\u010a"]
    assert example["labels"] == ["café", "\n"]
