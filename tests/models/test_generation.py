"""Answers: generated or given, token by token, for decoders and encoder-decoders."""

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

import attnflow
from attnflow import Explanation, load_model
from attnflow.errors import InputError, SelectionError
from attnflow.models.decoding import locate_tokens
from attnflow.models.loading import LoadedModel
from tests.models.byte_level import make_byte_tokenizer
from tests.models.checkpoints import make_loaded
from tests.refusal import refusal
from tests.study.small_models import make_encoder_decoder, make_llama

explain: Any = attnflow.explain  # untyped: most explanations here have an answer
PROMPT = "the key to the"
METHODS = ("raw", "rollout", "flow")


@pytest.fixture(scope="module")
def llama():
    return make_llama(start=True)


@pytest.fixture(scope="module")
def translator():
    return make_encoder_decoder("Bart")


def generated_by_transformers(loaded, text, **options):
    """The ids that `model.generate` adds, called as its documentation says."""
    inputs = loaded.tokenizer(text, return_tensors="pt")
    [ids] = loaded.model.generate(**inputs, **options).tolist()
    return ids[1:] if loaded.task == "seq2seq" else ids[inputs["input_ids"].shape[1] :]


@pytest.mark.parametrize("options", [{"temperature": 0.5}, {"top_p": 7, "top_k": 3}])
def test_options_of_sampling_without_sampling_are_named(llama, options, caplog):
    with pytest.warns(UserWarning, match=f"{' and '.join(sorted(options))}.*do_sample"):
        explain(PROMPT, llama, generate={"max_new_tokens": 2, **options})
    assert not caplog.records  # of transformers, which names other options too


def test_options_of_sampling_have_no_warning_with_sampling(llama):
    options = {"max_new_tokens": 2, "temperature": 0.5, "do_sample": True}
    assert explain(PROMPT, llama, generate=options).answer.settings["temperature"] == 0.5
    with refusal(InputError, "do_sample", "'maybe'"):
        explain(PROMPT, llama, generate={**options, "do_sample": "maybe"})


@pytest.mark.parametrize("model", ["llama", "translator"])
def test_the_tokens_are_those_of_generate(model, request):
    loaded = request.getfixturevalue(model)
    explanation = explain(PROMPT, loaded, generate=5)
    expected = generated_by_transformers(loaded, PROMPT, max_new_tokens=5)
    assert list(explanation.answer.ids) == expected
    assert explanation.answer.settings == {"max_new_tokens": 5, "seed": 0}
    assert [explanation.tokens[i] for i in explanation.answer.tokens] == (
        loaded.tokenizer.convert_ids_to_tokens(expected)
    )


def test_sampling_options_are_passed_on_and_the_seed_is_recorded(llama):
    options = {"max_new_tokens": 6, "do_sample": True, "temperature": 3.0, "top_k": 5}
    state = torch.get_rng_state()
    explanation = explain(PROMPT, llama, generate=options, seed=7)
    assert torch.equal(torch.get_rng_state(), state)
    torch.manual_seed(7)
    assert list(explanation.answer.ids) == generated_by_transformers(llama, PROMPT, **options)
    assert explanation.answer.settings == {**options, "seed": 7}
    others = {explain(PROMPT, llama, generate=options, seed=seed).answer.ids for seed in range(5)}
    assert len(others) > 1


@pytest.mark.parametrize("edges", [None, "attention", "norm"])
def test_each_row_is_that_of_its_prefix_alone(llama, edges):
    explanation = explain(PROMPT, llama, generate=4, edges=edges)
    answer = explanation.answer
    prompt = llama.tokenizer(PROMPT)["input_ids"]
    for i, step in enumerate(answer.steps):
        ids = [*prompt, *answer.ids[:i]]
        alone = explain(ids, llama, edges=edges)
        assert alone.prediction.top[0].index == step.top[0].index
        assert step.target.index == answer.ids[i]
        np.testing.assert_allclose(
            [outcome.probability for outcome in step.top],
            [outcome.probability for outcome in alone.prediction.top],
            atol=1e-5,
        )
        for method in METHODS:
            row = explanation.attribute(method, answer="tokens").to_numpy()[:, i]
            expected = alone.attribute(method).to_numpy()[:, 0]
            np.testing.assert_allclose(row[:, : len(ids)], expected, atol=1e-5)
            assert not row[:, len(ids) :].any()


