"""Model inputs: texts and token ids, turned into tokens and tensors, and into padded batches.

`encode_inputs` takes anything that `explain` takes; `encode_text` and `encode_texts` take text.
`attnflow.models.token_ids` checks token ids. Images are in `attnflow.models.vision`.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from inspect import Parameter, signature
from typing import Any, Literal, TypeAlias, get_args
from warnings import warn

from attnflow.errors import InputError, check_choice
from attnflow.models.loading import LoadedModel
from attnflow.models.wrappers import find_device
from attnflow.optional import import_optional
from attnflow.words import Words, find_words

Truncate: TypeAlias = Literal["error", "cut"]
CHARACTERS_PER_TOKEN = 64  # far more than a token has on average
# Where each token is in the text; None for tokens that are not in it, such as [CLS].
Offsets: TypeAlias = tuple[tuple[int, int] | None, ...]


@dataclass(frozen=True, eq=False)
class EncodedText:
    """A text as the model sees it.

    text: the text, or the decoded token ids. tokens: those of the input; for an encoder-decoder
    also the first token of the decoder. special: whether each token is a special token.
    words: the words that the tokens make up. inputs: tensors [1, tokens] by argument of the model.
    offsets: the start and end of each token in the text, in characters; None for tokens outside
    the text, and None altogether if the tokenizer does not provide them.
    """

    text: str
    tokens: tuple[str, ...]
    special: tuple[bool, ...]
    words: Words
    inputs: Mapping[str, Any]
    offsets: Offsets | None = None

    @property
    def n_inputs(self) -> int:
        """The number of tokens of the input, without those of a decoder."""
        return int(self.inputs["input_ids"].shape[-1])


@dataclass(frozen=True)
class InvalidText:
    """A text that the model cannot take. reason: the error message. why: its category."""

    reason: str
    why: Literal["empty", "too_long", "other"]


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
    loaded: LoadedModel, inputs: Any, *, truncate: Truncate = "error"
) -> tuple[list[EncodedText], bool]:
    """Turn texts or token ids into tokens and tensors.

    inputs: a text; several texts; an EncodedText; token ids [tokens] or [texts, tokens] as lists,
    arrays or tensors; or a mapping with such input_ids, and optionally attention_mask and
    token_type_ids, as tokenizers return it. Where attention_mask is 0 at the start or end of a
    row, the row is padded, and its padding is removed. Without attention_mask, every token counts.
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
    encoded = []
    for i, item in enumerate(items):
        try:
            encoded.append(encode(loaded, item, truncate=truncate))
        except InputError as error:
            if single:
                raise
            raise error.within(f"text {i}") from error
    return encoded, single


def encode_text(loaded: LoadedModel, text: str, *, truncate: Truncate = "error") -> EncodedText:
    """Turn a text into tokens and tensors.

    truncate: what to do with a text that is too long for the model: "error", or "cut", which
    leaves out its end and warns.
    Raises InputError if the text is empty, too long or not a string.
    """
    check_choice("truncate", truncate, get_args(Truncate))
    _check_text(text)
    _check_start(loaded, text, truncate)
    try:
        encoding = _tokenize(loaded.tokenizer, text)
    except Exception as error:  # tokenizers raise many kinds of errors
        raise InputError(
            f"the text cannot be tokenized ({error})",
            expected="plain text, and a tokenizer of transformers",
            fix="Check the text and the tokenizer.",
        ) from error
    ids = encoding["input_ids"]
    if not text.strip() or not ids:
        raise InputError("the text is empty", expected="at least one word", fix="Pass a text.")
    limit = loaded.max_length
    if limit is not None and len(ids) > limit:
        _check_length(loaded, len(ids), limit, truncate)
        encoding = _tokenize(loaded.tokenizer, text, truncation=True, max_length=limit)
    _check_ids(loaded, encoding["input_ids"])
    encoded = _encode(loaded, text, encoding, _argument_filter(loaded))
    if not has_known_tokens(loaded, encoded):
        _warn_unknown(loaded, "the text")
    return encoded


