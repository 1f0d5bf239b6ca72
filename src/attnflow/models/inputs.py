"""From text to what a model takes: tokens, tensors, and batches of them."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from inspect import Parameter, signature
from typing import Any, Literal, TypeAlias
from warnings import warn

from attnflow.arrays import import_torch
from attnflow.errors import InputError
from attnflow.models.loading import LoadedModel
from attnflow.words import Words, find_words

Truncate: TypeAlias = Literal["error", "cut"]


@dataclass(frozen=True, eq=False)
class EncodedText:
    """A text as the model sees it.

    tokens: the tokens of the input, and for an encoder-decoder the first token of the decoder.
    special: whether each token is one that the tokenizer added. words: the words they make up.
    inputs: tensors [1, tokens] by the names that the model takes them under.
    """

    text: str
    tokens: tuple[str, ...]
    special: tuple[bool, ...]
    words: Words
    inputs: Mapping[str, Any]

    @property
    def n_inputs(self) -> int:
        """The number of tokens of the input, without those of a decoder."""
        return int(self.inputs["input_ids"].shape[-1])


@dataclass(frozen=True)
class Unfit:
    """Why a text cannot be given to the model, in a sentence and in a word."""

    reason: str
    why: Literal["empty", "too_long", "other"]


def encode_text(loaded: LoadedModel, text: str, *, truncate: Truncate = "error") -> EncodedText:
    """Turn a text into tokens and tensors.

    truncate: what to do with a text that is longer than the model takes: "error", or "cut", which
    leaves out its end and warns of it.
    Raises InputError for an empty text, one that is too long, or something that is no text.
    """
    if truncate not in ("error", "cut"):
        raise InputError(
            f"truncate is {truncate!r}",
            expected="'error' or 'cut'",
            fix="Choose one.",
        )
    if not isinstance(text, str):
        raise InputError(
            f"the text is a {type(text).__name__}",
            expected="text, or a list of texts",
            fix="Give a string; join words that are in a list.",
        )
    encoding = _tokenize(loaded.tokenizer, text)
    ids = encoding["input_ids"]
    if not text.strip() or not ids:
        raise InputError(
            "the text is empty",
            expected="at least one word",
            fix="Give some text.",
        )
    limit = loaded.max_length
    if limit is not None and len(ids) > limit:
        _too_long(loaded, len(ids), limit, truncate)
        encoding = _tokenize(loaded.tokenizer, text, truncation=True, max_length=limit)
    return _describe(loaded, text, encoding, _taken(loaded))


def encode_texts(
    loaded: LoadedModel, texts: Sequence[str], *, truncate: Truncate = "error", words: bool = True
) -> list[EncodedText | Unfit]:
    """Turn texts into tokens and tensors as `encode_text` does, but all at once, which is faster.

    truncate: as in `encode_text`, but nothing warns of a text that is cut.
    words: whether to find the words that tokens make up; if not, there are none.
    Returns what is wrong in the place of a text that is empty, too long or cannot be tokenized.
    """
    if not texts:
        return []
    try:
        encodings = _tokenize_all(loaded, texts, truncate)
    except Exception as error:  # tokenizers raise whatever their parts raise
        if len(texts) > 1:
            return [
                encode_texts(loaded, [text], truncate=truncate, words=words)[0] for text in texts
            ]
        return [Unfit(f"the text cannot be tokenized ({error}); expected plain text.", "other")]
    limit, taken = loaded.max_length, _taken(loaded)
    found: list[EncodedText | Unfit] = []
    for text, encoding in zip(texts, encodings, strict=True):
        ids = encoding["input_ids"]
        too_long = limit is not None and len(ids) > limit
        if too_long or not text.strip() or not ids:
            found.append(_refused(loaded, text, "too_long" if too_long else "empty"))
        else:
            found.append(_describe(loaded, text, encoding, taken, words=words))
    return found


def _refused(
    loaded: LoadedModel, text: str, why: Literal["empty", "too_long"]
) -> EncodedText | Unfit:
    """What `encode_text` says of a text that cannot be used."""
    try:
        return encode_text(loaded, text)
    except InputError as error:
        return Unfit(str(error), why)


def _tokenize_all(loaded: LoadedModel, texts: Sequence[str], truncate: Truncate) -> list[Any]:
    """What the tokenizer returns for each text."""
    options: dict[str, Any] = {}
    if truncate == "cut" and loaded.max_length is not None:
        options = {"truncation": True, "max_length": loaded.max_length}
    encoding = _tokenize(loaded.tokenizer, list(texts), **options)
    return [_OneOf(encoding, i) for i in range(len(texts))]


class _OneOf(dict[str, Any]):
    """What a tokenizer returned for one of several texts."""

    def __init__(self, encoding: Any, index: int) -> None:
        super().__init__((name, values[index]) for name, values in encoding.items())
        self.encoding, self.index = encoding, index

    def word_ids(self) -> list[int | None]:
        """The number of each token's word, from a tokenizer that knows it."""
        found: list[int | None] = self.encoding.word_ids(self.index)
        return found


