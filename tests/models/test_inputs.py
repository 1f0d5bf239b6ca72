"""Texts and token ids, encoded for a model."""

import numpy as np
import pytest
import torch

from attnflow.errors import InputError
from attnflow.models.input_kinds import check_argument_order, encode_inputs
from attnflow.models.inputs import (
    CHARACTERS_PER_TOKEN,
    EncodedText,
    InvalidText,
    collate,
    encode_text,
    encode_texts,
)
from attnflow.models.loading import LoadedModel, load_model
from tests.models.checkpoints import LIMIT, make_loaded, make_model, make_tokenizer
from tests.refusal import refusal

TEXT = "the key to cabinets"
IDS = [2, 5, 6, 7, 8, 3]  # [CLS] the key to cabinets [SEP]
SHORT = [2, 11, 3]  # [CLS] here [SEP]


@pytest.fixture(scope="module")
def loaded():
    return make_loaded()


def same(one: EncodedText, other: EncodedText) -> bool:
    """Whether the model sees the same in both, up to offsets, which may include a space."""
    return (
        (one.tokens, one.special, one.words) == (other.tokens, other.special, other.words)
        and one.text == other.text
        and all(torch.equal(one.inputs[name], other.inputs[name]) for name in one.inputs)
    )


def test_a_text_has_offsets(loaded):
    encoded = encode_text(loaded, f" {TEXT}")
    assert encoded.offsets == (None, (1, 4), (5, 8), (9, 11), (12, 20), None)
    assert encoded.tokens == ("[CLS]", "the", "key", "to", "cabinets", "[SEP]")
    [batched] = encode_texts(loaded, [f" {TEXT}"])
    assert isinstance(batched, EncodedText)
    assert batched.offsets == encoded.offsets


def test_special_tokens_in_the_text_have_offsets(loaded):
    assert encode_text(loaded, "key [SEP]").offsets == (None, (0, 3), (4, 9), None)


def test_slow_tokenizers_have_offsets_by_decoding(loaded):
    class Slow:
        is_fast = False

        def __getattr__(self, name):
            return getattr(loaded.tokenizer, name)

        def __call__(self, text, **options):
            return loaded.tokenizer(text, **options)

    slow = LoadedModel(loaded.model, Slow(), loaded.task, loaded.name, loaded.max_length)
    encoded = encode_text(slow, TEXT)
    spans = [TEXT[slice(*span)].strip() for span in encoded.offsets or () if span]
    assert spans == ["the", "key", "to", "cabinets"]
    assert encoded.words == encode_text(loaded, TEXT).words
    changed = encode_text(slow, "the KEY to cabinets")  # the vocabulary is in lower case
    assert changed.offsets is None


def test_one_text(loaded):
    [encoded], single = encode_inputs(loaded, TEXT)
    assert single
    assert same(encoded, encode_text(loaded, TEXT))
    assert encode_inputs(loaded, encoded) == ([encoded], True)


@pytest.mark.parametrize("convert", [list, tuple, np.asarray, iter])
def test_several_texts(loaded, convert):
    encoded, single = encode_inputs(loaded, convert([TEXT, "here"]))
    assert not single
    assert [text.text for text in encoded] == [TEXT, "here"]


def test_a_batch_of_one_text_is_a_batch(loaded):
    encoded, single = encode_inputs(loaded, [TEXT])
    assert (len(encoded), single) == (1, False)


@pytest.mark.parametrize("convert", [list, tuple, np.asarray, torch.tensor])
def test_token_ids_are_those_of_the_text(loaded, convert):
    [encoded], single = encode_inputs(loaded, convert(IDS))
    assert single
    assert same(encoded, encode_text(loaded, TEXT))
    spans = [TEXT[slice(*span)].strip() for span in encoded.offsets or () if span]
    assert spans == ["the", "key", "to", "cabinets"]


@pytest.mark.parametrize(
    "ids",
    [
        [IDS, SHORT],
        (torch.tensor(IDS), np.asarray(SHORT)),
        {"input_ids": [IDS, SHORT]},
        {"input_ids": torch.tensor([IDS, SHORT + [0] * 3]),
         "attention_mask": torch.tensor([[1] * 6, [1] * 3 + [0] * 3])},
        {"input_ids": np.asarray([IDS, [0] * 3 + SHORT]),  # padded on the left
         "attention_mask": np.asarray([[True] * 6, [False] * 3 + [True] * 3])},
    ],
)  # fmt: skip
def test_a_batch_of_token_ids(loaded, ids):
    encoded, single = encode_inputs(loaded, ids)
    assert not single
    assert [text.n_inputs for text in encoded] == [6, 3]
    for text, words in zip(encoded, (TEXT, "here"), strict=True):
        assert same(text, encode_text(loaded, words))


