"""Caches of earlier tokens among the inputs of a model: left out where the input is whole."""

from collections.abc import Mapping
from typing import Any

CACHES = ("past_key_values", "cache_params")  # of keys and values, or of states


def without_cache(inputs: Mapping[str, Any]) -> Mapping[str, Any]:
    """Leave out a cache of earlier tokens if the input has these tokens as well.

    Otherwise the input is not whole, and stays as it is.
    """
    names = [name for name in CACHES if inputs.get(name) is not None]
    start = "decoder_" if inputs.get("decoder_input_ids") is not None else ""
    tokens = inputs.get(f"{start}input_ids")
    tokens = inputs.get("inputs_embeds") if tokens is None else tokens
    if not names or tokens is None or getattr(tokens, "ndim", 0) < 2:
        return inputs
    n_tokens = int(tokens.shape[1])
    mask: Any = inputs.get(f"{start}attention_mask")
    if getattr(mask, "ndim", 0) == 2:  # covers cached tokens as well
        is_whole = int(mask.shape[1]) == n_tokens
    else:
        is_whole = all(_cached_tokens(inputs[name]) < n_tokens for name in names)
    if not is_whole:
        return inputs
    left_out = {*names, "cache_position"}
    return {name: value for name, value in inputs.items() if name not in left_out}


def _cached_tokens(cache: Any) -> int:
    """The number of tokens in a cache; 0 if it does not say."""
    count = getattr(cache, "get_seq_length", None)
    if callable(count):
        return int(count())
    if isinstance(cache, list | tuple) and cache:  # keys and values by layer
        return int(cache[0][0].shape[-2])
    return 0
