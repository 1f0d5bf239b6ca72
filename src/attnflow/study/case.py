"""Case: a text, the prediction of a model for it, and the tokens or words that are ranked.

The prediction is a class, a masked word, the next token, or a whole continuation that is given (or
generated) and never changes: its tokens are predicted one by one, each after the true ones before
it. `make_case` finds all of it; the explainers and the metrics of a study take it as it is.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnflow.errors import InputError
from attnflow.importance.target import check_task
from attnflow.models.generation import AnswerRequest, answer_prompts
from attnflow.models.input_kinds import encode_inputs
from attnflow.models.inputs import (
    EncodedText,
    Truncate,
    collate,
    encode_text,
)
from attnflow.models.loading import LoadedModel
from attnflow.models.prediction import (
    Contrast,
    invalid_logits,
    label_of,
    logits_of,
    logits_of_batch,
    probabilities,
    resolve_contrast,
    resolve_explained,
    resolve_word,
)
from attnflow.optional import import_optional
from attnflow.token_text import is_byte_level, join_tokens
from attnflow.units import find_spans, find_words, overlaps


@dataclass(frozen=True)
class Step:
    """One prediction: the position that makes it, and its target."""

    position: int
    contrast: Contrast


@dataclass(frozen=True, eq=False)
class Case:
    """A text whose prediction is explained.

    encoded: what the model sees: the text, and the continuation without its last token.
    steps: the predictions; several for a continuation.
    units: the token indices of each ranked token or word. labels: their texts.
    evidence: whether each unit is evidence, if it is known.
    label, probability: the target, and its probability; of a continuation the whole text of it.
    """

    loaded: LoadedModel
    encoded: EncodedText
    steps: tuple[Step, ...]
    units: tuple[tuple[int, ...], ...]
    labels: tuple[str, ...]
    evidence: NDArray[np.bool_] | None
    label: str
    probability: float

    @property
    def positions(self) -> list[int]:
        """The position of each step."""
        return [step.position for step in self.steps]

    def merge(self, scores: Any) -> NDArray[np.float64]:
        """Add up scores [tokens] over the tokens of each unit."""
        values = np.asarray(scores, dtype=np.float64)
        return np.asarray([values[list(unit)].sum() for unit in self.units])

    def tokens_of(self, chosen: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """Return whether each token belongs to a chosen unit. chosen: [..., units]."""
        tokens = np.zeros((*chosen.shape[:-1], self.encoded.n_inputs), dtype=bool)
        for i, unit in enumerate(self.units):
            tokens[..., list(unit)] = chosen[..., i, None]
        return tokens


@dataclass(frozen=True)
class Question:
    """What is asked about a text; by default, why the model predicts what it predicts.

    target, against, position: as in `attnflow.explain`.
    continuation: the text or token ids that a decoder is made to predict; generate: or the number
    of tokens that it generates itself first, greedily.
    evidence: the part of the text that decides the prediction: its text, character offsets
    (start, end), or several of either.
    """

    target: int | str | None = None
    against: int | str | None = None
    position: int | str | None = None
    continuation: str | Sequence[int] | None = None
    generate: int = 0
    evidence: Any = None


def make_case(
    loaded: LoadedModel,
    text: str | EncodedText,
    question: Question | None = None,
    *,
    words: bool = False,
    truncate: Truncate = "error",
) -> Case:
    """Run the model on a text, and return the case.

    words: rank words instead of tokens. truncate: as in `attnflow.explain`.
    Raises InputError if there is nothing to rank, the evidence is not in the text, or the model
    predicts nothing.
    """
    question = question or Question()
    check_task(loaded)
    if not isinstance(text, EncodedText):
        text = encode_text(loaded, text, truncate=truncate)
    encoded, target, against = text, question.target, question.against
    place = resolve_explained(loaded, encoded, question.position)
    units, labels = _find_units(loaded, encoded, place, words)
    evidence = question.evidence
    marked = None if evidence is None else _mark_evidence(encoded, units, evidence)
    if question.continuation is None and not question.generate:
        steps, label, chance = _one_step(loaded, encoded, place, target, against)
        return Case(loaded, encoded, steps, units, labels, marked, label, chance)
    given = {"target": target, "against": against, "position": question.position}
    for name, value in given.items():
        if value is not None:
            raise InputError(
                f"{name} is {value!r}, and a continuation was given",
                expected="one of the two",
                fix=f"Leave out {name}: a continuation is explained at its own tokens.",
            )
    whole, steps, label = _answer(loaded, encoded, question)
    chance = float(np.exp(_log_probability(loaded, whole, steps)))
    if not np.isfinite(chance):
        raise invalid_logits(loaded)
    return Case(loaded, whole, steps, units, labels, marked, label, chance)


def _log_probability(loaded: LoadedModel, encoded: EncodedText, steps: Sequence[Step]) -> float:
    """Return log p of all targets together, for the unchanged text."""
    torch = import_optional("torch", "running a model")
    with torch.no_grad():
        [logits] = loaded.model(**collate(loaded, [encoded])).logits
        rows = [logits_of(loaded, logits, encoded, step.position) for step in steps]
        pairs = zip(rows, steps, strict=True)
        return sum(float(log_chance(loaded, row, step.contrast)) for row, step in pairs)


def log_chance(loaded: LoadedModel, logits: Any, contrast: Contrast) -> Any:
    """Return log p [...] of the target from logits [..., classes].

    If it is compared with another class or token, p is its probability among the two.
    """
    torch = import_optional("torch", "running a model")
    if contrast.against is not None:
        return torch.nn.functional.logsigmoid(contrast.score(logits).double())
    return probabilities(loaded, logits.double())[..., contrast.target].clamp_min(1e-45).log()


def _one_step(
    loaded: LoadedModel,
    encoded: EncodedText,
    place: int,
    target: int | str | None,
    against: int | str | None,
) -> tuple[tuple[Step, ...], str, float]:
    torch = import_optional("torch", "running a model")
    with torch.no_grad():
        output = loaded.model(**collate(loaded, [encoded]))
    [logits] = logits_of_batch(loaded, output.logits, [encoded], [place])
    n = int(logits.shape[-1])
    target = None if target is None else resolve_word(loaded, target, n)
    against = None if against is None else resolve_word(loaded, against, n)
    contrast = resolve_contrast(loaded, logits, target, against)
    chance = float(log_chance(loaded, logits, contrast).exp())
    return (Step(place, contrast),), label_of(loaded, contrast.target), chance


def _find_units(
    loaded: LoadedModel, encoded: EncodedText, place: int, words: bool
) -> tuple[tuple[tuple[int, ...], ...], tuple[str, ...]]:
    """Return the ranked units and their texts: all but special tokens and the mask to fill."""
    n = encoded.n_inputs
    groups: Sequence[tuple[int, ...]] = [(i,) for i in range(n)]
    if words:
        found = encoded.words
        if not found.groups:
            found = find_words(encoded.tokens, special=encoded.special, text=encoded.text)
        groups = [group for group in found.groups if group[-1] < n]
    fixed = {place} if loaded.task == "masked_lm" else set()
    units = tuple(
        group for group in groups if not any(encoded.special[i] or i in fixed for i in group)
    )
    if len(units) < 2:
        raise InputError(
            f"the text has {len(units)} tokens to rank",
            expected="at least 2 besides special tokens",
            fix="Use a longer text.",
        )
    byte_level = is_byte_level(encoded.tokens, encoded.text)
    labels = [join_tokens([encoded.tokens[i] for i in u], byte_level=byte_level) for u in units]
    return units, tuple(labels)


def _mark_evidence(
    encoded: EncodedText, units: Sequence[tuple[int, ...]], evidence: Any
) -> NDArray[np.bool_]:
    """Return whether each unit overlaps the evidence."""
    spans = find_spans(encoded.text, evidence)
    offsets = encoded.offsets
    if offsets is None:
        raise InputError(
            "the tokenizer does not say where its tokens are in the text",
            expected="a fast tokenizer, to compare with evidence",
            fix="Use a model with a tokenizer.json.",
        )
    marked = np.asarray([any(overlaps(offsets[i], spans) for i in unit) for unit in units])
    if not marked.any():
        raise InputError(
            f"no ranked token overlaps the evidence {evidence!r}",
            expected="evidence inside the text",
            fix="Check the column of the evidence.",
        )
    return marked


def _answer(
    loaded: LoadedModel, encoded: EncodedText, question: Question
) -> tuple[EncodedText, tuple[Step, ...], str]:
    """Return the text with its continuation, the steps that predict it, and its own text.

    The last token of the continuation is predicted, and not read.
    """
    if loaded.task != "causal_lm":
        raise InputError(
            f"a continuation was asked for, and {loaded.name} is not a decoder",
            expected="a causal language model",
            fix="Leave the continuation out.",
        )
    options = {"max_new_tokens": question.generate, "do_sample": False}
    given = question.continuation
    request = AnswerRequest(generate=options if given is None else None, continuation=given)
    [answered] = answer_prompts(loaded, [encoded], request)
    ids, n = answered.ids, encoded.n_inputs
    prompt = encoded.inputs["input_ids"][0].tolist()
    inputs: Mapping[str, Any] = {"input_ids": [*prompt, *ids[:-1]]}
    [whole], _ = encode_inputs(loaded, inputs)
    steps = tuple(Step(n - 1 + i, Contrast(token)) for i, token in enumerate(ids))
    return whole, steps, str(loaded.tokenizer.decode(list(ids)))
