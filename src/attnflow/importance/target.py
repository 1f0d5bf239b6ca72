"""The target: one prediction of a model for one text, whose tokens are scored.

`open_target` finds the target of one text for any task; `predict_classes` and `classifier_targets`
serve many texts at once, for classifiers.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnflow.attribution import Attribution
from attnflow.errors import InputError
from attnflow.explanation import Outcome
from attnflow.models.inputs import (
    EncodedText,
    Truncate,
    check_argument_order,
    collate,
    encode_inputs,
)
from attnflow.models.loading import LoadedModel, evaluation_mode, load_model, on_device
from attnflow.models.prediction import (
    label_of,
    logits_of_batch,
    predict,
    probabilities,
    resolve_explained,
)
from attnflow.optional import import_optional
from attnflow.selection import Position

# Tokens that can replace others: our name, and the tokenizer's.
REPLACEMENTS = {"unknown": "unk", "mask": "mask", "pad": "pad"}

MAX_ROWS = 512  # rows of a batch
MAX_LENGTH_RATIO = 1.25  # of the longest to the shortest text of a batch


@dataclass(frozen=True, eq=False)
class Target:
    """A class or token that the model predicts for a text.

    position: where a language model predicts; a classifier has no such position.
    outcome: the class or token, and its probability for the unchanged text.
    """

    encoded: EncodedText
    position: int
    outcome: Outcome


@contextmanager
def open_target(
    text: Any,
    model: Any,
    *,
    tokenizer: Any,
    target: int | str | None,
    position: Position | None,
    truncate: Truncate,
    device: Any,
) -> Iterator[tuple[LoadedModel, Target]]:
    """Load the model, run it on the text, and find the target. The options are those of `explain`.

    Inside the block, the model is in evaluation mode and on the device.
    Raises InputError for several texts, and for a model without a prediction or with a decoder
    beside its encoder.
    """
    check_argument_order(text, model)
    loaded = load_model(model, tokenizer)
    check_task(loaded)
    encoded, is_single = encode_inputs(loaded, text, truncate=truncate)
    if not is_single:
        raise InputError(
            f"a batch of {len(encoded)} was given",
            expected="one text",
            fix="Call the function for each text.",
        )
    place = resolve_explained(loaded, encoded[0], position)
    torch = import_optional("torch", "running a model")
    with on_device(loaded.model, device), evaluation_mode(loaded.model):
        with torch.no_grad():
            [logits] = run(loaded, collate(loaded, encoded), encoded, [place])
        yield loaded, Target(encoded[0], place, predict(loaded, logits, target).target)


def check_task(loaded: LoadedModel) -> None:
    """Raise InputError if the tokens of the model's predictions cannot be scored."""
    if loaded.task in ("encoder", "seq2seq"):
        given = "predicts nothing" if loaded.task == "encoder" else "is an encoder-decoder"
        raise InputError(
            f"{loaded.name} {given}",
            expected="a classifier, a masked or a causal language model",
            fix="Load a model with such a head.",
        )


def check_classifier(loaded: LoadedModel) -> None:
    """Raise InputError if the model cannot score many texts at once."""
    if loaded.task != "classifier":
        raise InputError(
            f"{loaded.name} is not a classifier",
            expected="a classifier for many texts at once",
            fix="Use blank_out or input_gradients for each text.",
        )


def check_positive(name: str, value: int) -> None:
    """Raise InputError unless an option is 1 or more."""
    if value < 1:
        raise InputError(f"{name} is {value}", expected="1 or more", fix="Use a larger number.")


def run(
    loaded: LoadedModel,
    inputs: Mapping[str, Any],
    encoded: Sequence[EncodedText],
    positions: Sequence[int],
) -> Any:
    """Run the model on inputs [rows, tokens], and return the logits [rows, classes].

    encoded, positions: the text of each row, and where it is predicted.
    """
    return logits_of_batch(loaded, loaded.model(**inputs).logits, encoded, positions)


def to_attribution(
    loaded: LoadedModel,
    target: Target,
    scores: Sequence[float],
    *,
    method: str,
    settings: Mapping[str, Any],
    columns: Sequence[int] = (),
) -> Attribution:
    """Return scores [columns] as an Attribution of one layer, the last, and one position."""
    outcome = target.outcome
    return Attribution(
        scores=np.asarray(scores, dtype=np.float64)[None, None, :],
        tokens=target.encoded.tokens,
        method=method,
        layers=(loaded.n_layers,),
        positions=(target.position,),
        columns=tuple(columns),
        settings={
            **settings,
            "target": outcome.label,
            "target_index": outcome.index,
            "probability": outcome.probability,
        },
    )


def find_replacement(loaded: LoadedModel, name: str) -> int:
    """Return the id of the "unknown", "mask" or "pad" token.

    Raises InputError, with the tokens that exist, if the tokenizer has no such token.
    """
    ids = {
        ours: getattr(loaded.tokenizer, f"{theirs}_token_id", None)
        for ours, theirs in REPLACEMENTS.items()
    }
    token = ids.get(name)
    if token is not None:
        return int(token)
    others = [repr(other) for other, i in ids.items() if i is not None]
    raise InputError(
        f"the tokenizer of {loaded.name} has no {name} token",
        expected="a token to replace others with",
        fix=f"It has {', '.join(others) or 'none of these tokens'}.",
    )


def predict_classes(loaded: LoadedModel, encoded: Sequence[EncodedText]) -> NDArray[np.float64]:
    """Return the probabilities [texts, classes] of a classifier."""
    check_classifier(loaded)
    torch = import_optional("torch", "running a model")
    rows: dict[int, Any] = {}
    with evaluation_mode(loaded.model), torch.no_grad():
        for batch in cut_batches(loaded, encoded, [1] * len(encoded)):
            texts = [encoded[i] for i in batch]
            logits = run(loaded, collate(loaded, texts), texts, [0] * len(texts))
            chances = probabilities(loaded, logits).cpu().double().numpy()
            rows.update(zip(batch, chances, strict=True))
    return np.asarray([rows[i] for i in range(len(encoded))])


def classifier_targets(
    loaded: LoadedModel, encoded: Sequence[EncodedText], classes: Sequence[int]
) -> list[Target]:
    """Return one target for each text. classes: the index of each text's class."""
    chances = predict_classes(loaded, encoded)
    return [
        Target(text, 0, Outcome(label_of(loaded, index), index, float(row[index])))
        for text, index, row in zip(encoded, map(int, classes), chances, strict=True)
    ]


def cut_batches(
    loaded: LoadedModel, encoded: Sequence[EncodedText], sizes: Sequence[int]
) -> Iterator[list[int]]:
    """Yield the indices of texts that share a batch: texts of similar length, up to MAX_ROWS rows.

    Similar lengths, because padding costs as much time as text.
    sizes: the number of rows that each text needs; one text alone may need more.
    """
    batch: list[int] = []
    for i in sorted(range(len(encoded)), key=lambda i: encoded[i].n_inputs):
        if batch:
            is_full = sum(sizes[j] for j in batch) + sizes[i] > MAX_ROWS
            is_longer = encoded[i].n_inputs > MAX_LENGTH_RATIO * encoded[batch[0]].n_inputs + 1
            if is_full or is_longer or not loaded.supports_batches:
                yield batch
                batch = []
        batch.append(i)
    if batch:
        yield batch
