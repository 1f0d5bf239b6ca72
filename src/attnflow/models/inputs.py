"""Model inputs: texts, pairs and token ids, turned into tokens, tensors and padded batches.

`encode_text`, `encode_texts` and `encode_ids` encode; `collate` makes batches. Other inputs lead to
these: see `attnflow.models.input_kinds`. `attnflow.models.generation` appends answers. Images are
in `attnflow.models.vision`.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from inspect import Parameter, signature
from typing import Any, Literal, TypeAlias, get_args
from warnings import warn

from attnflow.errors import InputError, check_choice
from attnflow.models.decoding import locate_tokens
from attnflow.models.loading import LoadedModel
from attnflow.models.wrappers import find_device
from attnflow.optional import import_optional
from attnflow.predictions import Segment
from attnflow.units import Units, find_words, number_words

Truncate: TypeAlias = Literal["error", "cut"]
CHARACTERS_PER_TOKEN = 64  # far more than a token has on average
# Where each token is in the text; None for tokens that are not in it, such as [CLS].
Offsets: TypeAlias = tuple[tuple[int, int] | None, ...]
PAIR = ("first", "second")  # the segments of a pair of texts


@dataclass(frozen=True, eq=False)
class EncodedText:
    """A text as the model sees it.

    text: the text, or the decoded token ids. tokens: those of the input; for an encoder-decoder
    also the first token of the decoder. special: whether each token is a special token.
    words: the words that the tokens make up. inputs: tensors [1, tokens] by argument of the model.
    offsets: the start and end of each token in the text, in characters; None for tokens outside
    the text, and None altogether if they are unknown.
    segments: the texts of a pair, the messages of a chat, or the answer, by name.
    continuation: the answer that a chat ends with, which is not part of the tokens yet.
    """

    text: str
    tokens: tuple[str, ...]
    special: tuple[bool, ...]
    words: Units
    inputs: Mapping[str, Any]
    offsets: Offsets | None = None
    segments: tuple[Segment, ...] = ()
    continuation: str | None = None

    @property
    def n_inputs(self) -> int:
        """The number of tokens of the input, without those of a decoder."""
        name = "input_ids" if "input_ids" in self.inputs else "inputs_embeds"
        return int(self.inputs[name].shape[1])


@dataclass(frozen=True)
class InvalidText:
    """A text that the model cannot take. reason: the error message. why: its category."""

    reason: str
    why: Literal["empty", "too_long", "other"]


def encode_text(
    loaded: LoadedModel,
    text: str,
    *,
    text_pair: str | None = None,
    truncate: Truncate = "error",
    add_special_tokens: bool = True,
) -> EncodedText:
    """Turn a text, or a pair of texts, into tokens and tensors.

    truncate: what to do with a text that is too long for the model: "error", or "cut", which
    leaves out its end and warns.
    add_special_tokens: False for a text that has them already, such as a chat.
    Raises InputError if the text is empty, too long or not a string.
    """
    check_choice("truncate", truncate, get_args(Truncate))
    for part in (text,) if text_pair is None else (text, text_pair):
        _check_text(part)
        check_start(loaded, part, truncate)
    options: dict[str, Any] = {
        "text_pair": text_pair,
        "add_special_tokens": add_special_tokens,
    }
    try:
        encoding = _tokenize(loaded.tokenizer, text, **options)
    except Exception as error:  # tokenizers raise many kinds of errors
        raise InputError(
            f"the text cannot be tokenized ({error})",
            expected="plain text, and a tokenizer of transformers",
            fix="Check the text and the tokenizer.",
        ) from error
    ids = encoding["input_ids"]
    if not text.strip() or not ids or (text_pair is not None and not text_pair.strip()):
        raise InputError("the text is empty", expected="at least one word", fix="Pass a text.")
    limit = loaded.max_length
    if limit is not None and len(ids) > limit:
        check_length(loaded, len(ids), limit, truncate)
        options |= {"truncation": True, "max_length": limit}
        encoding = _tokenize(loaded.tokenizer, text, **options)
    check_ids(loaded, encoding["input_ids"])
    if text_pair is not None:
        text, encoding = _join_pair(text, text_pair, encoding)
    encoded = _encode(loaded, text, encoding, _argument_filter(loaded))
    if text_pair is not None:
        encoded = replace(encoded, segments=_pair_segments(encoding))
    if not has_known_tokens(loaded, encoded):
        _warn_unknown(loaded, "the text")
    return encoded


def check_start(loaded: LoadedModel, text: str, truncate: Truncate = "error") -> None:
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


def encode_ids(
    loaded: LoadedModel, row: Mapping[str, list[int]], *, truncate: Truncate = "error"
) -> EncodedText:
    """Describe the token ids of one text as `encode_text` does."""
    check_ids(loaded, row["input_ids"])
    limit, n = loaded.max_length, len(row["input_ids"])
    if limit is not None and n > limit:
        check_length(loaded, n, limit, truncate)
        columns = slice(n - limit, n) if _cuts_left(loaded) else slice(limit)
        row = {name: values[columns] for name, values in row.items()}
    ids, tokenizer = row["input_ids"], loaded.tokenizer
    # In a text, [UNK] and [MASK] are not special either.
    content = {tokenizer.unk_token_id, tokenizer.mask_token_id}
    marks = [i in tokenizer.all_special_ids and i not in content for i in ids]
    encoding = {**row, "attention_mask": [1] * len(ids), "special_tokens_mask": marks}
    text, offsets = locate_tokens(tokenizer, ids)
    encoded = _encode(
        loaded, text or str(tokenizer.decode(ids)), encoding, _argument_filter(loaded), find=False
    )
    special = encoded.special[: len(ids)]
    words = find_words(
        encoded.tokens[: len(ids)],
        special=special,
        text=text,
        word_ids=number_words(text, offsets),
        offsets=[span or (0, 0) for span in offsets],
    )
    added = encoded.tokens[len(ids) :]  # the first token of a decoder
    if added:
        words = words.append(Units(added, tuple((i,) for i in range(len(added))), (True,)))
    return replace(encoded, words=words, offsets=(*offsets, *[None] * len(added)))


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


class _Pair(dict[str, Any]):
    """The output of a tokenizer for a pair of texts, as if they were one text.

    sequences: the text of each token, 0 or 1; None for special tokens.
    """

    def __init__(self, encoding: Any, sequences: list[int | None]) -> None:
        super().__init__(encoding.items())
        self.encoding, self.sequences = encoding, sequences

    def word_ids(self) -> list[int | None]:
        """The number of each token's word; those of the second text follow those of the first."""
        ids = self.encoding.word_ids()
        pairs = list(zip(ids, self.sequences, strict=True))
        first = 1 + max((i for i, text in pairs if i is not None and text == 0), default=-1)
        return [None if i is None else i + first * int(text == 1) for i, text in pairs]


