"""A classifier or a masked language model: the encoder of the package, a new head, an adapter."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from attnflow.arrays import import_torch
from attnflow.errors import FileError
from attnflow.minilm.adapter import merge, read
from attnflow.minilm.folders import find_encoder
from attnflow.models.checkpoint import Task, import_transformers

CLASSIFIER, MASKED = "BertForSequenceClassification", "BertForMaskedLM"
TASKS: dict[str, Task] = {CLASSIFIER: "classifier", MASKED: "masked_lm"}
LABELS = ("negative", "positive")


def build(kind: str, encoder: str | Path | None = None) -> tuple[Any, set[str]]:
    """The encoder with a random head, and the names of the parameters that are to be learnt.

    kind: CLASSIFIER or MASKED. encoder: its folder; that of the package if not given.
    """
    transformers = import_transformers("the MiniLM models")
    options: dict[str, Any] = {}
    if kind == CLASSIFIER:
        names = dict(enumerate(LABELS))
        options = {"id2label": names, "label2id": {name: i for i, name in names.items()}}
    with _silent():
        model, found = getattr(transformers, kind).from_pretrained(
            str(encoder or find_encoder()),
            use_safetensors=True,
            output_loading_info=True,
            dtype="float32",
            **options,
        )
    new = set(found["missing_keys"])
    if kind == CLASSIFIER:  # the encoder's own was never used by its sentence embeddings
        new |= {"bert.pooler.dense.weight", "bert.pooler.dense.bias"}
    named = {name for name, _ in model.named_parameters()}  # tied weights are named once
    return model, new & named


@contextmanager
def _silent() -> Iterator[None]:
    """Keep transformers from warning that the head is random: it is replaced."""
    logger = logging.getLogger("transformers")
    before = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(before)


def load_adapted(folder: str | Path) -> tuple[Task, Any]:
    """The model of an adapter's folder, in evaluation mode.

    Raises FileError if the adapter is broken or does not fit the encoder.
    """
    weights, kind = read(folder)
    if kind not in TASKS:
        raise FileError(
            f"the adapter in {folder} is for {kind!r}; expected {CLASSIFIER} or {MASKED}. "
            "Train it again."
        )
    with import_torch("the MiniLM models").random.fork_rng(devices=[]):  # the head is random
        model, _ = build(kind)
    try:
        merge(model, weights)
    except (KeyError, RuntimeError) as error:
        raise FileError(
            f"the adapter in {folder} does not fit the encoder ({error}); expected one trained on "
            "it. Train it again."
        ) from error
    model.name_or_path = str(folder)
    model.train(False)
    return TASKS[kind], model
