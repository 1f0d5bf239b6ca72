"""The target: one prediction of a model for one text, whose tokens are scored.

`open_target` finds the target of one text for any task; `predict_classes` and `classifier_targets`
serve many texts at once, for classifiers.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnflow.attribution import Attribution
from attnflow.errors import InputError, check_count
from attnflow.models.input_kinds import check_argument_order, encode_inputs
from attnflow.models.inputs import (
    EncodedText,
    Truncate,
    collate,
)
from attnflow.models.loading import LoadedModel, load_model
from attnflow.models.model_state import evaluation_mode, on_device
from attnflow.models.prediction import (
    Contrast,
    label_of,
    logits_of_batch,
    probabilities,
    resolve_contrast,
    resolve_explained,
)
from attnflow.optional import import_optional
from attnflow.selection import Position

MAX_ROWS = 512  # rows of a batch
MAX_LENGTH_RATIO = 1.25  # of the longest to the shortest text of a batch


@dataclass(frozen=True, eq=False)
class Target:
    """A class or token that the model predicts for a text.

    position: where a language model predicts; a classifier has no such position.
    contrast: the class or token, and the one that it is compared with, if there is one.
    logits: [classes] of the unchanged text.
    """

    encoded: EncodedText
    position: int
    contrast: Contrast
    logits: Any


@contextmanager
def open_target(
    text: Any,
    model: Any,
    *,
    tokenizer: Any,
    target: int | str | None,
    against: int | str | None,
    position: Position | None,
    truncate: Truncate,
    device: Any,
) -> Iterator[tuple[LoadedModel, Target]]:
    """Load the model, run it on the text, and find the target. The options are those of `explain`.

    against: a class or token to compare the target with.
    Inside the block, the model is in evaluation mode and on the device.
    Raises InputError for several texts, and for a model without a prediction.
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
        contrast = resolve_contrast(loaded, logits, target, against)
        yield loaded, Target(encoded[0], place, contrast, logits)


def check_task(loaded: LoadedModel) -> None:
    """Raise InputError if the model predicts nothing."""
    if loaded.task == "encoder":
        raise InputError(
            f"{loaded.name} predicts nothing",
            expected="a classifier or a language model",
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
    if value is None:
        raise InputError(f"{name} is None", expected="1 or more", fix="Leave it out.")
    check_count(name, value)


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


def input_embeddings(loaded: LoadedModel) -> Any:
    """Return the module that embeds the tokens of the input; the encoder's, if there are two."""
    model = loaded.model.get_encoder() if loaded.task == "seq2seq" else loaded.model
    return model.get_input_embeddings()


@contextmanager
def replace_embeddings(loaded: LoadedModel, replace: Callable[[Any], Any]) -> Iterator[None]:
    """Replace the embeddings of the input in the next run of the model.

    replace: takes the embeddings [rows, tokens, width] and returns others. This works for all
    models, also for those without `inputs_embeds`.
    """
    is_done = False

    def hook(_module: Any, _inputs: Any, output: Any) -> Any:
        nonlocal is_done
        if is_done:  # a decoder may share the embeddings of its encoder
            return output
        is_done = True
        return replace(output)

    handle = input_embeddings(loaded).register_forward_hook(hook)
    try:
        yield
    finally:
        handle.remove()


def to_attribution(
    loaded: LoadedModel,
    target: Target,
    scores: Any,
    *,
    method: str,
    settings: Mapping[str, Any],
    columns: Sequence[int] = (),
) -> Attribution:
    """Return scores [columns] as an Attribution of one layer, the last, and one position.

    columns: the scored tokens; by default those of the input.
    """
    contrast = target.contrast
    explained = {
        "target": label_of(loaded, contrast.target),
        "target_index": contrast.target,
        "probability": float(probabilities(loaded, target.logits)[contrast.target]),
    }
    if contrast.against is not None:
        explained |= {
            "against": label_of(loaded, contrast.against),
            "against_index": contrast.against,
        }
    return Attribution(
        scores=np.asarray(scores, dtype=np.float64)[None, None, :],
        tokens=target.encoded.tokens,
        method=method,
        layers=(loaded.n_layers,),
        positions=(target.position,),
        columns=tuple(columns or range(target.encoded.n_inputs)),
        settings={**settings, **explained},
    )


def predict_classes(loaded: LoadedModel, encoded: Sequence[EncodedText]) -> NDArray[np.float64]:
    """Return the probabilities [texts, classes] of a classifier."""
    rows = [
        probabilities(loaded, logits).cpu().double().numpy()
        for logits in _class_logits(loaded, encoded)
    ]
    return np.asarray(rows)


def classifier_targets(
    loaded: LoadedModel, encoded: Sequence[EncodedText], classes: Sequence[int]
) -> list[Target]:
    """Return one target for each text. classes: the index of each text's class."""
    return [
        Target(text, 0, Contrast(int(index)), logits)
        for text, index, logits in zip(
            encoded, classes, _class_logits(loaded, encoded), strict=True
        )
    ]


def _class_logits(loaded: LoadedModel, encoded: Sequence[EncodedText]) -> list[Any]:
    """Return the logits [classes] of a classifier for each text."""
    check_classifier(loaded)
    torch = import_optional("torch", "running a model")
    rows: dict[int, Any] = {}
    with evaluation_mode(loaded.model), torch.no_grad():
        for batch in cut_batches(loaded, encoded, [1] * len(encoded)):
            texts = [encoded[i] for i in batch]
            logits = run(loaded, collate(loaded, texts), texts, [0] * len(texts))
            rows.update(zip(batch, logits, strict=True))
    return [rows[i] for i in range(len(encoded))]


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
