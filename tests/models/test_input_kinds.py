"""Chats, pairs, embeddings and pooled models: what is encoded, and how it is labelled."""

import json
from copy import deepcopy
from typing import Any

import numpy as np
import pytest
import torch
from tokenizers import processors

import attnflow
from attnflow.errors import InputError
from attnflow.models.input_kinds import encode_inputs
from attnflow.models.loading import LoadedModel
from attnflow.predictions import Segment
from tests.models.checkpoints import make_loaded
from tests.refusal import refusal
from tests.study.small_models import make_llama, make_pieces

explain: Any = attnflow.explain
TEMPLATE = (
    "{% for message in messages %}{{ message.role }} : {{ message.content }} ; {% endfor %}"
    "{% if add_generation_prompt %}assistant :{% endif %}"
)
USER = {"role": "user", "content": "the key"}
SYSTEM = {"role": "system", "content": "is here"}
REPLY = {"role": "assistant", "content": "to cabinets"}


@pytest.fixture(scope="module")
def chatter():
    loaded = make_llama()
    loaded.tokenizer.chat_template = TEMPLATE
    return loaded


@pytest.fixture(scope="module")
def pairs():
    loaded = make_loaded()
    loaded.tokenizer.backend_tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[("[CLS]", 2), ("[SEP]", 3)],
    )
    return loaded


def texts_of(encoded):
    return {part.name: encoded.tokens[part.start : part.stop] for part in encoded.segments}


def test_a_chat_is_the_text_of_its_template(chatter):
    [encoded], single = encode_inputs(chatter, [SYSTEM, USER])
    assert single
    assert encoded.text == "system : is here ; user : the key ; assistant :"
    expected = chatter.tokenizer.apply_chat_template(
        [SYSTEM, USER], add_generation_prompt=True, tokenize=True, return_dict=False
    )
    assert encoded.inputs["input_ids"][0].tolist() == expected
    assert texts_of(encoded) == {"system": ("is", "here"), "user": ("the", "key")}
    ordinary = [
        t for t, special in zip(encoded.tokens, encoded.special, strict=True) if not special
    ]
    assert ordinary == ["is", "here", "the", "key"]


def test_equal_messages_are_found_one_after_the_other(chatter):
    [encoded], _ = encode_inputs(chatter, [USER, SYSTEM, USER])
    starts = [(part.name, part.start) for part in encoded.segments]
    assert starts == [("user", 2), ("system", 7), ("user", 12)]


@pytest.mark.parametrize("content", ["user", ":", "is", "assistant", "the key is", " the  key "])
def test_a_message_is_not_mistaken_for_the_same_words_in_the_template(chatter, content):
    loaded = LoadedModel(chatter.model, deepcopy(chatter.tokenizer), "causal_lm", "chatter", None)
    loaded.tokenizer.chat_template = (
        "{% if messages[0].role != 'system' %}system : the key is here ; {% endif %}" + TEMPLATE
    )
    default = "system : the key is here ; "
    [encoded], _ = encode_inputs(loaded, [{"role": "user", "content": content}])
    start = len(default + "user : ")
    [added, user] = encoded.segments
    assert [added.name, user.name] == ["default system prompt", "user"]
    assert encoded.tokens[added.start : added.stop] == ("the", "key", "is", "here")
    spans = [span for span in encoded.offsets[user.start : user.stop] if span]
    assert encoded.text[spans[0][0] : spans[-1][1]] == content.strip()
    assert spans[0][0] >= start
    [encoded], _ = encode_inputs(loaded, [SYSTEM, USER])
    assert [part.name for part in encoded.segments] == ["system", "user"]


def test_messages_that_a_template_rewrites():
    loaded = make_llama()
    loaded.tokenizer.chat_template = TEMPLATE.replace(
        "message.content", "message.content.split('</think>')[-1] | trim"
    )
    thought = {"role": "assistant", "content": "is </think> the key"}
    [encoded], _ = encode_inputs(loaded, [USER, thought, {"role": "user", "content": "key "}])
    assert encoded.text == "user : the key ; assistant : the key ; user : key ; assistant :"
    assert [(part.name, part.start) for part in encoded.segments] == [("user", 2), ("user", 12)]
    loaded.tokenizer.chat_template = (
        "{% if 'key' in messages[0].content %}key{% else %}{{ [] + 1 }}"
    )
    loaded.tokenizer.chat_template += "{% endif %}"
    [encoded], _ = encode_inputs(loaded, [USER])  # a template that reads what is said
    assert encoded.segments == ()


