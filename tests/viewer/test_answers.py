"""The payload of explanations with an answer: texts, segments, stored rows, flow of parts."""

from dataclasses import replace

import numpy as np
import pytest

from attnflow import InputError, group_flow
from attnflow.explanation import Explanation
from attnflow.presentation import describe_generation
from attnflow.viewer import payload as payload_module
from attnflow.viewer.notebook import answer as answer_message
from attnflow.viewer.payload import make_payload
from tests.refusal import refusal
from tests.viewer.answers import (
    ANSWER,
    PROMPT,
    answer_explanation,
    chat_explanation,
    translation_explanation,
)
from tests.viewer.examples import classifier_explanation

METHODS = ("raw", "rollout", "flow")


def read(payload, key, n):
    """The rows of a chunk."""
    return np.frombuffer(payload.chunk(key), "<f2").reshape(-1, n)


def test_the_header_has_the_answer_and_its_probabilities():
    explanation = answer_explanation()
    payload = make_payload([explanation])
    [example] = payload.header()["examples"]
    assert payload.title == PROMPT
    assert "".join(example["runs"]) == explanation.text == f"{PROMPT} {ANSWER}"
    assert example["segments"] == [["answer", 6, 11]]
    answer = example["answer"]
    assert explanation.answer is not None
    assert (answer["first"], answer["whole"]) == (6, [6, 7, 8, 9, 10])
    for step, expected in zip(answer["steps"], explanation.answer.steps, strict=True):
        assert step["target"]["probability"] == pytest.approx(expected.target.probability, rel=1e-3)
        assert [outcome["label"] for outcome in step["top"]] == [
            outcome.label for outcome in expected.top
        ]
    assert example["settings"][-1] == "answer: given"
    assert example["units"]["sentences"]["texts"][1:] == [PROMPT, ANSWER]


def test_a_translation_names_its_layers_and_keeps_source_and_answer_apart():
    explanation = translation_explanation()
    [example] = make_payload([explanation]).header()["examples"]
    assert [name for name, _, _ in example["segments"]] == ["source", "answer"]
    assert example["layer_names"][2:4] == [
        "decoder 1, self-attention",
        "decoder 1, cross-attention",
    ]
    first = example["answer"]["first"]
    assert explanation.answer is not None
    assert "".join(example["runs"][first:]) == explanation.answer.text  # without a line break
    assert 10 not in example["answer"]["whole"]  # the token at the end
    assert "seed 0" in example["settings"][-1]


def test_a_chat_is_named_by_its_last_message():
    assert make_payload([chat_explanation()]).title == "key to the cabinets"


@pytest.mark.parametrize("make", [answer_explanation, translation_explanation])
def test_the_last_stored_row_is_that_of_the_whole_answer(make):
    explanation = make()
    payload = make_payload([explanation])
    n, n_layers = len(explanation.tokens), explanation.graph.n_layers
    for layer in (1, n_layers):
        flows = read(payload, f"0/flow/{layer}", n)
        assert len(flows) == n + 1
        expected = explanation.flow(layers=layer).to_numpy()[0, 0]
        np.testing.assert_allclose(flows[-1], expected, atol=1e-3)
        for method in METHODS:
            rows = read(payload, f"0/normalized/{method}/{layer}", n)
            result = explanation.attribute(method, layers=layer, normalize="receptive_field")
            np.testing.assert_allclose(rows[-1], result.to_numpy()[0, 0], atol=1e-3)


def test_of_long_texts_the_rows_of_the_answer_are_stored(monkeypatch):
    explanation = answer_explanation()
    monkeypatch.setattr(payload_module, "FLOW_PAIRS", 2 * 11 * 5)
    payload = make_payload([explanation])
    assert payload.header()["examples"][0]["flow_rows"] == [5, 6, 7, 8, 9]
    rows = read(payload, "0/flow/2", 11)
    expected = explanation.flow(layers=2, answer="tokens").to_numpy()[0]
    np.testing.assert_allclose(rows[:5], expected, atol=1e-3)
    np.testing.assert_allclose(rows[5], explanation.flow(layers=2).to_numpy()[0, 0], atol=1e-3)
    monkeypatch.setattr(payload_module, "FLOW_PAIRS", 2 * 11 * 5 - 1)
    assert make_payload([explanation]).header()["examples"][0]["flow_rows"] == [5]


def test_the_flow_of_a_part_is_one_maximum_flow():
    explanation = answer_explanation()
    payload = make_payload([explanation])
    expected = group_flow(explanation.graph, positions=[[6, 7]]).values[1, 0] / 2
    np.testing.assert_allclose(payload.flow(0, 6, 2, 2), expected, atol=1e-6)
    request = {"kind": "flow", "example": 0, "position": 6, "layer": 2, "id": 1}
    _, [buffer] = answer_message(payload, {**request, "count": 2})
    np.testing.assert_allclose(np.frombuffer(buffer, "<f4"), expected, atol=1e-6)
    _, [alone] = answer_message(payload, request)
    one = explanation.flow(layers=2, positions=6).to_numpy()[0, 0]
    np.testing.assert_allclose(np.frombuffer(alone, "<f4"), one, atol=1e-6)
    reply, _ = answer_message(payload, {**request, "count": "two"})
    assert reply["kind"] == "error"


def test_positions_that_are_explained_together_have_a_row():
    explanation = replace(classifier_explanation(), positions=(0, 1, 2))
    assert isinstance(explanation, Explanation)
    payload = make_payload([explanation])
    rows = read(payload, "0/flow/2", 6)
    expected = group_flow(explanation.graph, positions=[[0, 1, 2]]).values[1, 0] / 3
    np.testing.assert_allclose(rows[-1], expected, atol=1e-3)
    assert payload.header()["examples"][0]["positions"] == [0, 1, 2]


def test_the_page_opens_with_the_units_that_were_asked_for():
    explanation = answer_explanation()
    assert make_payload([explanation], units="sentences").state["units"] == "sentences"
    assert make_payload([explanation], words=False).state == {}
    with refusal(InputError, "letters"):
        make_payload([explanation], units="letters")


def test_generation_in_words():
    assert describe_generation({"max_new_tokens": 1, "seed": 3}).endswith("1 new token, seed 3")
    sampled = describe_generation({"do_sample": True, "temperature": 0.7, "seed": 1})
    assert "temperature 0.7" in sampled


def test_of_deep_and_long_texts_flow_is_stored_at_the_last_layer(monkeypatch):
    monkeypatch.setattr("attnflow.viewer.header.FLOW_WORK", 1)
    explanation = replace(answer_explanation())
    payload = make_payload([explanation])
    assert [key for key in payload.chunks if key.startswith("0/flow/")] == ["0/flow/2"]
    rows = read(payload, "0/flow/2", 11)
    np.testing.assert_allclose(rows[-1], explanation.flow(layers=2).to_numpy()[0, 0], atol=1e-3)
    for layer in (1, 2):
        expected = explanation.flow(layers=layer, positions=3).to_numpy()[0, 0]
        np.testing.assert_allclose(payload.flow(0, 3, layer), expected, atol=1e-6)
    assert {key for key in payload.chunks if "/normalized/rollout" in key} == {
        "0/normalized/rollout/1",
        "0/normalized/rollout/2",
    }
