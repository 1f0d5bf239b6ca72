"""A classifier or a masked language model: the encoder of the package, a new head, an adapter.

Adapters: low-rank additions to the matrices of an encoder, and the weights of a new head.

Every linear map of the encoder's layers gets W + B A, with B and A thin; the encoder itself stays
as it is (Hu et al., "LoRA", 2022). Only B, A and what the encoder never had are stored.
"""

import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor, nn
from torch.nn.utils import parametrize

from attnflow.arrays import import_torch
from attnflow.errors import FileError
from attnflow.models.builtin.folders import WEIGHTS, find_encoder
from attnflow.models.loading import Task, import_transformers

DOWN, UP = ".down", ".up"  # A and B: what the name of a map is followed by
Weights = dict[str, Tensor]


class LowRank(nn.Module):
    """W + B A, of which B and A are learnt; B starts at zero, so that nothing changes at first."""

    def __init__(self, rows: int, columns: int, rank: int) -> None:
        super().__init__()
        self.down = nn.Parameter(torch.randn(rank, columns) / columns**0.5)
        self.up = nn.Parameter(torch.zeros(rows, rank))

    def forward(self, weight: Tensor) -> Tensor:
        """The changed weight."""
        return weight + self.up @ self.down


def linear_maps(model: nn.Module) -> dict[str, nn.Linear]:
    """The linear maps of the encoder's layers, by name."""
    return {
        name: part
        for name, part in model.named_modules()
        if isinstance(part, nn.Linear) and ".encoder.layer." in f".{name}"
    }


def attach(model: nn.Module, *, rank: int, new: set[str]) -> None:
    """Freeze all but the parameters named in `new`, and give each linear map a low-rank addition.

    Random numbers come from torch's generator: seed it before.
    """
    for name, weight in model.named_parameters():
        weight.requires_grad_(name in new)
    for part in linear_maps(model).values():
        addition = LowRank(part.out_features, part.in_features, rank).to(part.weight.device)
        parametrize.register_parametrization(part, "weight", addition)


def extract(model: nn.Module, *, new: set[str]) -> Weights:
    """The additions and the new parameters, in half precision."""
    weights = {name: w for name, w in model.named_parameters() if name in new}
    for name, part in linear_maps(model).items():
        addition: Any = part.parametrizations["weight"][0]  # type: ignore[index]
        weights |= {name + DOWN: addition.down, name + UP: addition.up}
    return {name: weight.detach().cpu().half().contiguous() for name, weight in weights.items()}


def merge(model: nn.Module, weights: Mapping[str, Tensor]) -> None:
    """Add the additions to the maps of a model that has none yet, and set the new parameters.

    Raises KeyError or RuntimeError if the weights are those of another model.
    """
    maps, own = linear_maps(model), dict(model.named_parameters())
    with torch.no_grad():
        for name, weight in weights.items():
            if name.endswith(UP):
                place = name.removesuffix(UP)
                maps[place].weight += weight.float() @ weights[place + DOWN].float()
            elif not name.endswith(DOWN):
                own[name].copy_(weight)


def write(folder: str | Path, weights: Weights, *, kind: str) -> None:
    """Write an adapter. kind: the class of transformers that it makes of the encoder."""
    root = Path(folder)
    root.mkdir(parents=True, exist_ok=True)
    (root / WEIGHTS).write_bytes(save(weights, metadata={"kind": kind}))


def read(folder: str | Path) -> tuple[Weights, str]:
    """The weights of an adapter, and the class that it makes of the encoder.

    Raises FileError if there is none.
    """
    path = Path(folder) / WEIGHTS
    try:
        with safe_open(path, framework="pt") as file:
            return {name: file.get_tensor(name) for name in file.keys()}, file.metadata()["kind"]  # noqa: SIM118
    except (KeyError, OSError, SafetensorError, TypeError) as error:
        raise FileError(
            f"no adapter can be read from {path} ({error})",
            expected="a file that `attnflow train` wrote",
            fix="Train it again, or install attnflow again.",
        ) from error


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
            f"the adapter in {folder} is for {kind!r}",
            expected=f"{CLASSIFIER} or {MASKED}",
            fix="Train it again.",
        )
    with import_torch("the MiniLM models").random.fork_rng(devices=[]):  # the head is random
        model, _ = build(kind)
    try:
        merge(model, weights)
    except (KeyError, RuntimeError) as error:
        raise FileError(
            f"the adapter in {folder} does not fit the encoder ({error})",
            expected="one trained on it",
            fix="Train it again.",
        ) from error
    model.name_or_path = str(folder)
    model.train(False)
    return TASKS[kind], model
