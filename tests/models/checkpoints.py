"""Tiny random models with a tiny tokenizer, in memory or in a folder. Nothing is downloaded."""

from typing import Any

import torch
import transformers
from tokenizers import Tokenizer, models, pre_tokenizers, processors

from attnflow import AttentionGraph, Attentions
from attnflow.models.loading import LoadedModel, load_model

SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
WORDS = ["the", "key", "to", "cabinets", "is", "are", "here"]
VOCABULARY = {word: i for i, word in enumerate([*SPECIAL, *WORDS])}
LIMIT = 16  # tokens that the models take


def make_tokenizer(*, encoder: bool = True) -> Any:
    """One token a word; for an encoder with all special tokens, and [CLS] and [SEP] around."""
    words = Tokenizer(models.WordLevel(dict(VOCABULARY), unk_token="[UNK]"))
    words.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    names = {"unk_token": "[UNK]"}
    if encoder:
        words.post_processor = processors.TemplateProcessing(
            single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
        )
        names |= {f"{name}_token": f"[{name.upper()}]" for name in ("pad", "cls", "sep", "mask")}
    return transformers.PreTrainedTokenizerFast(tokenizer_object=words, **names)


def make_model(kind: str = "BertForSequenceClassification", **options: Any) -> Any:
    """A random model of two layers and two heads, with weights large enough to matter."""
    torch.manual_seed(0)
    config: Any
    if kind.startswith("GPT2"):
        config = transformers.GPT2Config(
            vocab_size=len(VOCABULARY),
            n_positions=LIMIT,
            n_embd=8,
            n_layer=2,
            n_head=2,
            initializer_range=0.5,
            bos_token_id=None,
            eos_token_id=None,
            **options,
        )
    else:
        config = transformers.BertConfig(
            vocab_size=len(VOCABULARY),
            max_position_embeddings=LIMIT,
            hidden_size=8,
            num_hidden_layers=2,
            num_attention_heads=2,
            intermediate_size=16,
            initializer_range=0.5,
            **options,
        )
    return getattr(transformers, kind)(config).eval()


def make_loaded(kind: str = "BertForSequenceClassification", **options: Any) -> LoadedModel:
    """The same, with its tokenizer."""
    return load_model(
        make_model(kind, **options), make_tokenizer(encoder=not kind.startswith("GPT2"))
    )


def save(folder: Any, kind: str = "BertForSequenceClassification", **options: Any) -> str:
    """A checkpoint in a folder, as save_pretrained writes it."""
    make_model(kind, **options).save_pretrained(folder)
    make_tokenizer(encoder=not kind.startswith("GPT2")).save_pretrained(folder)
    return str(folder)


def eager_graph(loaded: LoadedModel, text: str) -> tuple[AttentionGraph, Any]:
    """The graph from weights that the model itself returns, and its output."""
    inputs = loaded.tokenizer(text, return_tensors="pt")
    implementation = loaded.model.config._attn_implementation
    loaded.model.set_attn_implementation("eager")
    try:
        with torch.no_grad():
            output = loaded.model(**inputs, output_attentions=True)
    finally:
        loaded.model.set_attn_implementation(implementation)
    tokens = loaded.tokenizer.convert_ids_to_tokens(inputs["input_ids"][0])
    return AttentionGraph.from_attentions(Attentions(output.attentions, tokens)), output