def _join_pair(text: str, text_pair: str, encoding: Any) -> tuple[str, _Pair]:
    """One text of both, and the encoding with offsets in it."""
    if getattr(encoding, "is_fast", False):
        sequences = encoding.sequence_ids()
    else:
        mask = encoding["special_tokens_mask"]
        types = encoding.get("token_type_ids") or _count_texts(mask)
        sequences = [None if m else t for t, m in zip(types, mask, strict=True)]
    pair = _Pair(encoding, sequences)
    offsets = encoding.get("offset_mapping")
    if offsets is not None:
        shift = len(text) + 1
        pair["offset_mapping"] = [
            (start + shift, end + shift) if sequence == 1 else (start, end)
            for (start, end), sequence in zip(offsets, sequences, strict=True)
        ]
    return f"{text}\n{text_pair}", pair


def _count_texts(mask: Sequence[int]) -> list[int]:
    """The number of each token's text, by the special tokens between the texts."""
    first = next((i for i, mark in enumerate(mask) if not mark), 0)
    end = next((i for i in range(first, len(mask)) if mask[i]), len(mask))
    return [int(i > end) for i in range(len(mask))]


def _pair_segments(encoding: _Pair) -> tuple[Segment, ...]:
    segments = []
    for number, name in enumerate(PAIR):
        places = [i for i, sequence in enumerate(encoding.sequences) if sequence == number]
        if places:
            segments.append(Segment(name, places[0], places[-1] + 1))
    return tuple(segments)


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
    tokens = name_tokens(tokenizer, ids)
    special = find_special(tokenizer, ids, encoding["special_tokens_mask"])
    offsets = encoding.get("offset_mapping")
    word_ids = None
    if offsets is not None:
        word_ids = encoding.word_ids()
    elif find:
        offsets = _find_offsets(tokenizer, ids, text)
    torch = import_optional("torch", "running a model")
    inputs = {name: torch.tensor([row]) for name, row in encoding.items() if is_argument(name)}
    if loaded.task == "seq2seq":
        start = decoder_start(loaded)
        tokens.append(str(tokenizer.convert_ids_to_tokens(start)))
        special.append(True)
        offsets = None if offsets is None else [*offsets, (0, 0)]
        word_ids = None if word_ids is None else [*word_ids, None]
        inputs["decoder_input_ids"] = torch.tensor([[start]])
    words = Units((), (), ())
    if find:
        if word_ids is None and offsets is not None:
            word_ids = number_words(text, [span if span[0] < span[1] else None for span in offsets])
        words = find_words(tokens, special=special, text=text, word_ids=word_ids, offsets=offsets)
    spans = None
    if offsets is not None:
        spans = tuple((start, end) if start < end else None for start, end in offsets)
    return EncodedText(text, tuple(tokens), tuple(special), words, inputs, spans)