def test_an_answer_at_the_end_of_a_chat_is_explained(chatter):
    explanation = explain(messages=[USER, REPLY], model=chatter)
    assert explanation.answer.text.strip() == "to cabinets"
    again = explain([USER], chatter, continuation=" to cabinets")
    assert explanation.answer.ids == again.answer.ids
    np.testing.assert_allclose(
        explanation.rollout(answer="tokens").to_numpy(), again.rollout(answer="tokens").to_numpy()
    )
    names = [part.name for part in explanation.segments]
    assert names == ["user", "answer"]
    units = explanation.find_units("segments")
    assert units.texts == ("(special tokens)", "user", "answer")
    whole = explanation.rollout(layers=-1, units="segments").to_numpy()
    assert whole.sum() == pytest.approx(1, abs=1e-5)


def test_several_chats_are_a_batch(chatter):
    batch = explain(messages=[[USER], [SYSTEM, USER]], model=chatter, generate=2)
    assert [len(one.answer) for one in batch] == [2, 2]


def test_parts_of_a_message_are_joined():
    parts = {"role": "user", "content": [{"type": "text", "text": "the key"}]}
    chatter_parts = make_llama()
    chatter_parts.tokenizer.chat_template = TEMPLATE.replace(
        "message.content", "message.content[0].text"
    )
    [encoded], _ = encode_inputs(chatter_parts, [parts])
    assert texts_of(encoded) == {"user": ("the", "key")}


@pytest.mark.parametrize(
    ("options", "mentioned"),
    [
        ({"messages": [USER, REPLY], "generate": 3}, "generate"),
        ({"messages": [[USER, REPLY], [USER]]}, "assistant"),
        ({"messages": [USER], "text": "the"}, "messages"),
        ({}, "input_ids"),
        ({"messages": [{"role": "user", "content": 5}]}, "5"),
    ],
)
def test_chats_that_are_refused(chatter, options, mentioned):
    with refusal(InputError, mentioned):
        explain(model=chatter, **options)


def test_a_chat_needs_a_template():
    with refusal(InputError, "template"):
        explain(messages=[USER], model=make_llama())


def test_a_pair_is_encoded_as_the_tokenizer_does(pairs):
    [encoded], _ = encode_inputs(pairs, "the key", text_pair="is here")
    expected = pairs.tokenizer("the key", "is here")
    assert encoded.inputs["input_ids"][0].tolist() == expected["input_ids"]
    assert encoded.segments == (Segment("first", 1, 3), Segment("second", 4, 6))
    assert encoded.text == "the key\nis here"
    found = [encoded.text[slice(*span)] for span in encoded.offsets or () if span]
    assert found == ["the", "key", "is", "here"]
    assert encoded.words.texts == ("[CLS]", "the", "key", "[SEP]", "is", "here", "[SEP]")


def test_pairs_run_as_a_batch(pairs):
    batch = explain(["the key", "here"], pairs, text_pair=["is here", "are"])
    alone = explain("here", pairs, text_pair="are")
    np.testing.assert_allclose(batch[1].rollout().to_numpy(), alone.rollout().to_numpy(), atol=1e-6)
    scores = alone.rollout(units="segments", layers=-1)
    assert scores.tokens == ("(special tokens)", "first", "second")


@pytest.mark.parametrize(
    ("text", "second"),
    [("the key", ["is", "here"]), (["the", "key"], "is"), (["the"], ["is", "are"])],
)
def test_pairs_that_do_not_fit(pairs, text, second):
    with refusal(InputError, "text_pair"):
        explain(text, pairs, text_pair=second)