def _tokenize(tokenizer: Any, text: str | list[str], **options: Any) -> Any:
    fast = bool(getattr(tokenizer, "is_fast", False))
    return tokenizer(
        text, return_special_tokens_mask=True, return_offsets_mapping=fast, verbose=False, **options
    )


def _too_long(loaded: LoadedModel, given: int, limit: int, truncate: Truncate) -> None:
    length = f"the text has {given} tokens, special ones included, and {loaded.name} takes {limit}"
    if truncate == "error":
        raise InputError(
            f"{length}",
            expected="no more",
            fix="Shorten the text, split it, or let its end be cut off with truncate='cut'.",
        )
    side = "first" if getattr(loaded.tokenizer, "truncation_side", "") == "left" else "last"
    warn(f"{length}; its {side} {given - limit} were cut off.", UserWarning, stacklevel=4)


def _describe(
    loaded: LoadedModel,
    text: str,
    encoding: Any,
    taken: Callable[[str], bool],
    *,
    words: bool = True,
) -> EncodedText:
    """taken: whether the model takes an input of this name."""
    tokenizer, ids = loaded.tokenizer, encoding["input_ids"]
    tokens = [str(token) for token in tokenizer.convert_ids_to_tokens(ids)]
    # Special tokens that were typed as part of the text count as well; the mask does not.
    names = ("cls_token_id", "sep_token_id", "bos_token_id", "eos_token_id", "pad_token_id")
    added = {getattr(tokenizer, name, None) for name in names}
    special = [
        bool(mark) or i in added
        for mark, i in zip(encoding["special_tokens_mask"], ids, strict=True)
    ]
    offsets = encoding.get("offset_mapping")
    word_ids = encoding.word_ids() if offsets is not None else None
    torch = import_torch("running a model")
    inputs = {name: torch.tensor([row]) for name, row in encoding.items() if taken(name)}
    if loaded.task == "seq2seq":
        start = _decoder_start(loaded)
        tokens.append(str(tokenizer.convert_ids_to_tokens(start)))
        special.append(True)
        offsets = None if offsets is None else [*offsets, (0, 0)]
        word_ids = None if word_ids is None else [*word_ids, None]
        inputs["decoder_input_ids"] = torch.tensor([[start]])
    found = (
        find_words(tokens, special=special, text=text, word_ids=word_ids, offsets=offsets)
        if words
        else Words((), (), ())
    )
    return EncodedText(text, tuple(tokens), tuple(special), found, inputs)


def _decoder_start(loaded: LoadedModel) -> int:
    config = loaded.model.config
    for source in (config, getattr(loaded.model, "generation_config", None)):
        start = getattr(source, "decoder_start_token_id", None)
        if start is not None:
            return int(start)
    raise InputError(
        f"the configuration of {loaded.name} has no decoder_start_token_id",
        expected="the token that its decoder starts with",
        fix="Set model.config.decoder_start_token_id.",
    )


def _taken(loaded: LoadedModel) -> Callable[[str], bool]:
    """Whether the model takes an input of some name: others of the tokenizer are left out."""
    taken = signature(loaded.model.forward).parameters
    anything = any(p.kind is Parameter.VAR_KEYWORD for p in taken.values())
    always = ("input_ids", "attention_mask") if anything else ("input_ids",)
    return lambda name: name in always or name in taken


def collate(loaded: LoadedModel, encoded: Sequence[EncodedText]) -> dict[str, Any]:
    """One batch [texts, tokens] of several texts, padded on the right, on the model's device.

    Padding on the right leaves positions as they are, so that no model needs to be told of it but
    through its mask. A tokenizer without a padding token does no harm: what is masked is not seen.
    """
    torch = import_torch("running a model")
    device = device_of_model(loaded.model)
    # Some models look for padding in the input ids, by what their configuration says.
    named = [getattr(loaded.model, "config", None), loaded.tokenizer]
    ids = [getattr(source, "pad_token_id", None) for source in named]
    padding = {"input_ids": next((i for i in ids if i is not None), 0)}
    batch = {}
    for name in encoded[0].inputs:
        rows = [one.inputs[name][0] for one in encoded]
        batch[name] = torch.nn.utils.rnn.pad_sequence(
            rows, batch_first=True, padding_value=padding.get(name, 0)
        ).to(device)
    return batch


def device_of_model(model: Any) -> Any:
    """The device of the model's first weights; the processor if it has none."""
    first = next(iter(model.parameters()), None)
    return import_torch("running a model").device("cpu") if first is None else first.device