def _check_start(loaded: LoadedModel, text: str, truncate: Truncate) -> None:
    """Raise InputError if the start of a very long text is too long already.

    A tokenizer takes half a minute for half a million tokens.
    """
    limit = loaded.max_length
    if limit is None or truncate != "error" or len(text) <= CHARACTERS_PER_TOKEN * limit:
        return
    start = text[: CHARACTERS_PER_TOKEN * limit]
    n = len(loaded.tokenizer(start, verbose=False)["input_ids"])
    if n > limit:
        raise InputError(
            f"the text has {len(text):,} characters, of which the first {len(start):,} have {n} "
            f"tokens, and {loaded.name} takes {limit}",
            expected=f"at most {limit} tokens",
            fix="Shorten the text, split it, or cut it off with truncate='cut'.",
        )


def has_known_tokens(loaded: LoadedModel, encoded: EncodedText) -> bool:
    """Whether a text has a token that is neither special nor the unknown token."""
    unknown = getattr(loaded.tokenizer, "unk_token_id", None)
    ids = encoded.inputs["input_ids"][0].tolist()
    marks = zip(ids, encoded.special, strict=False)  # a decoder adds a special token
    return any(i != unknown and not special for i, special in marks)


def warn_unknown(loaded: LoadedModel, encoded: Sequence[EncodedText]) -> None:
    """Warn if none of several texts has a token that the model knows."""
    if encoded and not any(has_known_tokens(loaded, text) for text in encoded):
        _warn_unknown(loaded, f"{len(encoded):,} texts")


def _warn_unknown(loaded: LoadedModel, where: str) -> None:
    warn(
        f"the tokenizer of {loaded.name} finds only unknown or special tokens in {where}, which "
        "tell the model nothing. Check the language of the text, and the tokenizer.",
        UserWarning,
        stacklevel=5,
    )


def encode_texts(
    loaded: LoadedModel, texts: Sequence[str], *, truncate: Truncate = "error", words: bool = True
) -> list[EncodedText | InvalidText]:
    """Turn many texts into tokens and tensors, faster than `encode_text` for each.

    truncate: as in `encode_text`, but without a warning.
    words: whether to group tokens into words; if not, `EncodedText.words` is empty.
    Returns an InvalidText for each text that is empty, too long or cannot be tokenized.
    """
    if not texts:
        return []
    try:
        encodings = _tokenize_all(loaded, texts, truncate)
    except Exception as error:  # tokenizers raise many kinds of errors
        if len(texts) > 1:
            return [
                encode_texts(loaded, [text], truncate=truncate, words=words)[0] for text in texts
            ]
        reason = f"the text cannot be tokenized ({error}); expected plain text."
        return [InvalidText(reason, "other")]
    limit, is_argument = loaded.max_length, _argument_filter(loaded)
    n_ids = _vocabulary_size(loaded)
    encoded: list[EncodedText | InvalidText] = []
    for text, encoding in zip(texts, encodings, strict=True):
        ids = encoding["input_ids"]
        too_long = limit is not None and len(ids) > limit
        if too_long or not text.strip() or not ids:
            encoded.append(_explain_invalid(loaded, text, "too_long" if too_long else "empty"))
        elif max(ids) >= n_ids:
            encoded.append(_explain_invalid(loaded, text, "other"))
        else:
            encoded.append(_encode(loaded, text, encoding, is_argument, find=words))
    return encoded


def collate(loaded: LoadedModel, encoded: Sequence[EncodedText]) -> dict[str, Any]:
    """Return one batch [texts, tokens] on the model's device, padded on the right.

    Padding on the right keeps positions as they are. A tokenizer without a padding token is no
    problem, because the attention mask hides whatever token is used. Inputs without an axis of
    tokens, such as images, follow one another.
    """
    torch = import_optional("torch", "running a model")
    device = find_device(loaded.model)
    # Some models find padding in the input ids, by the id in their configuration.
    sources = [getattr(loaded.model, "config", None), loaded.tokenizer]
    ids = [getattr(source, "pad_token_id", None) for source in sources]
    padding = {"input_ids": next((i for i in ids if i is not None), 0)}
    batch = {}
    for name in encoded[0].inputs:
        if name in getattr(encoded[0], "media", ()):
            batch[name] = join_media(loaded, [text.inputs[name] for text in encoded])
            continue
        rows = [text.inputs[name][0] for text in encoded]
        batch[name] = torch.nn.utils.rnn.pad_sequence(
            rows, batch_first=True, padding_value=padding.get(name, 0)
        ).to(device)
    return batch


