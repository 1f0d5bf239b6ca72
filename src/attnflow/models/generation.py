"""Answers: generate them, or take them as given, and append them to their prompts.

`answer_prompts` is used by `explain` and by studies. One forward pass over prompt and answer then
serves all tokens of the answer.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from logging import ERROR, getLogger
from math import isfinite
from typing import Any, TypeAlias
from warnings import catch_warnings, filterwarnings, warn

from attnflow.attribution import Offsets
from attnflow.errors import InputError, check_count, first_line, quote
from attnflow.models.decoding import locate_tokens
from attnflow.models.inputs import (
    EncodedText,
    check_ids,
    check_start,
    collate,
    decoder_start,
    find_special,
    is_unicode,
    name_tokens,
)
from attnflow.models.loading import LoadedModel
from attnflow.models.model_state import evaluation_mode
from attnflow.optional import import_optional
from attnflow.predictions import Answer, Prediction, Segment
from attnflow.selection import as_index
from attnflow.units import find_words, number_words

Generate: TypeAlias = int | Mapping[str, Any]
# Options of `model.generate` that only matter when it samples.
SAMPLING = ("temperature", "top_k", "top_p", "min_p", "top_h", "typical_p")
ANSWER, SOURCE = "answer", "source"
# What `model.generate` gets from the prompt.
OWN_OPTIONS = ("inputs", "input_ids", "inputs_embeds", "attention_mask", "decoder_input_ids")


@dataclass(frozen=True)
class AnswerRequest:
    """How to get the answers: generate them, or take those given.

    generate: the number of new tokens, or the options of `model.generate`. seed: of sampling.
    continuation: a text, or token ids; for several prompts one for each.
    """

    generate: Generate | None = None
    continuation: Any = None
    seed: int = 0

    def __post_init__(self) -> None:
        if self.generate is not None and self.continuation is not None:
            raise InputError(
                "generate and continuation were both given",
                expected="one of them",
                fix="Leave out generate to explain a given continuation.",
            )
        if isinstance(self.generate, Mapping):
            for name, value in self.generate.items():
                _check_option(name, value)
        elif self.generate is not None:
            check_count("generate", self.generate)
        seed: Any = self.seed
        check_count("seed", "None" if seed is None else seed, first=0)

    def __bool__(self) -> bool:
        return self.generate is not None or self.continuation is not None

    def options(self) -> dict[str, Any]:
        """The options of `model.generate`."""
        if isinstance(self.generate, Mapping):
            return dict(self.generate)
        return {"max_new_tokens": int(self.generate or 0)}

    def record(self) -> dict[str, Any]:
        """The options as they are kept in an answer: numbers and texts, and the types of others."""
        return {
            **{name: _record(value) for name, value in self.options().items()},
            "seed": self.seed,
        }


def _check_option(name: Any, value: Any) -> None:
    """Raise InputError for options of `model.generate` that attnflow sets itself."""
    if not isinstance(name, str) or name in OWN_OPTIONS:
        raise InputError(
            f"generate has the option {quote(name)}",
            expected="options of model.generate, without its inputs",
            fix="The prompt is what is passed as the text.",
        )
    if name == "max_new_tokens":
        check_count(name, value)
    if name == "do_sample" and not isinstance(value, bool):
        raise InputError(
            f"do_sample is {quote(value)}", expected="True or False", fix="Use do_sample=True."
        )


def _record(value: Any) -> Any:
    """A value that JSON can have."""
    if isinstance(value, Mapping):
        return {str(name): _record(part) for name, part in value.items()}
    if hasattr(value, "tolist"):  # a number or an array
        value = _to_list(value)
    if isinstance(value, list | tuple):
        return [_record(part) for part in value]
    is_plain = value is None or isinstance(value, bool | int | str)
    is_plain = is_plain or (isinstance(value, float) and isfinite(value))
    return value if is_plain else str(value) if isinstance(value, float) else type(value).__name__


@dataclass(frozen=True, eq=False)
class AnsweredText:
    """A prompt with its answer appended, before the model has run on both.

    encoded: what the model sees. ids: the tokens of the answer. first: the index of the first one.
    text, offsets, start, settings: as in `attnflow.predictions.Answer`.
    """

    encoded: EncodedText
    ids: tuple[int, ...]
    first: int
    text: str
    offsets: Offsets
    start: int
    settings: Mapping[str, Any]

    def read(self, steps: Sequence[Prediction]) -> Answer:
        """The answer, with the predictions of the model."""
        special = self.encoded.special[self.first :]
        return Answer(
            self.text, self.first, self.start, tuple(steps), self.offsets, special, self.settings
        )


def answer_prompts(
    loaded: LoadedModel, prompts: Sequence[EncodedText], request: AnswerRequest
) -> list[AnsweredText]:
    """Generate or read the answer to each prompt, and append it.

    Each prompt is generated from on its own, so that its tokens are those of `model.generate`
    without padding. The random state of torch does not change.
    Raises InputError for a model that generates nothing, an empty answer, or too many tokens.
    """
    check_generates(loaded)
    if any("input_ids" not in prompt.inputs for prompt in prompts):
        raise InputError(
            "an answer was asked for, and the input is embeddings",
            expected="a text or token ids",
            fix="Pass the ids of prompt and answer, or leave out generate and continuation.",
        )
    if request.continuation is not None:
        given = _split_continuations(request.continuation, len(prompts))
        pairs = zip(prompts, given, strict=True)
        answers = [_read_continuation(loaded, prompt, item) for prompt, item in pairs]
        settings: dict[str, Any] = {"given": True}
    else:
        answers = [_generate(loaded, prompt, request) for prompt in prompts]
        settings = request.record()
    return [
        _append(loaded, prompt, ids, settings) for prompt, ids in zip(prompts, answers, strict=True)
    ]


def check_generates(loaded: LoadedModel) -> None:
    """Raise InputError if the model generates no text."""
    if loaded.task not in ("causal_lm", "seq2seq"):
        raise InputError(
            f"an answer was asked for, and {loaded.name} does not generate text",
            expected="a decoder or an encoder-decoder",
            fix="Leave out generate and continuation.",
        )


def _split_continuations(continuation: Any, n: int) -> list[Any]:
    """One continuation for each of n prompts."""
    values = _to_list(continuation)
    is_list = isinstance(values, list | tuple) and len(values) > 0
    several = is_list and any(isinstance(value, list | tuple | str) for value in values)
    several = several or (is_list and n > 1)
    items = list(values) if several else [values]
    if len(items) != n:
        raise InputError(
            f"{len(items)} continuations were given for {n} texts",
            expected="one for each text",
            fix="Pass a list with one text, or one list of token ids, for each.",
        )
    return items


def _read_continuation(loaded: LoadedModel, prompt: EncodedText, item: Any) -> list[int]:
    if isinstance(item, str) and is_unicode(item):
        check_start(loaded, item)
        if loaded.task == "seq2seq":
            return [int(i) for i in loaded.tokenizer(text_target=item)["input_ids"]]
        return _continue_text(loaded.tokenizer, prompt, item)
    values = _to_list(item)
    if not isinstance(values, list | tuple):
        raise InputError(
            f"continuation is {quote(item)}",
            expected="a text or a list of token ids",
            fix="Pass one of these.",
        )
    ids = [as_index(value, "continuation") for value in values]
    check_ids(loaded, ids, "continuation")
    return ids


def _continue_text(tokenizer: Any, prompt: EncodedText, text: str) -> list[int]:
    """The tokens of a text after a prompt, without the space that some tokenizers put before it.

    They are those of both together, as long as these begin with the tokens of the prompt; and else,
    or for prompts that are not given as text, those after a new line, or those of the text alone.
    """
    prompts: list[tuple[str, Any, tuple[bool, ...]]] = [
        (prompt.text, prompt.inputs["input_ids"][0].tolist(), (False, True))
    ]
    line = tokenizer("\n", add_special_tokens=False)["input_ids"]
    if locate_tokens(tokenizer, tokenizer(text, add_special_tokens=False)["input_ids"])[0] != text:
        prompts.append(("\n", line, (False,)))
    unknown = getattr(tokenizer, "unk_token_id", None)
    for before, known, adds_special in prompts:
        if not known or known[-1] == unknown:  # which may swallow the start of the text
            continue
        for special in adds_special:
            both = tokenizer(before + text, add_special_tokens=special)["input_ids"]
            if both[: len(known)] == known and len(both) > len(known):
                return [int(i) for i in both[len(known) :]]
    return [int(i) for i in tokenizer(text, add_special_tokens=False)["input_ids"]]


def _to_list(value: Any) -> Any:
    """An array or tensor as a list; anything else as it is, also a tensor without values."""
    try:
        return value.tolist() if hasattr(value, "tolist") else value
    except Exception:  # such as a tensor on the meta device
        return value


def _generate(loaded: LoadedModel, prompt: EncodedText, request: AnswerRequest) -> list[int]:
    """The ids that `model.generate` adds to a prompt."""
    torch = import_optional("torch", "running a model")
    options = request.options()
    if isinstance(options.get("max_new_tokens"), int):  # beyond the limit, models break
        n_prompt = 1 if loaded.task == "seq2seq" else prompt.n_inputs
        _check_length(loaded, n_prompt, options["max_new_tokens"])
    config = getattr(loaded.model, "generation_config", None)
    _warn_unused(options, config)
    padding = getattr(config, "pad_token_id", None)
    if padding is None and "pad_token_id" not in options:  # else transformers warns, and uses eos
        ends = getattr(config, "eos_token_id", None)
        options["pad_token_id"] = ends[0] if isinstance(ends, list) else ends
    inputs = collate(loaded, [prompt])
    inputs.pop("decoder_input_ids", None)
    devices = {weights.device for weights in loaded.model.parameters() if weights.is_cuda}
    with torch.random.fork_rng(devices=list(devices)), torch.no_grad(), _silenced():
        torch.manual_seed(int(request.seed))
        with evaluation_mode(loaded.model):
            try:
                output = loaded.model.generate(**inputs, **options)
            except torch.OutOfMemoryError:
                raise
            except Exception as error:  # transformers raises many kinds of errors
                raise InputError(
                    f"model.generate refused {quote(request.record())} ({first_line(error)})",
                    expected="options of model.generate",
                    fix="Correct them, or use generate=40.",
                ) from error
    sequences = getattr(output, "sequences", output)
    if len(sequences) != 1:
        raise InputError(
            f"model.generate returned {len(sequences)} sequences",
            expected="one",
            fix="Leave out num_return_sequences.",
        )
    start = 1 if loaded.task == "seq2seq" else prompt.n_inputs
    return [int(i) for i in sequences[0, start:].tolist()]


def _warn_unused(options: Mapping[str, Any], config: Any) -> None:
    """Warn of options that have no effect because the model does not sample."""
    unused = [name for name in SAMPLING if name in options]
    own = getattr(options.get("generation_config", config), "do_sample", False)
    if unused and not options.get("do_sample", own):
        warn(
            f"{' and '.join(unused)} had no effect: the most probable tokens were generated. To "
            'sample, add "do_sample": True (--sampling do_sample=true).',
            UserWarning,
            stacklevel=2,
        )


@contextmanager
def _silenced() -> Iterator[None]:
    """Run a block without the remarks of transformers on options that it chooses itself."""
    logger = getLogger("transformers.generation")
    level = logger.level
    logger.setLevel(ERROR)
    try:
        with catch_warnings():
            filterwarnings("ignore", module="transformers")
            yield
    finally:
        logger.setLevel(level)


def _append(
    loaded: LoadedModel, prompt: EncodedText, ids: Sequence[int], settings: Mapping[str, Any]
) -> AnsweredText:
    """Return the prompt with its answer: tokens, tensors, words, offsets."""
    if not ids:
        raise InputError(
            "the answer is empty",
            expected="at least one token",
            fix="Generate more tokens, or pass a longer continuation.",
        )
    tokenizer, first = loaded.tokenizer, len(prompt.tokens)
    is_seq2seq = loaded.task == "seq2seq"
    _check_length(loaded, 1 if is_seq2seq else first, len(ids))
    before = [] if is_seq2seq else prompt.inputs["input_ids"][0].tolist()
    text, offsets = locate_tokens(tokenizer, ids, before=before)
    tokens = name_tokens(tokenizer, ids)
    special = find_special(tokenizer, ids, [i in tokenizer.all_special_ids for i in ids])
    gap = "\n" if is_seq2seq else ""
    start = len(prompt.text) + len(gap)
    shifted = tuple(span and (span[0] + start, span[1] + start) for span in offsets)
    words = find_words(
        tokens,
        special=special,
        text=text,
        word_ids=number_words(text, offsets),
        offsets=[span or (0, 0) for span in offsets],
    )
    segments = prompt.segments or (Segment(SOURCE, 0, prompt.n_inputs),) * is_seq2seq
    known = prompt.offsets or (None,) * first
    encoded = replace(
        prompt,
        text=prompt.text + gap + text,
        tokens=(*prompt.tokens, *tokens),
        special=(*prompt.special, *special),
        words=prompt.words.append(words),
        inputs=_extend_inputs(loaded, prompt, ids),
        offsets=(*known, *shifted),
        segments=(*segments, Segment(ANSWER, first, first + len(ids))),
    )
    return AnsweredText(encoded, tuple(ids), first, text, offsets, start, settings)


def _check_length(loaded: LoadedModel, n: int, n_answer: int) -> None:
    limit = loaded.max_length
    if limit is not None and n + n_answer > limit:
        raise InputError(
            f"prompt and answer have {n} and up to {n_answer} tokens, and {loaded.name} takes "
            f"{limit}",
            expected=f"at most {limit} together",
            fix=f"Shorten the prompt, or generate at most {max(limit - n, 0)} tokens.",
        )


def _extend_inputs(loaded: LoadedModel, prompt: EncodedText, ids: Sequence[int]) -> dict[str, Any]:
    """The tensors of the prompt with the answer."""
    torch = import_optional("torch", "running a model")
    added = torch.tensor([list(ids)])
    inputs = dict(prompt.inputs)
    if loaded.task == "seq2seq":
        start = torch.tensor([[decoder_start(loaded)]])
        inputs["decoder_input_ids"] = torch.cat([start, added], dim=1)
        inputs["decoder_attention_mask"] = torch.ones_like(inputs["decoder_input_ids"])
        return inputs
    for name, row in inputs.items():
        if row.ndim != 2 or row.shape[1] != prompt.n_inputs:  # such as the pixels of an image
            continue
        more = added if name == "input_ids" else row[:, -1:].expand(-1, len(ids))
        inputs[name] = torch.cat([row, more], dim=1)
    return inputs