def test_rows_of_an_encoder_decoder_are_those_of_each_prefix(translator):
    explanation = explain(PROMPT, translator, continuation="is here to", edges="attention")
    whole = explanation.attribute("rollout", answer="tokens").to_numpy()
    n = len(translator.tokenizer(PROMPT)["input_ids"])
    ids = explanation.answer.ids
    for i in range(1, len(ids)):
        part = explain(PROMPT, translator, continuation=list(ids[:i]), edges="attention")
        rows = part.attribute("rollout", answer="tokens").to_numpy()
        np.testing.assert_allclose(rows, whole[:, :i, : n + 1 + i], atol=1e-5)
    first = explain(PROMPT, translator, edges="attention")
    np.testing.assert_allclose(first.rollout().to_numpy()[:, 0], whole[:, 0, : n + 1], atol=1e-5)


def test_a_given_continuation_is_predicted_token_by_token(llama):
    explanation = explain("the key", llama, continuation="is here")
    words = ("is", "here")
    assert [step.target.label for step in explanation.answer.steps] == list(words)
    assert explanation.answer.settings == {"given": True}
    inputs = llama.tokenizer("the key is here", return_tensors="pt")
    with torch.no_grad():
        chances = llama.model(**inputs).logits[0].softmax(-1)
    n = inputs["input_ids"].shape[1]
    expected = [float(chances[n - 3 + i, inputs["input_ids"][0, n - 2 + i]]) for i in range(2)]
    found = [step.target.probability for step in explanation.answer.steps]
    np.testing.assert_allclose(found, expected, atol=1e-6)
    assert explanation.answer.log_probability == pytest.approx(sum(np.log(expected)), abs=1e-5)
    assert explanation.position == n - 3
    assert explanation.prediction == explanation.answer.steps[0]


def test_a_batch_is_explained_as_its_texts_alone(llama, translator):
    for loaded in (llama, translator):
        prompts, answers = ["the key to the", "here"], ["is here", "are"]
        batch = explain(prompts, loaded, continuation=answers)
        for prompt, answer, explanation in zip(prompts, answers, batch, strict=True):
            alone = explain(prompt, loaded, continuation=answer)
            assert explanation.answer.ids == alone.answer.ids
            np.testing.assert_allclose(
                explanation.rollout(answer="tokens").to_numpy(),
                alone.rollout(answer="tokens").to_numpy(),
                atol=1e-5,
            )


def test_a_part_of_an_answer_is_one_set_of_positions(llama):
    explanation = explain("the key", llama, continuation="is here to the key")
    each = {method: explanation.attribute(method, answer="tokens") for method in METHODS}
    for method in ("raw", "rollout"):
        rows = each[method].to_numpy()
        whole = explanation.attribute(method).to_numpy()
        np.testing.assert_allclose(whole[:, 0], rows.mean(axis=1), atol=1e-6)
        part = explanation.attribute(method, answer="here to").to_numpy()
        np.testing.assert_allclose(part[:, 0], rows[:, 1:3].mean(axis=1), atol=1e-6)
    from attnflow import group_flow

    positions = [list(explanation.answer.positions)[1:3]]
    expected = group_flow(explanation.graph, positions=positions).values / 2
    found = explanation.flow(answer=slice(1, 3)).to_numpy()
    np.testing.assert_allclose(found, expected, atol=1e-12)
    assert explanation.rollout(answer=(3, 10)).row_labels == ("here to",)
    assert explanation.rollout(answer=["is", range(1, 2)]).row_labels == ("is", "here")
    assert explanation.rollout(answer="words").row_labels == ("is", "here", "to", "the", "key")


def test_top_ranks_the_prompt(llama):
    explanation = explain("the key", llama, continuation="is here")
    row = explanation.rollout(layers=-1)
    assert {index for _, index, _ in row.top(10)} == {0, 1, 2}
    words = explanation.rollout(layers=-1, units="words")
    assert {token for token, _, _ in words.top(10)} == {"[CLS]", "the", "key"}


@pytest.mark.parametrize("parts", ["words", "sentences", "tokens", None])
def test_an_answer_of_special_tokens_only(llama, parts):
    explanation = explain(PROMPT, llama, continuation=[llama.tokenizer.bos_token_id])
    assert explanation.answer.text == ""
    scores = explanation.rollout(answer=parts, units="sentences")
    expected = explanation.rollout(units="sentences")
    np.testing.assert_allclose(scores.scores, expected.scores)
    assert scores.row_labels == expected.row_labels == (explanation.tokens[-1],)


@pytest.mark.parametrize(
    "part", ["cabinets", (5, 99), (4, 4), range(1, 9), slice(9, 12), 3, None, "the"]
)
def test_parts_that_the_answer_does_not_have(llama, part):
    answer = explain("the key", llama, continuation="the is the").answer
    with refusal(SelectionError, *([] if part == "the" else [repr(part)])):
        answer.rows([part])


