"""Requests for answers: generated or given, chats and pairs, and their limits."""

from dataclasses import replace

import numpy as np
import pytest

from attnflow import group_flow
from attnflow.explainer import explain
from attnflow.viewer.server.choices import read_input
from attnflow.viewer.server.security import Limits, RequestError
from attnflow.viewer.server.tasks import ExplainTask, Question, describe_model
from tests.models.checkpoints import make_loaded
from tests.refusal import refusal
from tests.study.small_models import make_llama
from tests.viewer.server.client import LIMITS, TEXT, Client, assert_rejected

TEMPLATE = "{% for m in messages %}{{ m.content + ' ' }}{% endfor %}"


@pytest.fixture(scope="module")
def client():
    with Client(replace(LIMITS, generated=4)) as client:
        yield client


def ask(client, **fields):
    return client.post("/api/explanations", json={"examples": [{"model": 1, **fields}]})


def header(client, job):
    assert job["state"] == "done", job
    return client.get(f"/api/explanations/{job['result']}/header").json()["examples"][0]


def test_a_generated_answer(client):
    job = client.wait_for(ask(client, text=TEXT, generate="3"))
    example = header(client, job)
    expected = explain(TEXT, make_loaded("GPT2LMHeadModel"), generate=3)
    assert example["tokens"] == list(expected.tokens)
    assert len(example["answer"]["steps"]) == 3
    base = f"/api/explanations/{job['result']}/flow?example=0&layer=2"
    row = client.get(f"{base}&position=4&count=2")
    flows = group_flow(expected.graph, positions=[[4, 5]]).values[1, 0] / 2
    np.testing.assert_allclose(np.frombuffer(row.content, "<f4"), flows, atol=1e-6)
    assert_rejected(client.get(f"{base}&position=4&count=9"), 400, "count")


def test_a_sampled_answer(client):
    sampling = {"temperature": 5, "top_p": "0.9", "seed": 3}
    example = header(client, client.wait_for(ask(client, text=TEXT, generate=4, **sampling)))
    options = {"max_new_tokens": 4, "do_sample": True, "temperature": 5.0, "top_p": 0.9}
    expected = explain(TEXT, make_loaded("GPT2LMHeadModel"), generate=options, seed=3)
    assert example["tokens"] == list(expected.tokens)
    assert "temperature" in example["settings"][-1]
    assert "seed 3" in example["settings"][-1]
    others = [
        explain(TEXT, make_loaded("GPT2LMHeadModel"), generate=options, seed=seed).tokens
        for seed in range(4, 8)
    ]
    assert any(tokens != expected.tokens for tokens in others)  # it really samples


@pytest.mark.parametrize(
    ("sampling", "expected"),
    [
        ({}, {"generate": 2}),
        ({"temperature": "", "top_p": None, "seed": ""}, {"generate": 2}),
        ({"temperature": 0}, {"generate": {"max_new_tokens": 2, "do_sample": False}}),
        ({"seed": "7"}, {"generate": 2, "seed": 7}),
        (
            {"top_p": 1, "seed": 0},
            {"generate": {"max_new_tokens": 2, "top_p": 1.0, "do_sample": True}, "seed": 0},
        ),
    ],
)
def test_options_of_sampling(sampling, expected):
    assert read_input({"text": TEXT, "generate": 2, **sampling}, LIMITS) == (TEXT, expected)


def test_a_given_answer(client):
    example = header(client, client.wait_for(ask(client, text="the key", continuation="is here")))
    assert example["answer"]["text"].split() == ["is", "here"]
    assert example["settings"][-1] == "answer: given"


def test_two_texts(client):
    fields = {"text": "the key", "text_pair": "to cabinets", "model": 0}
    example = header(client, client.wait_for(ask(client, **fields)))
    assert [name for name, _, _ in example["segments"]] == ["first", "second"]


def test_a_chat_needs_a_template_and_has_its_roles():
    loaded = make_llama()
    messages = [{"role": "user", "content": "the key"}, {"role": "user", "content": "is here"}]
    task = ExplainTask((Question("", 0, {"messages": messages, "generate": 2}),))
    assert not describe_model(loaded).chats
    loaded.tokenizer.chat_template = TEMPLATE
    assert describe_model(loaded).chats
    assert describe_model(loaded).generates
    [example] = task.run([loaded], Limits(), lambda *_: None).header()["examples"]
    assert [name for name, _, _ in example["segments"]] == ["user", "user", "answer"]


def test_a_chat_without_a_template_is_an_error_of_the_job(client):
    job = client.wait_for(ask(client, messages=[{"role": "user", "content": "the key"}]))
    assert "template" in job["error"]


@pytest.mark.parametrize(
    ("fields", "fragments"),
    [
        ({"text": TEXT, "generate": 5}, ["generate", "1 to 4", "--max-generate"]),
        ({"text": TEXT, "generate": 0}, ["1 to 4"]),
        ({"text": TEXT, "generate": "many"}, ["many"]),
        ({"text": TEXT, "generate": 2, "temperature": -1}, ["temperature", "0 to 10"]),
        ({"text": TEXT, "generate": 2, "temperature": "nan"}, ["temperature"]),
        ({"text": TEXT, "generate": 2, "temperature": [1]}, ["temperature"]),
        ({"text": TEXT, "generate": 2, "top_p": 0}, ["top_p", "above 0"]),
        ({"text": TEXT, "generate": 2, "top_p": 1.5}, ["top_p"]),
        ({"text": TEXT, "generate": 2, "seed": -3}, ["seed"]),
        ({"text": TEXT, "continuation": 3}, ["continuation"]),
        ({"text": TEXT, "text_pair": "  "}, ["second text"]),
        ({"messages": "hello"}, ["messages"]),
        ({"messages": [{"content": "hello"}]}, ["role"]),
        ({"messages": [{"role": "user"}]}, ["message"]),
        ({"messages": [{"role": "user", "content": "\ud800"}]}, ["surrogate"]),
        ({"text": ""}, ["no text"]),
    ],
)
def test_invalid_input_is_refused(fields, fragments):
    with refusal(RequestError, *fragments):
        read_input(fields, replace(LIMITS, generated=4))


def test_all_texts_together_have_a_limit():
    with refusal(RequestError, "120 characters", "--max-text"):
        read_input({"text": "a" * 60, "continuation": "b" * 60}, LIMITS)


def test_tokens_to_generate_count(client):
    job = client.wait_for(ask(client, text="key " * 10, generate=4))
    assert job["state"] == "failed"
    assert "4 are to be generated" in job["error"]
