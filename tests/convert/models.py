"""Tiny models that other packages take too: with the names of special tokens they ask for."""

from typing import Any

import attnflow
from attnflow.models.loading import LoadedModel
from tests.models.checkpoints import make_loaded
from tests.study.small_models import make_encoder_decoder, make_llama

PROMPT = "the key to the"
# Untyped: explanations here have the parts that the tests read.
explain: Any = attnflow.explain
explain_image: Any = attnflow.explain_image


def make_speaker() -> LoadedModel:
    """A small Llama."""
    loaded = make_llama()
    loaded.tokenizer.add_special_tokens({"pad_token": "[PAD]", "eos_token": "[SEP]"})
    loaded.tokenizer.padding_side = "left"
    for config in (loaded.model.config, loaded.model.generation_config):
        config.bos_token_id, config.eos_token_id, config.pad_token_id = 2, None, 0
    return loaded


def make_translator() -> LoadedModel:
    """A small Bart."""
    return make_encoder_decoder("Bart")


def make_classifier() -> LoadedModel:
    """A small BERT with two classes."""
    return make_loaded()