@pytest.mark.parametrize(
    ("options", "mentioned"),
    [
        ({"generate": 0}, "generate is 0"),
        ({"generate": True}, "True"),
        ({"generate": 3, "continuation": "is"}, "continuation"),
        ({"continuation": ""}, "empty"),
        ({"continuation": []}, "empty"),
        ({"continuation": ["is", "here"]}, "2 continuations"),
        ({"continuation": 3}, "3"),
        ({"generate": 3, "target": "is"}, "target"),
        ({"generate": 3, "position": 1}, "position"),
        ({"generate": {"max_new_tokens": 2, "colour": 3}}, "colour"),
        ({"generate": {"max_new_tokens": 2, "num_return_sequences": 2, "num_beams": 2}}, "2"),
        ({"generate": 100}, "takes"),
        ({"generate": 2.5}, "2.5"),
        ({"generate": {"max_new_tokens": "2"}}, "'2'"),
        ({"generate": {"max_new_tokens": 2, "input_ids": [[1]]}}, "input_ids"),
        ({"generate": {3: 4}}, "3"),
        ({"generate": 2, "seed": 2**70}, str(2**70)),
        ({"generate": 2, "seed": 0.5}, "0.5"),
        ({"continuation": [-1]}, "-1"),
        ({"continuation": [10**30]}, "10000000000"),
        ({"continuation": [99999]}, "99999"),
    ],
)
def test_answers_that_cannot_be_had(llama, options, mentioned):
    with refusal(InputError, mentioned):
        explain("the key", llama, **options)


def test_options_are_recorded_as_json_has_them(llama):
    class Processor:
        def __call__(self, _ids, scores):
            return scores

    options = {
        "max_new_tokens": np.int64(2),
        "logits_processor": [Processor()],
        "bad_words_ids": [[5]],
    }
    settings = explain("the key", llama, generate=options).answer.settings
    expected = {"max_new_tokens": 2, "logits_processor": ["Processor"], "bad_words_ids": [[5]]}
    assert json.loads(json.dumps(settings)) == {**expected, "seed": 0}
    assert explain("the key", llama, generate=np.int64(2)).answer.settings["max_new_tokens"] == 2
    assert explain("the key", llama, continuation=[np.int64(5)]).answer.ids == (5,)


def test_a_decoder_that_is_causal_without_a_cache_only():
    torch.manual_seed(0)
    sizes = dict.fromkeys(("d_model", "encoder_ffn_dim", "decoder_ffn_dim"), 8)
    counts = dict.fromkeys(("encoder_layers", "decoder_layers"), 1)
    heads = dict.fromkeys(("encoder_attention_heads", "decoder_attention_heads"), 2)
    make_config: Any = transformers.FSMTConfig  # typed in part
    config = make_config(
        langs=["en", "de"], src_vocab_size=30, tgt_vocab_size=30, **sizes, **counts, **heads
    )
    model: Any = transformers.FSMTForConditionalGeneration(config).eval()
    loaded = load_model(model, make_llama().tokenizer)
    explanation = explain("the key", loaded, continuation=[5, 6, 7], edges="attention")
    assert explanation.graph.n_layers == 3  # encoder, decoder, cross-attention
    ids = loaded.tokenizer("the key", return_tensors="pt")["input_ids"]
    for i, step in enumerate(explanation.answer.steps):
        decoder = torch.tensor([[config.decoder_start_token_id, 5, 6, 7][: i + 1]])
        with torch.no_grad():
            logits = model(ids, decoder_input_ids=decoder, use_cache=False).logits[0, -1]
        expected = float(logits.softmax(-1)[5 + i])
        assert step.target.probability == pytest.approx(expected, abs=1e-6)


def test_a_model_that_sees_the_answer_before_it_gives_it():
    torch.manual_seed(0)
    config = transformers.XLNetConfig(vocab_size=30, d_model=8, n_layer=1, n_head=2, d_inner=8)
    loaded = load_model(transformers.XLNetLMHeadModel(config).eval(), make_llama().tokenizer)
    with refusal(InputError, "XLNet"):
        explain("the key", loaded, continuation="is here", edges="attention")