def join_media(loaded: LoadedModel, values: Sequence[Any]) -> Any:
    """Join images or other inputs without an axis of tokens, in the precision of the model."""
    torch = import_optional("torch", "running a model")
    joined = torch.cat(list(values)).to(find_device(loaded.model))
    dtype = getattr(loaded.model, "dtype", None)
    return joined.to(dtype) if joined.is_floating_point() and dtype is not None else joined


def _check_text(text: Any) -> None:
    if not isinstance(text, str):
        from attnflow.models.token_ids import invalid_type

        raise invalid_type(text)
    if not is_unicode(text):
        raise InputError(
            "the text has half of a surrogate pair",
            expected="valid Unicode",
            fix="Remove it, or decode the text again.",
        )


def is_unicode(text: str) -> bool:
    """Whether a text can be encoded; half of a surrogate pair cannot."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


class _Row(dict[str, Any]):
    """The part of a tokenizer's output that belongs to one of several texts."""

    def __init__(self, encoding: Any, row: int) -> None:
        super().__init__((name, values[row]) for name, values in encoding.items())
        self.encoding, self.row = encoding, row

    def word_ids(self) -> list[int | None]:
        """The number of each token's word, for fast tokenizers."""
        ids: list[int | None] = self.encoding.word_ids(self.row)
        return ids


def _tokenize(tokenizer: Any, text: str | list[str], **options: Any) -> Any:
    is_fast = bool(getattr(tokenizer, "is_fast", False))
    return tokenizer(
        text,
        return_special_tokens_mask=True,
        return_offsets_mapping=is_fast,
        verbose=False,
        **options,
    )


def _tokenize_all(loaded: LoadedModel, texts: Sequence[str], truncate: Truncate) -> list[_Row]:
    options: dict[str, Any] = {}
    if truncate == "cut" and loaded.max_length is not None:
        options = {"truncation": True, "max_length": loaded.max_length}
    encoding = _tokenize(loaded.tokenizer, list(texts), **options)
    return [_Row(encoding, i) for i in range(len(texts))]


def _encode(
    loaded: LoadedModel,
    text: str,
    encoding: Any,
    is_argument: Callable[[str], bool],
    *,
    find: bool = True,
) -> EncodedText:
    """Describe what the tokenizer returned for a text.

    is_argument: whether the model takes an argument of a name. find: whether to find words.
    """
    tokenizer, ids = loaded.tokenizer, encoding["input_ids"]
    tokens = [
        f"<{i}>" if token is None else str(token)  # models may have more ids than the tokenizer
        for i, token in zip(ids, tokenizer.convert_ids_to_tokens(ids), strict=True)
    ]
    special = _find_special(tokenizer, ids, encoding["special_tokens_mask"])
    offsets = encoding.get("offset_mapping")
    word_ids = encoding.word_ids() if offsets is not None else None
    torch = import_optional("torch", "running a model")
    inputs = {name: torch.tensor([row]) for name, row in encoding.items() if is_argument(name)}
    if loaded.task == "seq2seq":
        start = _decoder_start(loaded)
        tokens.append(str(tokenizer.convert_ids_to_tokens(start)))
        special.append(True)
        offsets = None if offsets is None else [*offsets, (0, 0)]
        word_ids = None if word_ids is None else [*word_ids, None]
        inputs["decoder_input_ids"] = torch.tensor([[start]])
    words = Words((), (), ())
    if find:
        words = find_words(tokens, special=special, text=text, word_ids=word_ids, offsets=offsets)
    spans = None
    if offsets is not None:
        spans = tuple((start, end) if start < end else None for start, end in offsets)
    return EncodedText(text, tuple(tokens), tuple(special), words, inputs, spans)


def _find_special(tokenizer: Any, ids: Sequence[int], mask: Sequence[int]) -> list[bool]:
    """Whether each token is special: marked by the tokenizer, or written out in the text."""
    names = ("cls_token_id", "sep_token_id", "bos_token_id", "eos_token_id", "pad_token_id")
    special_ids = {getattr(tokenizer, name, None) for name in names}
    return [bool(mark) or i in special_ids for mark, i in zip(mask, ids, strict=True)]


def _decoder_start(loaded: LoadedModel) -> int:
    config = loaded.model.config
    for source in (config, getattr(loaded.model, "generation_config", None)):
        start = getattr(source, "decoder_start_token_id", None)
        if start is not None:
            return int(start)
    raise InputError(
        f"the configuration of {loaded.name} has no decoder_start_token_id",
        expected="the id of the decoder's first token",
        fix="Set model.config.decoder_start_token_id.",
    )