@pytest.mark.parametrize("options", [{}, {"return_tensors": "pt"}, {"return_tensors": "np"}])
def test_the_output_of_a_tokenizer(loaded, options):
    output = loaded.tokenizer([TEXT, "here"], padding=True, **options)
    encoded, single = encode_inputs(loaded, output)
    assert not single
    for text, words in zip(encoded, (TEXT, "here"), strict=True):
        assert same(text, encode_text(loaded, words))
    [encoded_text], single = encode_inputs(loaded, loaded.tokenizer(TEXT))
    assert single
    assert same(encoded_text, encode_text(loaded, TEXT))


def test_other_outputs_of_a_tokenizer_are_ignored(loaded):
    output = loaded.tokenizer(TEXT, return_special_tokens_mask=True, return_offsets_mapping=True)
    assert same(encode_inputs(loaded, output)[0][0], encode_text(loaded, TEXT))


def test_a_cache_is_ignored_if_the_input_is_whole():
    decoder = make_loaded("GPT2LMHeadModel")
    ids = torch.tensor([IDS])
    cache = decoder.model(ids[:, :3]).past_key_values
    [encoded], _ = encode_inputs(decoder, {"input_ids": ids, "past_key_values": cache})
    assert encoded.inputs["input_ids"].tolist() == [IDS]
    with refusal(InputError, "past_key_values"):
        encode_inputs(decoder, {"input_ids": ids[:, :2], "past_key_values": cache})


def test_token_types_reach_the_model(loaded):
    types = [[0, 0, 0, 1, 1, 1]]
    [encoded], _ = encode_inputs(loaded, {"input_ids": [IDS], "token_type_ids": types})
    assert encoded.inputs["token_type_ids"].tolist() == types
    decoder = make_loaded("GPT2LMHeadModel")
    [encoded], _ = encode_inputs(decoder, {"input_ids": IDS, "token_type_ids": types[0]})
    assert encoded.inputs["token_type_ids"].tolist() == types


def test_masks_and_unknown_words_are_not_special(loaded):
    [encoded], _ = encode_inputs(loaded, [2, 4, 1, 3])
    assert encoded.tokens == ("[CLS]", "[MASK]", "[UNK]", "[SEP]")
    assert encoded.special == (True, False, False, True)
    assert encoded.special == encode_text(loaded, "[MASK] unheard").special


def test_encoder_decoders_start_the_decoder():
    import transformers

    sizes = {"vocab_size": 12, "d_model": 8, "d_kv": 4, "d_ff": 8, "num_layers": 1, "num_heads": 2}
    config = transformers.T5Config.from_dict({**sizes, "decoder_start_token_id": 0})
    model = transformers.T5ForConditionalGeneration(config)
    loaded = LoadedModel(model, make_tokenizer(), "seq2seq", "t5", None)
    [encoded], _ = encode_inputs(loaded, IDS)
    assert (encoded.tokens[-1], encoded.n_inputs) == ("[PAD]", 6)
    assert encode_text(loaded, TEXT).offsets == (
        None,
        (0, 3),
        (4, 7),
        (8, 10),
        (11, 19),
        None,
        None,
    )


def test_ids_that_only_the_model_knows():
    """Vocabularies of models are often padded to a round number."""
    wide = make_loaded()
    wide.model.resize_token_embeddings(16)
    [encoded], _ = encode_inputs(wide, [2, 14, 3])
    assert encoded.tokens == ("[CLS]", "<14>", "[SEP]")