def test_a_continuation_gets_no_space_that_it_does_not_have(llama):
    """Tokenizers like that of Llama 2 put a space before each text."""
    names = ["<unk>", "<s>", "\u2581", "\u2581the", "\u2581key", "s", ",", "\u2581is", "\n", "is"]
    pieces = Tokenizer(models.Unigram([(name, -len(name)) for name in names], unk_id=0))
    pieces.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first", split=False)
    pieces.decoder = decoders.Metaspace(prepend_scheme="never")
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_object=pieces, unk_token="<unk>")
    loaded = LoadedModel(llama.model, tokenizer, "causal_lm", "llama", None)
    assert tokenizer.convert_ids_to_tokens(tokenizer("s")["input_ids"]) == ["\u2581", "s"]
    for prompt, continuation, expected in [
        ("the key", "s is", ["s", "\u2581is"]),
        ("the key", " is", ["\u2581is"]),
        ("the key", ", is", [",", "\u2581is"]),
        ([3, 4], "s", ["s"]),  # the prompt as ids
    ]:
        explanation = explain(prompt, loaded, continuation=continuation)
        answer = explanation.answer
        assert [explanation.tokens[i] for i in answer.tokens] == expected
        assert explanation.text.endswith(continuation)
        assert answer.text == continuation


def test_a_classifier_has_no_answer():
    classifier = make_loaded()
    with refusal(InputError, "generate"):
        explain("the key", classifier, generate=3)
    explanation = explain("the key", classifier)
    with refusal(InputError, "generate"):
        explanation.rollout(answer="whole")


def test_answers_are_saved_and_loaded(llama, tmp_path):
    explanation = explain("the key", llama, continuation="is here")
    explanation.save(tmp_path / "answer.safetensors")
    loaded = Explanation.load(tmp_path / "answer.safetensors")
    assert loaded.answer == explanation.answer
    assert loaded.segments == explanation.segments
    np.testing.assert_array_equal(
        loaded.flow(answer="tokens").scores, explanation.flow(answer="tokens").scores
    )
    rows = explanation.rollout(answer="words", units="words")
    rows.save(tmp_path / "rows.safetensors")
    again = type(rows).load(tmp_path / "rows.safetensors")
    assert (again.rows, again.row_labels) == (rows.rows, ("is", "here"))
    np.testing.assert_array_equal(again["here"], rows["here"])


def test_gradient_edges_explain_the_whole_answer(llama):
    explanation = explain("the key", llama, continuation="is here", edges="gradient")
    assert explanation.rollout().to_numpy().shape[1] == 1


@pytest.mark.parametrize(
    "text",
    [
        "a cafe\u0301 \u20ac 5",
        "\u4f60\u597d \U0001f469\u200d\U0001f467!",
        "\u0645\u0631\u062d\u0628\u0627",
    ],
)
def test_tokens_are_located_in_the_text_that_they_decode_to(text):
    tokenizer = make_byte_tokenizer()
    ids = tokenizer(text)["input_ids"]
    assert len(ids) > len(text)  # several tokens a character
    decoded, offsets = locate_tokens(tokenizer, ids)
    assert decoded == text
    spans = [span for span in offsets if span is not None]
    assert len(spans) == len(ids)
    assert "".join(text[start:end] for start, end in sorted(set(spans))) == text
    assert spans == sorted(spans)


def test_a_space_at_the_start_of_an_answer_depends_on_what_is_before():
    tokenizer = make_byte_tokenizer()
    before, ids = tokenizer("the")["input_ids"], tokenizer(" key")["input_ids"]
    assert locate_tokens(tokenizer, ids, before=before)[0] == " key"


def real(name):
    """The folder of a real model, if there is one."""
    folder = Path(os.environ.get("ATTNFLOW_MODELS", "")) / name
    if not os.environ.get("ATTNFLOW_MODELS") or not folder.is_dir():
        pytest.skip(f"set ATTNFLOW_MODELS to a folder that contains {name}")
    return load_model(folder)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:Recommended:UserWarning")
def test_a_real_translation_is_aligned():
    pytest.importorskip("sentencepiece")
    loaded = real("opus-mt-en-fr")
    explanation = explain("The keys to the cabinet are on the table.", loaded, generate=30)
    assert explanation.answer.text == "Les cl\u00e9s de l'armoire sont sur la table."
    rows = explanation.rollout(layers=-1, answer="words", units="words", special="rank_out")
    best = {label: rows.top(1, position=label)[0][0] for label in ("cl\u00e9s", "armoire", "sont")}
    assert best == {"cl\u00e9s": "keys", "armoire": "cabinet", "sont": "are"}


@pytest.mark.slow
def test_a_real_chat_names_what_it_was_asked_about():
    loaded = real("smollm2")
    question = {"role": "user", "content": "What is the capital of France?"}
    explanation = explain(messages=[question], model=loaded, generate=20)
    assert "Paris" in explanation.answer.text
    rows = explanation.rollout(layers=-1, answer="Paris", units="words", special="hide")
    assert {token for token, _, _ in rows.top(2)} == {"capital", "France"}
