"""Models in GGUF files."""

import sys

import numpy as np
import pytest
import torch

from attnflow import explain, load_model
from attnflow.arrays import to_numpy
from attnflow.errors import FileError, MissingDependencyError
from attnflow.models.loading import has_decoder
from tests.models.tiny import GROUPED, NO_TOKENS, Tiny
from tests.refusal import refusal

TEXT = "the key to the cabinets"
WORDS = ["<unk>", "<s>", "</s>", "the", "key", "to", "cabinets"]
LETTERS = sorted(set("".join(WORDS[3:])))


def write_model(path):
    """Write a tiny Qwen2 model to a GGUF file, quantized to 8 bits, and return it."""
    gguf = pytest.importorskip("gguf")
    tokens = [*WORDS[:3], *LETTERS, "Ġ", "Ġt", "Ġth", "Ġthe", "ke", "key"]
    sizes = {**GROUPED, **NO_TOKENS, "vocab_size": len(tokens), "intermediate_size": 32}
    model = Tiny("Qwen2ForCausalLM", "Qwen2Config", {**sizes, "tie_word_embeddings": False}).make()
    writer = gguf.GGUFWriter(path, "qwen2")
    writer.add_context_length(64)
    writer.add_embedding_length(32)
    writer.add_block_count(2)
    writer.add_feed_forward_length(32)
    writer.add_head_count(4)
    writer.add_head_count_kv(2)
    writer.add_layer_norm_rms_eps(1e-6)
    writer.add_rope_freq_base(10_000.0)
    writer.add_vocab_size(len(tokens))
    writer.add_tokenizer_model("gpt2")
    writer.add_token_list(tokens)
    writer.add_token_types([3] * 3 + [1] * (len(tokens) - 3))
    writer.add_token_merges(["Ġ t", "Ġt h", "Ġth e", "k e", "ke y"])
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.QWEN2, 2)
    kind = gguf.GGMLQuantizationType.Q8_0
    with torch.no_grad():
        for name, weights in model.named_parameters():
            stem, _, ending = name.rpartition(".")
            target = f"{names.get_name(stem)}.{ending}"
            if weights.dim() == 1:
                writer.add_tensor(target, weights.numpy())
                continue
            packed = gguf.quantize(weights.numpy(), kind)
            weights.copy_(torch.from_numpy(gguf.dequantize(packed, kind)))
            writer.add_tensor(target, packed, raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return model


def test_a_gguf_file_is_a_model(tmp_path):
    path = tmp_path / "tiny.Q8_0.gguf"
    model = write_model(path)
    loaded = load_model(str(path))
    assert loaded.task == "causal_lm"
    assert has_decoder(str(path))
    for edges in ("attention", "alti"):
        found = explain(TEXT, loaded, edges=edges)
        expected = explain(TEXT, model, tokenizer=loaded.tokenizer, edges=edges)
        assert found.tokens[:2] == ("t", "h")
        np.testing.assert_allclose(
            to_numpy(found.graph.weights), to_numpy(expected.graph.weights), atol=1e-5
        )
    assert explain(TEXT, path).model == path.name


def test_gguf_files_that_cannot_be_loaded_are_refused(tmp_path):
    pytest.importorskip("gguf")
    with refusal(FileError, "nowhere.gguf"):
        load_model(str(tmp_path / "nowhere.gguf"))
    broken = tmp_path / "broken.gguf"
    broken.write_bytes(b"GGUF but no more")
    with refusal(FileError, "broken.gguf"):
        load_model(str(broken))


def test_the_package_is_named_if_it_is_missing(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "gguf", None)
    with refusal(MissingDependencyError, "gguf"):
        load_model(str(tmp_path / "model.gguf"))
