"""A byte-level tokenizer whose vocabulary is the bytes, so that most characters take several."""

from typing import Any

import transformers
from tokenizers import Tokenizer, decoders, models, pre_tokenizers


def make_byte_tokenizer(**options: Any) -> Any:
    """One token a byte, as in GPT-2 before any merge; no special tokens."""
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    pieces = Tokenizer(models.BPE({letter: i for i, letter in enumerate(letters)}, []))
    pieces.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    pieces.decoder = decoders.ByteLevel()
    return transformers.PreTrainedTokenizerFast(tokenizer_object=pieces, **options)