def _argument_filter(loaded: LoadedModel) -> Callable[[str], bool]:
    """Return a function that says whether the model takes an argument of a name."""
    parameters = signature(loaded.model.forward).parameters
    takes_any = any(p.kind is Parameter.VAR_KEYWORD for p in parameters.values())
    always = ("input_ids", "attention_mask") if takes_any else ("input_ids",)
    return lambda name: name in always or name in parameters


def _check_length(loaded: LoadedModel, n: int, limit: int, truncate: Truncate) -> None:
    """Raise InputError for n tokens, or warn that some will be cut."""
    given = f"the text has {n} tokens, special tokens included, and {loaded.name} takes {limit}"
    if truncate == "error":
        raise InputError(
            given,
            expected=f"at most {limit}",
            fix="Shorten the text, split it, or cut it off with truncate='cut'.",
        )
    side = "first" if _cuts_left(loaded) else "last"
    warn(f"{given}; the {side} {n - limit} were cut off.", UserWarning, stacklevel=5)


def _cuts_left(loaded: LoadedModel) -> bool:
    return getattr(loaded.tokenizer, "truncation_side", "") == "left"


def _explain_invalid(
    loaded: LoadedModel, text: str, why: Literal["empty", "too_long", "other"]
) -> EncodedText | InvalidText:
    """Return the error that `encode_text` raises for a text."""
    try:
        return encode_text(loaded, text)
    except InputError as error:
        return InvalidText(str(error), why)


def _read_inputs(inputs: Any) -> tuple[list[Any], bool, Callable[..., EncodedText]]:
    """Return texts or rows of token ids, whether there is only one, and the function for each."""
    if isinstance(inputs, EncodedText):
        return [inputs], True, lambda _loaded, encoded, **_options: encoded
    if isinstance(inputs, str):
        return [inputs], True, encode_text
    from attnflow.models.token_ids import read_rows, to_list

    if isinstance(inputs, Mapping):
        return *read_rows(inputs), _encode_ids
    values = to_list(inputs)
    if not values:
        raise InputError("no text was given", expected="at least one", fix="Pass a text.")
    if all(isinstance(text, str) for text in values):
        return values, False, encode_text
    return *read_rows({"input_ids": values}), _encode_ids


def _encode_ids(
    loaded: LoadedModel, row: Mapping[str, list[int]], *, truncate: Truncate
) -> EncodedText:
    """Describe the token ids of one text as `encode_text` does."""
    _check_ids(loaded, row["input_ids"])
    limit, n = loaded.max_length, len(row["input_ids"])
    if limit is not None and n > limit:
        _check_length(loaded, n, limit, truncate)
        columns = slice(n - limit, n) if _cuts_left(loaded) else slice(limit)
        row = {name: values[columns] for name, values in row.items()}
    ids, tokenizer = row["input_ids"], loaded.tokenizer
    # In a text, [UNK] and [MASK] are not special either.
    words = {tokenizer.unk_token_id, tokenizer.mask_token_id}
    marks = [i in tokenizer.all_special_ids and i not in words for i in ids]
    encoding = {**row, "attention_mask": [1] * len(ids), "special_tokens_mask": marks}
    text = tokenizer.decode(ids, skip_special_tokens=True) or tokenizer.decode(ids)
    return _encode(loaded, str(text), encoding, _argument_filter(loaded))


def _check_ids(loaded: LoadedModel, ids: Sequence[int]) -> None:
    """Raise InputError for token ids that the model has no embedding of."""
    n_ids = _vocabulary_size(loaded)
    unknown = [i for i in ids if not 0 <= i < n_ids]
    if unknown:
        raise InputError(
            f"input_ids contains {unknown[0]}",
            expected=f"0 to {n_ids - 1}, the vocabulary of {loaded.name}",
            fix="Use the tokenizer of the model.",
        )


def _vocabulary_size(loaded: LoadedModel) -> int:
    """The number of token embeddings; the size of the tokenizer if that is unknown."""
    try:
        embeddings = getattr(loaded.model, "get_input_embeddings", lambda: None)()
    except NotImplementedError:
        embeddings = None
    weight = getattr(embeddings, "weight", None)
    return len(loaded.tokenizer) if weight is None else int(weight.shape[0])
