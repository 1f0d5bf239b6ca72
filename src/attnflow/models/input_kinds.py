"""Anything that `explain` takes, turned into tokens and tensors: `encode_inputs`.

Texts, pairs of texts, chats, token ids, the output of a tokenizer, and embeddings. The encoding of
texts itself is in `attnflow.models.inputs`.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, get_args

from attnflow.errors import InputError, check_choice, first_line, quote
from attnflow.models.inputs import (
    EncodedText,
    Truncate,
    check_length,
    embedding_width,
    encode_ids,
    encode_text,
)
from attnflow.models.loading import LoadedModel
from attnflow.optional import import_optional
from attnflow.predictions import Segment
from attnflow.units import find_words, number_words, overlaps


def check_argument_order(inputs: Any, model: Any) -> None:
    """Raise InputError if a model was passed as the text: `explain(model, text)`."""
    if isinstance(inputs, LoadedModel) or callable(getattr(inputs, "forward", None)):
        raise InputError(
            f"the text is of type {type(inputs).__name__}, and the model of type "
            f"{type(model).__name__}",
            expected="the text first, then the model",
            fix="Swap the arguments, as in explain(text, model).",
        )


def encode_inputs(
    loaded: LoadedModel, inputs: Any, *, text_pair: Any = None, truncate: Truncate = "error"
) -> tuple[list[EncodedText], bool]:
    """Turn texts, chats or token ids into tokens and tensors.

    inputs: a text; several texts; an EncodedText; a chat, which is a list of messages, or several
    chats; token ids [tokens] or [texts, tokens] as lists, arrays or tensors; or a mapping with such
    input_ids, and optionally attention_mask and token_type_ids, as tokenizers return it; or with
    inputs_embeds [tokens, width] or [1, tokens, width]. Where attention_mask is 0 at the start or
    end of a row, the row is padded, and its padding is removed. Without attention_mask, every token
    counts.
    text_pair: the second text of a pair, or of each pair.
    truncate: as in `encode_text`. Token ids are cut at the end, or at the start for tokenizers that
    truncate on the left.
    Returns the encoded texts, and whether `inputs` is a single one.
    Raises InputError for anything else: ids that the model does not know, floats, empty inputs,
    several batches.

    >>> from attnflow import load_model
    >>> ids = {"input_ids": [[2, 5, 6], [2, 7, 0]], "attention_mask": [[1, 1, 1], [1, 1, 0]]}
    >>> encoded, single = encode_inputs(load_model("verb-number"), ids)
    >>> [text.n_inputs for text in encoded], single
    ([3, 2], False)
    """
    check_choice("truncate", truncate, get_args(Truncate))
    items, single, encode = _read_inputs(inputs)
    if text_pair is not None:
        items, encode = _read_pairs(items, text_pair, single), _encode_pair
    encoded = []
    for i, item in enumerate(items):
        try:
            encoded.append(encode(loaded, item, truncate=truncate))
        except InputError as error:
            if single:
                raise
            raise error.within(f"text {i}") from error
    return encoded, single


def _read_inputs(  # noqa: PLR0911 - a return for each kind
    inputs: Any,
) -> tuple[list[Any], bool, Callable[..., EncodedText]]:
    """Return texts or rows of token ids, whether there is only one, and the function for each."""
    if isinstance(inputs, EncodedText):
        return [inputs], True, lambda _loaded, encoded, **_options: encoded
    if isinstance(inputs, str):
        return [inputs], True, encode_text
    # Imported here, because a text does not need them.
    from attnflow.models.chats import is_chat
    from attnflow.models.token_ids import read_rows, to_list

    if is_chat(inputs):
        return [inputs], True, _encode_chat
    if isinstance(inputs, Mapping):
        if "inputs_embeds" in inputs:
            return [inputs], True, _encode_embeddings
        return *read_rows(inputs), encode_ids
    values = to_list(inputs)
    if not values:
        raise InputError("no text was given", expected="at least one", fix="Pass a text.")
    if all(isinstance(value, str) for value in values):
        return values, False, encode_text
    if all(is_chat(value) for value in values):
        return values, False, _encode_chat
    return *read_rows({"input_ids": values}), encode_ids


def _read_pairs(texts: list[Any], text_pair: Any, single: bool) -> list[tuple[Any, Any]]:
    """The texts with their second texts."""
    several = not isinstance(text_pair, str) and isinstance(text_pair, Sequence)
    seconds = list(text_pair) if several else [text_pair]
    if (
        several == single
        or len(seconds) != len(texts)
        or not all(isinstance(text, str) for text in texts)
    ):
        raise InputError(
            f"text_pair is {quote(text_pair)}",
            expected="a text for a text, or as many texts as there are texts",
            fix="Pass the second text of each pair.",
        )
    return list(zip(texts, seconds, strict=True))


def _encode_pair(loaded: LoadedModel, pair: tuple[str, str], *, truncate: Truncate) -> EncodedText:
    return encode_text(loaded, pair[0], text_pair=pair[1], truncate=truncate)


def _encode_chat(
    loaded: LoadedModel, messages: Sequence[Mapping[str, Any]], *, truncate: Truncate
) -> EncodedText:
    """Encode a chat; the tokens of its template count as special."""
    from attnflow.models.chats import DEFAULT_PROMPT, render_chat

    chat = render_chat(loaded, messages)
    encoded = encode_text(loaded, chat.text, truncate=truncate, add_special_tokens=False)
    if encoded.offsets is None:
        return replace(encoded, continuation=chat.answer)
    segments = []
    special = [True] * len(encoded.tokens)
    added = [] if chat.default is None else [(DEFAULT_PROMPT, *chat.default)]
    for role, start, end in [*added, *chat.spans]:
        places = [i for i, span in enumerate(encoded.offsets) if overlaps(span, [(start, end)])]
        if places:
            segments.append(Segment(role, places[0], places[-1] + 1))
        for i in places:
            special[i] = encoded.special[i]
    words = find_words(
        encoded.tokens,
        special=special,
        text=encoded.text,
        word_ids=number_words(encoded.text, encoded.offsets),
        offsets=[span or (0, 0) for span in encoded.offsets],
    )
    return replace(
        encoded,
        special=tuple(special),
        words=words,
        segments=tuple(segments),
        continuation=chat.answer,
    )


def _encode_embeddings(
    loaded: LoadedModel, inputs: Mapping[str, Any], *, truncate: Truncate
) -> EncodedText:
    """Describe embeddings of tokens, which have no text: the tokens are called 0, 1, ..."""
    from attnflow.models.token_ids import to_list

    torch = import_optional("torch", "running a model")
    try:
        embeddings = torch.as_tensor(inputs["inputs_embeds"])
        embeddings = embeddings.to(next(loaded.model.parameters()).dtype)
        embeddings.sum().item()  # a tensor may have no values
        named = None if inputs.get("tokens") is None else to_list(inputs["tokens"])
    except Exception as error:  # torch raises many kinds of errors
        raise InputError(
            f"inputs_embeds is of type {type(inputs['inputs_embeds']).__name__}, and cannot be "
            f"read ({first_line(error)})",
            expected="numbers [tokens, width], and optionally the tokens as texts",
            fix="Pass a tensor.",
        ) from error
    embeddings = embeddings[None] if embeddings.ndim == 2 else embeddings
    width = embedding_width(loaded)
    others = [name for name in inputs if name not in ("inputs_embeds", "attention_mask", "tokens")]
    if (
        embeddings.ndim != 3
        or len(embeddings) != 1
        or others
        or (0 in embeddings.shape or embeddings.shape[-1] != (width or embeddings.shape[-1]))
    ):
        raise InputError(
            f"the inputs have {', '.join(inputs)}, with inputs_embeds {list(embeddings.shape)}",
            expected=f"inputs_embeds [tokens, {width or 'width'}] of one text, and optionally its "
            "tokens",
            fix="Pass one text at a time, without other tensors.",
        )
    n = int(embeddings.shape[1])
    tokens = tuple(str(token) for token in (range(n) if named is None else named))
    if len(tokens) != n:
        raise InputError(
            f"{len(tokens)} tokens were given for {n} embeddings",
            expected="one for each",
            fix="Pass the texts of all tokens, or leave tokens out.",
        )
    if loaded.max_length is not None and n > loaded.max_length:
        check_length(loaded, n, loaded.max_length, truncate)
    tensors = {
        "inputs_embeds": embeddings,
        "attention_mask": torch.ones(1, n, dtype=torch.long),
    }
    special = (False,) * n
    return EncodedText("", tokens, special, find_words(tokens, special=special), tensors)
