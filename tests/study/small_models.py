"""Small random models for studies: a decoder, encoder-decoders, and a tokenizer of word pieces."""

from typing import Any

import torch
import transformers
from tokenizers import Tokenizer, models, pre_tokenizers, processors

from attnflow.models.loading import LoadedModel, load_model
from tests.models.checkpoints import SPECIAL, VOCABULARY, make_model, make_tokenizer

PIECES = {piece: i for i, piece in enumerate([*SPECIAL, "the", "key", "cabinet", "##s", "is"])}


def make_pieces(kind: str = "BertForSequenceClassification") -> LoadedModel:
    """A small BERT, for whose tokenizer "cabinets" is "cabinet" and "##s"."""
    pieces = Tokenizer(models.WordPiece(dict(PIECES), unk_token="[UNK]"))
    pieces.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    pieces.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    names = {f"{name}_token": f"[{name.upper()}]" for name in ("pad", "unk", "cls", "sep", "mask")}
    tokenizer: Any = transformers.PreTrainedTokenizerFast(tokenizer_object=pieces, **names)
    return load_model(make_model(kind), tokenizer)


def make_llama(*, start: bool = False) -> LoadedModel:
    """A small Llama. start: whether its tokenizer puts a start token, [CLS], before each text."""
    torch.manual_seed(0)
    config: Any = transformers.LlamaConfig(
        vocab_size=len(VOCABULARY),
        hidden_size=8,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        intermediate_size=16,
        max_position_embeddings=32,
        initializer_range=0.5,
        bos_token_id=2 if start else None,
        eos_token_id=None,
        pad_token_id=None,
    )
    words = make_tokenizer(encoder=False)
    if start:
        words.backend_tokenizer.post_processor = processors.TemplateProcessing(
            single="[CLS] $A", special_tokens=[("[CLS]", 2)]
        )
        words.bos_token = "[CLS]"
    model: Any = transformers.LlamaForCausalLM(config)
    return load_model(model.eval(), words)


def make_encoder_decoder(kind: str) -> LoadedModel:
    """A small "T5" or "Bart"."""
    torch.manual_seed(0)
    size: dict[str, Any] = {"d_model": 8, "vocab_size": len(VOCABULARY)}
    size |= {"decoder_start_token_id": 2, "pad_token_id": 0, "bos_token_id": 2, "eos_token_id": 3}
    model: Any
    if kind == "T5":
        t5: Any = transformers.T5Config(d_kv=4, d_ff=8, num_layers=2, num_heads=2, **size)
        model = transformers.T5ForConditionalGeneration(t5)
    else:
        names = ("encoder_layers", "decoder_layers", "encoder_attention_heads")
        size |= dict.fromkeys((*names, "decoder_attention_heads"), 2)
        bart: Any = transformers.BartConfig(
            encoder_ffn_dim=8, decoder_ffn_dim=8, init_std=0.5, **size
        )
        model = transformers.BartForConditionalGeneration(bart)
    return load_model(model.eval(), make_tokenizer())
