"""Predictions of a model: the position, the classes or tokens, and their probabilities.

`predict` reads a prediction from logits; `resolve_contrast` finds the score that is explained: the
logit of one class or token, or its difference to that of another. The results, `Prediction` and
`Outcome`, are defined in `attnflow.predictions`.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from math import isfinite
from typing import TYPE_CHECKING, Any
from warnings import warn

from attnflow.errors import InputError, SelectionError
from attnflow.graph import MEAN
from attnflow.models.inputs import EncodedText, is_unicode
from attnflow.models.loading import LoadedModel
from attnflow.optional import import_optional
from attnflow.predictions import Outcome, Prediction
from attnflow.selection import Position, as_index, resolve_position
from attnflow.token_text import STARTS, plain_token

if TYPE_CHECKING:
    from attnflow.models.generation import AnsweredText

SHOWN = 5  # the number of outcomes in `Prediction.top`
SHOWN_ELSEWHERE = 3  # of positions that are not explained
BLOCK = 64  # positions whose probabilities are computed at once

# `Prediction.kind` for each task.
KINDS = {
    "classifier": "class",
    "masked_lm": "masked word",
    "causal_lm": "next token",
    "seq2seq": "next token",
}


def resolve_explained(loaded: LoadedModel, encoded: EncodedText, position: Position | None) -> int:
    """Return the index of the position to explain.

    position: an index or the text of a token. Default: the mask for masked language models, the
    last token for decoders; for other models [CLS], or else the first special token.
    Raises SelectionError if there is no such position, InputError if a masked language model has
    no mask or several.
    """
    if position is None:
        return _default_position(loaded, encoded)
    tokens = encoded.tokens
    if isinstance(position, str) and position not in tokens:
        plain = tuple(plain_token(token) for token in tokens)
        tokens = plain if position in plain else tokens
    return resolve_position(tokens, len(tokens), position)


def find_pooled(
    loaded: LoadedModel, encoded: EncodedText, position: Position | None
) -> tuple[int, ...]:
    """Return all positions if they are explained together, as "[MEAN]"; else none.

    That is the default for models that pool their positions by the mean: classifiers whose
    configuration says so, and encoders of sentences, whose folder does.
    """
    is_mean = isinstance(position, str) and position == MEAN and MEAN not in encoded.tokens
    if is_mean and loaded.task in ("classifier", "encoder"):
        return tuple(range(encoded.n_inputs))
    if position is None and loaded.pools_mean:
        return tuple(range(encoded.n_inputs))
    return ()


def answer_scores(loaded: LoadedModel, logits: Any, answers: "Sequence[AnsweredText]") -> Any:
    """Return the sum of the logits of all tokens of each answer, [texts], for gradient edges."""
    scores = [
        sum(
            logits_of(loaded, rows, answer.encoded, answer.first - 1 + i)[token]
            for i, token in enumerate(answer.ids)
        )
        for rows, answer in zip(logits, answers, strict=True)
    ]
    return import_optional("torch", "gradient edges").stack(scores)


def predict_answer(loaded: LoadedModel, logits: Any, answer: "AnsweredText") -> list[Prediction]:
    """Return the prediction of each token of an answer; its target is the token.

    logits: [tokens, vocabulary] of the text, or of the decoder.
    """
    return [
        predict(loaded, logits_of(loaded, logits, answer.encoded, answer.first - 1 + i), token)
        for i, token in enumerate(answer.ids)
    ]


def _default_position(loaded: LoadedModel, encoded: EncodedText) -> int:
    tokens = encoded.tokens
    if loaded.task == "masked_lm":
        return _find_mask(loaded, encoded)
    if loaded.task in ("causal_lm", "seq2seq"):
        return len(tokens) - 1
    cls = getattr(loaded.tokenizer, "cls_token", None)
    if cls in tokens:
        return tokens.index(cls)
    if loaded.is_causal:
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
        expected="one mask, which the model fills",
        fix=f"Write {mask or 'the mask token'} once in the text, or choose a position with "
        "position=...",
    )


def logits_of(loaded: LoadedModel, logits: Any, encoded: EncodedText, position: int) -> Any:
    """Return the logits [..., classes] of the prediction at a position.

    logits: [..., classes] of a classifier, which has no positions, or [..., tokens, vocabulary] of
    a language model. Positions of an encoder-decoder count the encoder's tokens first; for those,
    the logits are the ones of the decoder's first position.
    """
    if loaded.task == "classifier":
        return logits
    if loaded.task == "seq2seq":
        position = max(position - encoded.n_inputs, 0)
    return logits[..., position, :]


def logits_of_batch(
    loaded: LoadedModel, logits: Any, encoded: Sequence[EncodedText], positions: Sequence[int]
) -> Any:
    """Return the logits [texts, classes] of one prediction for each text.

    logits: [texts, classes] or [texts, tokens, vocabulary], as in `logits_of`.
    """
    if loaded.task == "classifier":
        return logits
    rows = zip(logits, encoded, positions, strict=True)
    return import_optional("torch", "running a model").stack(
        [logits_of(loaded, row, text, position) for row, text, position in rows]
    )


def probabilities(loaded: LoadedModel, logits: Any) -> Any:
    """Return probabilities [..., classes], in float32 or better.

    They sum to 1, except for classifiers with one class or with independent classes
    (`problem_type` "multi_label_classification").
    """
    logits = _at_least_float32(logits)
    return logits.sigmoid() if _has_independent_classes(loaded, logits) else logits.softmax(-1)


def log_probabilities(loaded: LoadedModel, logits: Any) -> Any:
    """Return the logarithms of `probabilities`, also where these round to 0."""
    logits = _at_least_float32(logits)
    if _has_independent_classes(loaded, logits):
        return import_optional("torch", "running a model").nn.functional.logsigmoid(logits)
    return logits.log_softmax(-1)


def _at_least_float32(logits: Any) -> Any:
    torch = import_optional("torch", "running a model")
    return logits.to(torch.promote_types(logits.dtype, torch.float32))


def _has_independent_classes(loaded: LoadedModel, logits: Any) -> bool:
    problem = getattr(getattr(loaded.model, "config", None), "problem_type", None)
    independent = logits.shape[-1] == 1 or problem == "multi_label_classification"
    return loaded.task == "classifier" and independent


def predict(loaded: LoadedModel, logits: Any, target: int | str | None = None) -> Prediction:
    """Return the prediction for logits [classes].

    target: the class or token to explain, by index or name. Default: the most probable one.
    Raises SelectionError if there is no such class or token, InputError if the logits are NaN.
    """
    chances = probabilities(loaded, logits.detach())
    if bool(chances.isnan().any()):
        raise invalid_logits(loaded)
    best = chances.topk(min(SHOWN, chances.shape[-1])).indices.tolist()
    explained = best[0] if target is None else resolve_target(loaded, target, chances.shape[-1])
    _warn_less_probable(loaded, target, chances)
    labels = _distinct_labels(loaded, [*best, explained])

    def outcome(index: int) -> Outcome:
        return Outcome(labels[index], index, float(chances[index]))

    return Prediction(KINDS[loaded.task], tuple(map(outcome, best)), outcome(explained))


def predict_positions(
    loaded: LoadedModel, logits: Any, n_tokens: int
) -> tuple[Prediction | None, ...]:
    """Return the prediction at every position of a text; () for models without positions.

    logits: [tokens, vocabulary] of a decoder or masked language model, maybe padded at the end.
    Only the best outcomes are kept, so that this takes little memory. None where logits are NaN.
    """
    if loaded.task not in ("causal_lm", "masked_lm"):
        return ()
    found: list[Prediction | None] = []
    for start in range(0, n_tokens, BLOCK):
        rows = logits[start : min(start + BLOCK, n_tokens)].detach()
        best = probabilities(loaded, rows).topk(min(SHOWN_ELSEWHERE, rows.shape[-1]))
        for chances, indices in zip(best.values.tolist(), best.indices.tolist(), strict=True):
            labels = _distinct_labels(loaded, indices)
            top = tuple(
                Outcome(labels[i], i, chance) for i, chance in zip(indices, chances, strict=True)
            )
            known = all(isfinite(chance) for chance in chances)
            found.append(Prediction(KINDS[loaded.task], top, top[0]) if known else None)
    return tuple(found)


def _distinct_labels(loaded: LoadedModel, indices: Sequence[int]) -> dict[int, str]:
    """Return the labels of some classes or tokens; equal ones with their space or their index."""
    labels = {index: label_of(loaded, index) for index in indices}
    counts = Counter(labels.values())
    spaced = {
        index: f"\N{OPEN BOX}{label}"
        if counts[label] > 1 and _begins_word(loaded, index)
        else label
        for index, label in labels.items()
    }
    counts = Counter(spaced.values())
    return {
        index: f"{label} (index {index})" if counts[label] > 1 else label
        for index, label in spaced.items()
    }


def _begins_word(loaded: LoadedModel, index: int) -> bool:
    """Whether a token of a language model has a space before it."""
    return loaded.task != "classifier" and _name(loaded.tokenizer, index).startswith(STARTS)


def invalid_logits(loaded: LoadedModel) -> InputError:
    """Return the error for logits whose probabilities are NaN."""
    return InputError(
        f"{loaded.name} returned logits that are NaN or infinite",
        expected="numbers, which have probabilities",
        fix="Check the weights of the model, and run it with another type: some models overflow "
        "in float16.",
    )


@dataclass(frozen=True)
class Contrast:
    """The score to explain: the logit of a target, or its difference to the logit of another.

    target: the index of a class or token. against: the index of the one to compare with, or None.
    """

    target: int
    against: int | None = None

    def score(self, logits: Any) -> Any:
        """Return the score [...] of logits [..., classes]; it can be differentiated.

        Log-probabilities of a language model give the same difference as logits.
        """
        score = logits[..., self.target]
        return score if self.against is None else score - logits[..., self.against]


def resolve_contrast(
    loaded: LoadedModel,
    logits: Any,
    target: int | str | None = None,
    against: int | str | None = None,
) -> Contrast:
    """Return the score to explain for logits [classes].

    target: a class or token by index or name. Default: the most probable one.
    against: another class or token; the score is then the difference of the two logits.
    Raises SelectionError if there is no such class or token, or if both are the same.
    """
    n = int(logits.shape[-1])
    index = predict(loaded, logits, target).target.index
    if against is None:
        return Contrast(index)
    other = resolve_target(loaded, against, n)
    if other == index:
        raise SelectionError(
            f"target and against are both {label_of(loaded, index)!r}",
            expected="two different classes or tokens",
            fix="Choose another with against=..., or choose the target with target=...",
        )
    return Contrast(index, other)


def label_of(loaded: LoadedModel, index: int) -> str:
    """Return the name of a class, or the text of a token in the vocabulary."""
    if loaded.task == "classifier":
        names = getattr(getattr(loaded.model, "config", None), "id2label", None) or {}
        name = names.get(index)
        return str(index if name is None or not str(name).strip() else name)
    text = loaded.tokenizer.decode([index]).strip()
    if text and "\N{REPLACEMENT CHARACTER}" not in text:
        return str(text)
    return _name(loaded.tokenizer, index)


def resolve_target(loaded: LoadedModel, target: int | str, n: int) -> int:
    """Return the index of one of n classes or tokens, given by its index, name or text.

    The exact name comes first, then the text with a space before it: "in" is the token inside of
    words if there is one, " in" the one that begins a word.
    Raises SelectionError if there is none, or if the text is more than one token.
    """
    if isinstance(target, str):
        find = _find_class if loaded.task == "classifier" else _find_token
        return find(loaded, target, n)
    number = as_index(target, "target")
    if not 0 <= number < n:
        raise SelectionError(
            f"there is no target {target}", expected=f"0 to {n - 1}", fix="Use its index or name."
        )
    return number


def _find_class(loaded: LoadedModel, target: str, n: int) -> int:
    names = [label_of(loaded, i) for i in range(n)]
    for fold in (str, str.casefold):
        folded = [fold(name) for name in names]
        if fold(target) in folded:
            return folded.index(fold(target))
    close = get_close_matches(target, names, cutoff=0.5) or names[:8]
    raise SelectionError(
        f"there is no class {target!r}",
        expected=f"a class such as {', '.join(map(repr, close))}",
        fix="Use its name or index.",
    )


def _find_token(loaded: LoadedModel, target: str, n: int) -> int:
    """Return the id of the token with a name or text: the exact one, else the start of a word."""
    exact, spaced = find_spellings(loaded, target)
    if exact is not None:
        return exact
    if spaced is not None:
        return spaced
    pieces = ", ".join(repr(_name(loaded.tokenizer, i)) for i in _fewest_pieces(loaded, target))
    raise SelectionError(
        f"the tokenizer turns the target {target!r} into {pieces}",
        expected=f"one of the {n} tokens of the vocabulary",
        fix="Use one token, for example the first of these, or its index.",
    )


def find_spellings(loaded: LoadedModel, target: str) -> tuple[int | None, int | None]:
    """Return the ids of the token that is the target, and of the one with a space before it.

    The second one begins a word, such as "\u0120Paris" in byte-level BPE and "\u2581Paris" in
    SentencePiece. Each is None if the vocabulary has no such token. Vocabularies without spaces,
    such as WordPiece, have the first only.
    """
    tokenizer, word = loaded.tokenizer, target.removeprefix(" ")
    if not is_unicode(target):
        raise SelectionError(
            f"the target is {target!r}, with half of a surrogate pair",
            expected="valid Unicode",
            fix="Use the index of the token.",
        )
    vocabulary, unknown = tokenizer.get_vocab(), getattr(tokenizer, "unk_token_id", None)
    exact = vocabulary.get(target)
    spaced = next((vocabulary[m + word] for m in STARTS if word and m + word in vocabulary), None)
    # Some tokenizers add the space themselves, and return two tokens if there is one already.
    for text in (f" {word}", word):
        ids = tokenizer(text, add_special_tokens=False)["input_ids"]
        if len(ids) != 1 or ids[0] == unknown:
            continue
        if _name(tokenizer, ids[0]).startswith(STARTS):
            spaced = int(ids[0]) if spaced is None else spaced
        elif exact is None and (word == target or text != word):  # or spaces are dropped
            exact = int(ids[0])
    return exact, spaced


def resolve_word(loaded: LoadedModel, target: int | str, n: int) -> int:
    """Return the index of a target as `resolve_target`; of a word, the token that begins it first.

    For data sets, whose targets are words that continue a text.
    """
    if isinstance(target, str) and loaded.task != "classifier":
        _, spaced = find_spellings(loaded, target)
        if spaced is not None:
            return spaced
    return resolve_target(loaded, target, n)


def _fewest_pieces(loaded: LoadedModel, target: str) -> list[int]:
    """Return the tokens of a text that is not one token, with or without a space before it."""
    word = target.removeprefix(" ")
    several = [
        loaded.tokenizer(text, add_special_tokens=False)["input_ids"] for text in (f" {word}", word)
    ]
    return min([ids for ids in several if len(ids) > 1] or several, key=len)


def _warn_less_probable(loaded: LoadedModel, target: int | str | None, chances: Any) -> None:
    """Warn if a target is also the name of a more probable token, with a space before it."""
    if not isinstance(target, str) or loaded.task == "classifier" or target.startswith(" "):
        return
    exact, spaced = find_spellings(loaded, target)
    if exact is None or spaced is None or exact == spaced or chances[spaced] <= chances[exact]:
        return
    warn(
        f"the target {target!r} is the token without a space before it (index {exact}, probability "
        f"{float(chances[exact]):.2g}). With the space (index {spaced}) it has probability "
        f"{float(chances[spaced]):.2g}: choose it with target={' ' + target!r}.",
        UserWarning,
        stacklevel=3,
    )


def _name(tokenizer: Any, index: int) -> str:
    """Return a token as it is called in the vocabulary, or its index as in `EncodedText.tokens`."""
    name = tokenizer.convert_ids_to_tokens(index)
    return f"<{index}>" if name is None else str(name)
