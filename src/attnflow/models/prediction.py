"""What a model predicts: which position it predicts at, which class or token, how probable."""

from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

from attnflow.arrays import import_torch
from attnflow.errors import InputError, SelectionError
from attnflow.models.inputs import EncodedText
from attnflow.models.loading import LoadedModel
from attnflow.selection import Position, resolve_position
from attnflow.words import plain_token

SHOWN = 5  # outcomes in `Prediction.top`


@dataclass(frozen=True)
class Outcome:
    """A class or a token, its number, and how probable the model finds it."""

    label: str
    index: int
    probability: float


@dataclass(frozen=True)
class Prediction:
    """What the model predicts, and which outcome is explained.

    kind: "class", "masked word" or "next token".
    top: the five most probable outcomes, best first.
    target: the outcome that was asked for; the best if none was.
    """

    kind: str
    top: tuple[Outcome, ...]
    target: Outcome

    @property
    def label(self) -> str:
        """The best outcome: a class, a word or a token."""
        return self.top[0].label

    @property
    def index(self) -> int:
        """The number of the best outcome, among classes or in the vocabulary."""
        return self.top[0].index

    @property
    def probability(self) -> float:
        """How probable the model finds the best outcome."""
        return self.top[0].probability


KINDS = {
    "classifier": "class",
    "masked_lm": "masked word",
    "causal_lm": "next token",
    "seq2seq": "next token",
}


def resolve_explained(loaded: LoadedModel, encoded: EncodedText, position: Position | None) -> int:
    """The index of the position to explain.

    If none is given: the mask for masked language models, the last token for decoders, and [CLS],
    or else the first special token, for the others.
    Raises SelectionError for a position that does not exist, InputError if there is not one mask.
    """
    if position is None:
        return _default_position(loaded, encoded)
    tokens = encoded.tokens
    if isinstance(position, str) and position not in tokens:
        plain = [plain_token(token) for token in tokens]
        tokens = tuple(plain) if position in plain else tokens
    return resolve_position(tokens, len(tokens), position)


def _default_position(loaded: LoadedModel, encoded: EncodedText) -> int:
    tokens = encoded.tokens
    if loaded.task == "masked_lm":
        return _find_mask(loaded, encoded)
    first = getattr(loaded.tokenizer, "cls_token", None)
    if loaded.task in ("causal_lm", "seq2seq"):
        return len(tokens) - 1
    if first in tokens:
        return tokens.index(first)
    if loaded.sees_only_earlier:
        return len(tokens) - 1
    return encoded.special.index(True) if any(encoded.special) else 0


def _find_mask(loaded: LoadedModel, encoded: EncodedText) -> int:
    mask = getattr(loaded.tokenizer, "mask_token", None)
    masks = [i for i, token in enumerate(encoded.tokens) if token == mask]
    if len(masks) == 1:
        return masks[0]
    given = f"{len(masks)} masks, at positions {', '.join(map(str, masks))}" if masks else "no mask"
    raise InputError(
        f"the text has {given}",
        expected="one for a masked language model to fill",
        fix=f"Write {mask or 'the mask token'} once in the text, or name a position with "
        "position=...",
    )


def logits_of(loaded: LoadedModel, logits: Any, encoded: EncodedText, position: int) -> Any:
    """The scores [..., classes] that a prediction is made from.

    logits: [..., classes] of a classifier, [..., tokens, vocabulary] of a language model. For an
    encoder-decoder, the position counts the tokens of the encoder first.
    Raises InputError for a position at which nothing is predicted.
    """
    if loaded.task == "classifier":
        return logits
    if loaded.task == "seq2seq":
        # Positions of the encoder are looked from too, but it is the decoder that predicts.
        position = max(position - encoded.n_inputs, 0)
    return logits[..., position, :]


def probabilities(loaded: LoadedModel, scores: Any) -> Any:
    """Probabilities [..., classes] from scores, in float32 or better.

    Classes exclude each other, except for a classifier that says otherwise or has only one class:
    there each has a probability of its own.
    """
    torch = import_torch("running a model")
    scores = scores.to(torch.promote_types(scores.dtype, torch.float32))
    problem = getattr(getattr(loaded.model, "config", None), "problem_type", None)
    alone = scores.shape[-1] == 1 or problem == "multi_label_classification"
    if loaded.task == "classifier" and alone:
        return scores.sigmoid()
    return scores.softmax(-1)


def predict(loaded: LoadedModel, scores: Any, target: int | str | None = None) -> Prediction:
    """What scores [classes] mean: the best outcomes, and the one that is to be explained."""
    chances = probabilities(loaded, scores.detach())
    best = chances.topk(min(SHOWN, chances.shape[-1])).indices.tolist()
    wanted = best[0] if target is None else resolve_target(loaded, target, chances.shape[-1])

    def outcome(index: int) -> Outcome:
        return Outcome(label_of(loaded, index), index, float(chances[index]))

    return Prediction(KINDS[loaded.task], tuple(map(outcome, best)), outcome(wanted))


def label_of(loaded: LoadedModel, index: int) -> str:
    """The name of a class, or the text of a token of the vocabulary."""
    if loaded.task == "classifier":
        names = getattr(getattr(loaded.model, "config", None), "id2label", None) or {}
        return str(names.get(index, index))
    written = loaded.tokenizer.decode([index]).strip()
    if written and "\N{REPLACEMENT CHARACTER}" not in written:
        return str(written)
    return str(loaded.tokenizer.convert_ids_to_tokens(index))


def resolve_target(loaded: LoadedModel, target: int | str, n: int) -> int:
    """The number of a class or token that is given by number, name or text.

    Raises SelectionError if there is none, or if the text is more than one token.
    """
    if isinstance(target, int):
        if not 0 <= target < n:
            raise SelectionError(
                f"there is no target {target}",
                expected=f"0 to {n - 1}",
                fix="Give its number or its name.",
            )
        return target
    return (_find_class if loaded.task == "classifier" else _find_token)(loaded, target, n)


def _find_class(loaded: LoadedModel, target: str, n: int) -> int:
    names = [label_of(loaded, i) for i in range(n)]
    for fold in (str, str.casefold):
        if fold(target) in [fold(name) for name in names]:
            return [fold(name) for name in names].index(fold(target))
    close = get_close_matches(target, names, cutoff=0.5) or names[:8]
    raise SelectionError(
        f"there is no class {target!r}",
        expected=f"one such as {', '.join(map(repr, close))}",
        fix="Give its name or its number.",
    )


def _find_token(loaded: LoadedModel, target: str, n: int) -> int:
    """The number of the token for a word after a space, as it is in the middle of a text."""
    tokenizer = loaded.tokenizer
    # Some tokenizers put the space before a text themselves, and make two of one that is there.
    tried = [tokenizer(t, add_special_tokens=False)["input_ids"] for t in (f" {target}", target)]
    for ids in tried:
        if len(ids) == 1 and ids[0] != getattr(tokenizer, "unk_token_id", None):
            return int(ids[0])
    if target in tokenizer.get_vocab():
        return int(tokenizer.convert_tokens_to_ids(target))
    pieces = ", ".join(map(repr, tokenizer.convert_ids_to_tokens(min(tried, key=len))))
    raise SelectionError(
        f"the target {target!r} is {pieces} to the tokenizer",
        expected=f"one token of the {n} that the model knows",
        fix="Give one token, or its number.",
    )