@pytest.mark.parametrize(
    ("inputs", "fragments"),
    [
        ([], ("no text",)),
        ({}, ("input_ids",)),
        ({"input_ids": []}, ("input_ids", "at least one token")),
        ([[]], ("input_ids", "at least one token")),
        ([IDS, []], ("input_ids", "at least one token")),
        ([IDS, 3], ("input_ids",)),
        ({"text": "key"}, ("'text'", "'input_ids'")),
        ({"input_ids": IDS, "position_ids": IDS}, ("'position_ids'", "'token_type_ids'")),
        ([[IDS], [IDS]], ("more than one batch", "[texts, tokens]")),
        ([{"input_ids": IDS}], ("more than one batch",)),
        (torch.tensor([[IDS]]), ("more than one batch",)),
        ([1.0, 2.0], ("float", "1.0", "integers")),
        (np.asarray(IDS) / 2, ("float", "integers")),
        ([True, False], ("bool", "integers")),
        (["key", 3], ("str", "key", "integers")),
        ([["the", "key"]], ("str", "the", "list of strings")),
        ([2, 99, 3], ("99", "0 to 11")),
        ([2, -1, 3], ("-1", "0 to 11")),
        ([IDS, [2, 99, 3]], ("text 1", "99")),
        (["key", " "], ("text 1", "empty")),
        ({"input_ids": IDS, "attention_mask": [1, 1]}, ("attention_mask", "2", "6")),
        ({"input_ids": SHORT, "attention_mask": [1, 0, 1]}, ("attention_mask", "1, 0, 1")),
        ({"input_ids": SHORT, "attention_mask": [0, 0, 0]}, ("attention_mask", "0, 0, 0")),
        ({"input_ids": SHORT, "attention_mask": [2, 2, 2]}, ("attention_mask", "2, 2, 2")),
        (None, ("NoneType", "input_ids")),
        (3, ("int", "input_ids")),
        (b"key", ("bytes", "string")),
    ],
)
def test_invalid_inputs(loaded, inputs, fragments):
    with refusal(InputError, *fragments):
        encode_inputs(loaded, inputs)


def test_long_token_ids_are_rejected_or_cut(loaded):
    ids = [2, *[6] * 20, 3]
    with refusal(InputError, "22 tokens", f"at most {LIMIT}", "truncate='cut'"):
        encode_inputs(loaded, ids)
    with pytest.warns(UserWarning, match="last 6 were cut"):
        [encoded], _ = encode_inputs(loaded, ids, truncate="cut")
    assert encoded.inputs["input_ids"].tolist() == [ids[:LIMIT]]
    with refusal(InputError, "truncate is 'wrap'", "'error' or 'cut'"):
        encode_inputs(loaded, IDS, truncate="wrap")  # type: ignore[arg-type]


def test_token_ids_are_cut_on_the_side_of_the_tokenizer():
    loaded = make_loaded("GPT2LMHeadModel")
    loaded.tokenizer.truncation_side = "left"
    ids = [5, *[6] * LIMIT, 7]
    with pytest.warns(UserWarning, match="first 2 were cut"):
        [encoded], _ = encode_inputs(loaded, ids, truncate="cut")
    assert encoded.inputs["input_ids"].tolist() == [ids[2:]]


def test_batches_are_padded_on_the_right(loaded):
    encoded, _ = encode_inputs(loaded, [IDS, SHORT])
    batch = collate(loaded, encoded)
    assert batch["input_ids"].tolist() == [IDS, [*SHORT, 0, 0, 0]]
    assert batch["attention_mask"].tolist() == [[1] * 6, [1, 1, 1, 0, 0, 0]]


def test_swapped_arguments(loaded):
    for model in (loaded, loaded.model):
        with refusal(InputError, type(model).__name__, "str", "explain(text, model)"):
            check_argument_order(model, "the key")
    check_argument_order("the key", loaded)
    check_argument_order(torch.tensor(IDS), None)


def test_a_token_without_an_embedding_is_refused():
    tokenizer = make_tokenizer()
    tokenizer.add_tokens(["beyond"])
    loaded = load_model(make_model(), tokenizer)
    with refusal(InputError, "12", "0 to 11"):
        encode_text(loaded, "the beyond key")
    valid, invalid = encode_texts(loaded, ["the key", "the beyond key"])
    assert isinstance(valid, EncodedText)
    assert isinstance(invalid, InvalidText)
    assert invalid.why == "other"


@pytest.mark.parametrize("text", ["unbekannt", "ganz unbekannt", "[SEP]"])
def test_a_text_of_unknown_tokens_causes_a_warning(loaded, text):
    with pytest.warns(UserWarning, match="unknown"):
        encode_text(loaded, text)


@pytest.mark.parametrize("text", ["the unbekannt", "[MASK]", "key"])
def test_a_text_with_a_known_token_causes_none(loaded, text, recwarn):
    encode_text(loaded, text)
    assert not recwarn.list


def test_a_very_long_text_is_refused_by_its_start(loaded, monkeypatch):
    lengths = []
    tokenize = loaded.tokenizer.__class__.__call__

    def record(self, text, *given, **options):
        lengths.append(len(text))
        return tokenize(self, text, *given, **options)

    monkeypatch.setattr(loaded.tokenizer.__class__, "__call__", record)
    with refusal(InputError, "8,000,000 characters", f"at most {LIMIT}", "truncate='cut'"):
        encode_text(loaded, "key " * 2_000_000)
    assert lengths == [CHARACTERS_PER_TOKEN * LIMIT]
    assert encode_text(loaded, "key" + " " * 5000).tokens == ("[CLS]", "key", "[SEP]")
