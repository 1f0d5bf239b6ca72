"""What the viewer is given: the library's numbers, rounded to float16 and nothing else."""

import json
from dataclasses import replace

import numpy as np
import pytest

from attnflow import InputError, SelectionError, flow, raw_attention
from attnflow.explainer import explain
from attnflow.explanation import ImageGrid
from attnflow.models.prediction import Outcome, Prediction
from attnflow.viewer import payload as flow_rows
from attnflow.viewer.payload import make_payload, name_examples
from tests.models.checkpoints import VOCABULARY, make_tokenizer
from tests.refusal import refusal
from tests.viewer.examples import HOSTILE, classified, hostile, made_up

TEXT = "the key to cabinets"


def halves(payload, key):
    example, _, _ = key.split("/")
    chunk = payload.header()["examples"][int(example)]["chunks"][key]
    return np.frombuffer(payload.chunk(key), "<f2").reshape(chunk["shape"])


def test_arrays_are_those_of_the_library():
    explanation = classified()
    payload = make_payload([explanation])
    assert len(payload.chunk_keys()) == 6  # attention, flow and heads of two layers
    attention = raw_attention(explanation.graph).to_numpy()
    flows = flow(explanation.graph).to_numpy()
    assert explanation.heads is not None
    for layer in (1, 2):
        np.testing.assert_array_equal(
            halves(payload, f"0/attention/{layer}"), attention[layer - 1].astype(np.float16)
        )
        np.testing.assert_array_equal(
            halves(payload, f"0/flow/{layer}"), flows[layer - 1].astype(np.float16)
        )
        np.testing.assert_array_equal(
            halves(payload, f"0/heads/{layer}"), explanation.heads.layers[layer - 1]
        )
        np.testing.assert_array_equal(
            payload.flow(0, 3, layer), flows[layer - 1, 3].astype(np.float32)
        )


def test_the_header_says_what_there_is():
    explanation = classified()
    header = json.loads(make_payload([explanation], title="a title").header_json())
    assert header["format"] == 1
    assert header["title"] == "a title"
    [example] = header["examples"]
    assert example["tokens"] == list(explanation.tokens)
    assert example["special"] == [True, False, False, False, False, True]
    assert example["words"]["groups"] == [[i] for i in range(6)]
    assert (example["n_layers"], example["n_heads"]) == (2, 2)
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


def test_several_are_compared_and_named_by_the_first():
    payload = make_payload([classified(), made_up(1, 3)])
    assert payload.title == "the key to cabinets"
    assert [len(one["tokens"]) for one in payload.header()["examples"]] == [6, 3]
    assert "1/flow/1" in payload.chunk_keys()
    assert "1/flow/2" not in payload.chunk_keys()
    np.testing.assert_array_equal(
        halves(payload, "1/attention/1"),
        payload.examples[1].graph.attention[0].astype(np.float16),
    )


def test_examples_are_named_by_what_tells_them_apart():
    one = replace(classified(), model="bert")
    assert name_examples([one]) == ["bert · 2 layers"]
    assert name_examples([one, replace(one, model="gpt")]) == ["bert · 2 layers", "gpt · 2 layers"]
    assert name_examples([one, replace(one, text="x" * 50)]) == [TEXT, "x" * 39 + "…"]
    assert name_examples([one, replace(one, text="x", model="gpt")]) == [
        f"{TEXT} · bert · 2 layers",
        "x · gpt · 2 layers",
    ]


def test_of_large_graphs_flow_is_that_of_the_explained_position(monkeypatch):
    monkeypatch.setattr(flow_rows, "FLOW_PAIRS", 2 * 6 * 6 - 1)
    payload = make_payload([classified()])
    assert payload.header()["examples"][0]["flow_rows"] == [0]
    rows = halves(payload, "0/flow/2")
    assert rows.shape == (1, 6)
    flows = flow(classified().graph).to_numpy()
    np.testing.assert_array_equal(rows[0], flows[1, 0].astype(np.float16))
    np.testing.assert_array_equal(payload.flow(0, 4, 2), flows[1, 4].astype(np.float32))