@pytest.mark.parametrize("second", [5, "", None])
def test_second_texts_that_are_no_texts(pairs, second):
    if second is None:
        assert explain("the", pairs).segments == ()
        return
    with refusal(InputError):
        explain("the", pairs, text_pair=second)


def test_embeddings_are_explained_as_their_tokens(chatter):
    ids = chatter.tokenizer("the key to")["input_ids"]
    embeddings = chatter.model.get_input_embeddings()(torch.tensor(ids)).detach()
    by_ids = explain(ids, chatter)
    explanation = explain({"inputs_embeds": embeddings, "tokens": ["the", "key", "to"]}, chatter)
    assert explanation.prediction == by_ids.prediction
    assert explanation.tokens == ("the", "key", "to")
    np.testing.assert_allclose(explanation.rollout().to_numpy(), by_ids.rollout().to_numpy())
    assert explain({"inputs_embeds": embeddings[None]}, chatter).tokens == ("0", "1", "2")
    for bad in (
        {"inputs_embeds": embeddings[None, None]},
        {"inputs_embeds": embeddings, "position_ids": [0, 1, 2]},
        {"inputs_embeds": embeddings, "tokens": ["the"]},
    ):
        with refusal(InputError):
            explain(bad, chatter)
    with refusal(InputError, "embeddings"):
        explain({"inputs_embeds": embeddings}, chatter, generate=2)


def test_a_mean_over_positions_is_one_row():
    encoder = make_loaded("BertModel")
    mean = explain("the key to", encoder, position="[MEAN]")
    every = explain("the key to", encoder)
    rows = every.rollout(positions=range(len(every.tokens))).to_numpy()
    np.testing.assert_allclose(mean.rollout().to_numpy()[:, 0], rows.mean(axis=1), atol=1e-6)
    flows = mean.flow(layers=-1).to_numpy()
    assert flows.shape == (1, 1, len(every.tokens))
    assert mean.rollout(positions=0).to_numpy().shape[1] == 1


def test_a_folder_that_says_mean_pooling_is_explained_so(tmp_path):
    encoder = make_loaded("BertModel")
    folder = tmp_path / "1_Pooling"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps({"pooling_mode_mean_tokens": True}))
    pooled = LoadedModel(encoder.model, encoder.tokenizer, "encoder", str(tmp_path), None)
    assert explain("the key", pooled).positions == (0, 1, 2, 3)
    (folder / "config.json").write_text(json.dumps({"pooling_mode_cls_token": True}))
    assert explain("the key", pooled).positions == ()


def test_units_of_the_text_are_sums_of_its_tokens():
    pieces = make_pieces()
    explanation = explain("the cabinets is the key", pieces)
    plain = explanation.rollout().to_numpy()[:, 0]
    named = {"subject": "cabinets", "end": (16, 23)}
    units = explanation.rollout(units=named)
    assert units.tokens == ("(special tokens)", "(rest)", "subject", "end")
    tokens = list(explanation.tokens)
    at = tokens.index("cabinet")
    np.testing.assert_allclose(units.to_numpy()[:, 0, 2], plain[:, [at, at + 1]].sum(-1), atol=1e-6)
    np.testing.assert_allclose(units.to_numpy().sum(-1), 1, atol=1e-5)
    from attnflow import group_flow

    flows = explanation.flow(units=named).to_numpy()[:, 0, 2]
    group = group_flow(explanation.graph, positions=[explanation.position], tokens=[[at, at + 1]])
    np.testing.assert_allclose(flows, group.values[:, 0, 0])
    assert explanation.rollout(units="sentences").tokens == (
        "(special tokens)",
        "the cabinets is the key",
    )


@pytest.mark.parametrize(
    ("units", "mentioned"),
    [
        ("paragraphs", "sentences"),
        ({"claim": "moon"}, "moon"),
        ({"claim": "the"}, "2 times"),
        ([(0, 5), (3, 7)], "3"),
        ([], "units"),
        (3, "units"),
        ("segments", "segments"),
    ],
)
def test_units_that_are_not_in_the_text(units, mentioned):
    explanation = explain("the key to the cabinets", make_loaded())
    with refusal(InputError, mentioned):
        explanation.rollout(units=units)