def _find_offsets(tokenizer: Any, ids: Sequence[int], text: str) -> list[tuple[int, int]] | None:
    """The offsets of ids in their text, for tokenizers that provide none; None if they differ."""
    decoded, spans = locate_tokens(tokenizer, ids)
    start = text.find(decoded.strip()) if decoded.strip() else -1
    if start < 0:
        return None
    start -= len(decoded) - len(decoded.lstrip())
    return [
        (max(span[0] + start, 0), min(span[1] + start, len(text))) if span else (0, 0)
        for span in spans
    ]


def name_tokens(tokenizer: Any, ids: Sequence[int]) -> list[str]:
    """The tokens of ids; such as "<17>" for ids that the model knows and the tokenizer does not."""
    names = tokenizer.convert_ids_to_tokens(list(ids))
    return [f"<{i}>" if name is None else str(name) for i, name in zip(ids, names, strict=True)]


def find_special(tokenizer: Any, ids: Sequence[int], mask: Sequence[int]) -> list[bool]:
    """Whether each token is special: marked by the tokenizer, or written out in the text."""
    names = ("cls_token_id", "sep_token_id", "bos_token_id", "eos_token_id", "pad_token_id")
    special_ids = {getattr(tokenizer, name, None) for name in names}
    return [bool(mark) or i in special_ids for mark, i in zip(mask, ids, strict=True)]


def decoder_start(loaded: LoadedModel) -> int:
    """The id of the first token of a decoder, which stands before every answer."""
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


def check_length(loaded: LoadedModel, n: int, limit: int, truncate: Truncate) -> None:
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


def check_ids(loaded: LoadedModel, ids: Sequence[int], name: str = "input_ids") -> None:
    """Raise InputError for token ids that the model has no embedding of."""
    n_ids = _vocabulary_size(loaded)
    unknown = [i for i in ids if not 0 <= i < n_ids]
    if unknown:
        raise InputError(
            f"{name} contains {unknown[0]}",
            expected=f"0 to {n_ids - 1}, the vocabulary of {loaded.name}",
            fix="Use the tokenizer of the model.",
        )


def _vocabulary_size(loaded: LoadedModel) -> int:
    """The number of token embeddings; the size of the tokenizer if that is unknown."""
    weight = _embedding_weight(loaded)
    return len(loaded.tokenizer) if weight is None else int(weight.shape[0])


def embedding_width(loaded: LoadedModel) -> int | None:
    """The width of the embeddings of tokens; None if it is unknown."""
    weight = _embedding_weight(loaded)
    return None if weight is None or weight.ndim != 2 else int(weight.shape[1])


def _embedding_weight(loaded: LoadedModel) -> Any:
    try:
        embeddings = getattr(loaded.model, "get_input_embeddings", lambda: None)()
    except NotImplementedError:
        embeddings = None
    return getattr(embeddings, "weight", None)
