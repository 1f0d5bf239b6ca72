"""Small encoder-decoders."""

from typing import Any

import pytest
import torch
import transformers

from attnflow.models.loading import load_model
from tests.models.checkpoints import VOCABULARY, make_tokenizer


@pytest.fixture(scope="module", params=["T5", "Bart"])
def encoder_decoder(request):
    """Two small models: one shares its embeddings, the other scales them."""
    torch.manual_seed(0)
    n = 2  # layers and heads
    size: dict[str, Any] = {
        "d_model": 8,
        "vocab_size": len(VOCABULARY),
        "decoder_start_token_id": 2,
    }
    if request.param == "T5":
        config: Any = transformers.T5Config(d_kv=4, d_ff=8, num_layers=n, num_heads=n, **size)
        model: Any = transformers.T5ForConditionalGeneration(config)
    else:
        names = ("encoder_layers", "decoder_layers", "encoder_attention_heads")
        size |= dict.fromkeys((*names, "decoder_attention_heads"), n)
        size |= {"encoder_ffn_dim": 8, "decoder_ffn_dim": 8}
        size |= {"pad_token_id": 0, "bos_token_id": 2, "eos_token_id": 3}
        config = transformers.BartConfig(scale_embedding=True, init_std=0.5, **size)
        model = transformers.BartForConditionalGeneration(config)
    return load_model(model.eval(), make_tokenizer())