def test_progress_counts_the_pairs_of_all_examples():
    seen = []
    payload = make_payload([made_up(2, 4), made_up(1, 3, seed=1)])
    payload.compute(lambda done, total: seen.append((done, total)))
    assert {total for _, total in seen} == {2 * 4 * 4 + 1 * 3 * 3}
    assert seen[-1][0] == seen[-1][1]
    assert seen == sorted(seen)


@pytest.mark.parametrize(
    "key", ["", "0", "0/attention/0", "0/attention/3", "1/flow/1", "0/rollout/1", "0/flow/-1",
            "0/flow/1/2", "../flow/1", "0/flow/²", "0/flow/" + "1" * 60]
)  # fmt: skip
def test_there_are_no_other_arrays(key):
    with refusal(SelectionError, "there is no array", "expected one that the header names"):
        make_payload([classified()]).chunk(key)


def test_there_is_no_other_flow():
    payload = make_payload([classified()])
    with refusal(SelectionError, "there is no example 1; expected 0 to 0"):
        payload.flow(1, 0, 1)
    with refusal(SelectionError, "there is no position 6"):
        payload.flow(0, 6, 1)
    with refusal(SelectionError, "there is no layer 3"):
        payload.flow(0, 0, 3)


def test_explanations_are_needed():
    with refusal(InputError, "no explanation was given; expected at least one"):
        make_payload([])
    with refusal(InputError, "str was given; expected Explanation"):
        make_payload(["text"])  # type: ignore[list-item]


def test_carried_positions_are_named_by_layer():
    import transformers

    config = transformers.T5Config(
        vocab_size=len(VOCABULARY), d_model=8, d_kv=4, d_ff=8, num_layers=1, num_heads=2
    )
    model = transformers.T5ForConditionalGeneration(config).eval()
    model.config.decoder_start_token_id = 0
    explanation = explain("key", model, tokenizer=make_tokenizer())  # 3 + 1 positions
    example = make_payload([explanation]).header()["examples"][0]
    # One encoder layer carries the decoder's position; the two steps of the decoder the others.
    assert example["carried"] == [[1, 3], [2, 0], [2, 1], [2, 2], [3, 0], [3, 1], [3, 2]]
    assert example["n_heads"] == 0
    assert not [key for key in example["chunks"] if "/weights/" in key]


def test_weights_that_cannot_be_worked_out_go_along():
    explanation = made_up(2, 3)
    weights = explanation.graph.weights.copy()
    weights[1, 2] = weights[1, :2].mean(0)  # a position that is the mean of two others
    payload = make_payload(
        [replace(explanation, graph=replace(explanation.graph, weights=weights))]
    )
    named = [key for key in payload.chunk_keys() if "/weights/" in key]
    assert named == ["0/weights/2"]
    np.testing.assert_array_equal(halves(payload, "0/weights/2"), weights[1].astype(np.float16))


def test_the_header_is_ascii_and_holds_every_token():
    text = make_payload([hostile()]).header_json()
    assert text.isascii()
    assert json.loads(text)["examples"][0]["tokens"] == list(HOSTILE)


def test_a_probability_that_is_none_is_null():
    nothing = Outcome("x", 0, float("nan"))
    explanation = replace(classified(), prediction=Prediction("class", (nothing,), nothing))
    example = json.loads(make_payload([explanation]).header_json())["examples"][0]
    assert example["prediction"]["target"] == {"label": "x", "probability": None}


def test_a_picture_goes_along():
    image = ImageGrid(b"png", rows=1, columns=2, first=1, width=20, height=10)
    example = make_payload([replace(classified(), image=image)]).header()["examples"][0]
    assert example["image"] == {
        "src": "data:image/png;base64,cG5n",
        "rows": 1,
        "columns": 2,
        "first": 1,
        "width": 20,
        "height": 10,
    }


def test_memory_is_counted():
    payload = make_payload([made_up(2, 4)])
    before = payload.n_bytes()
    assert before == 2 * 2 * 4 * 4 * 8 + 2 * 2 * 4 * 4 * 8  # weights, attention; heads
    payload.compute()
    assert payload.n_bytes() == before + 2 * 4 * 4 * 8
