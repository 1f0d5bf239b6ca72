"""The MiniLM models: an encoder from a package of its own, a new head, and an adapter.

An adapter adds a low-rank matrix B A to each linear map W of the encoder's layers (Hu et al.,
"LoRA", 2022). A folder stores only B, A and the weights of the head. `attnflow train` trains them.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeAlias

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor, nn
from torch.nn.utils import parametrize

from attnflow.errors import FileError
from attnflow.models.builtin import ADAPTER_FILE, find_encoder
from attnflow.models.checkpoint import Task, errors_only
from attnflow.optional import import_optional
from attnflow.storage import write_atomic

# The classes of transformers that adapters are made for.
CLASSIFIER, MASKED_LM = "BertForSequenceClassification", "BertForMaskedLM"
DISTILBERT_CLASSIFIER = "DistilBertForSequenceClassification"
TASKS: dict[str, Task] = {CLASSIFIER: "classifier", MASKED_LM: "masked_lm"}
LABELS = ("negative", "positive")
DOWN, UP = ".down", ".up"  # suffixes of the names of A and B

Weights: TypeAlias = dict[str, Tensor]


def load_minilm(folder: str | Path) -> tuple[Task, Any]:
    """Load the model of an adapter's folder, in evaluation mode.

    Returns its task and the model, with the adapter merged into its weights.
    Raises FileError if the adapter is broken or does not fit the encoder.
    """
    weights, class_name = read_adapter(folder)
    if class_name not in TASKS:
        raise FileError(
            f"the adapter in {folder} is for {class_name!r}",
            expected=f"{CLASSIFIER} or {MASKED_LM}",
            fix="Train it again.",
        )
    with torch.random.fork_rng(devices=[]):  # the new head draws random numbers
        model, _ = build_model(class_name)
    try:
        merge_adapter(model, weights)
    except (KeyError, RuntimeError) as error:
        raise FileError(
            f"the adapter in {folder} does not fit the encoder ({error})",
            expected="an adapter that was trained on this encoder",
            fix="Train it again.",
        ) from error
    model.name_or_path = str(folder)
    model.eval()
    return TASKS[class_name], model


def build_model(class_name: str, encoder: str | Path | None = None) -> tuple[Any, set[str]]:
    """Put a random head on the encoder.

    class_name: one of the classes above. encoder: its folder. Default: that of the package.
    Returns the model and the names of its new parameters, which must be trained.
    """
    transformers = import_optional("transformers", "a MiniLM model")
    options: dict[str, Any] = {}
    if class_name != MASKED_LM:
        names = dict(enumerate(LABELS))
        options = {"id2label": names, "label2id": {name: i for i, name in names.items()}}
    with errors_only():  # the head is random
        model, report = getattr(transformers, class_name).from_pretrained(
            str(encoder or find_encoder()),
            use_safetensors=True,
            output_loading_info=True,
            dtype="float32",
            **options,
        )
    new = set(report["missing_keys"])
    if class_name == CLASSIFIER:  # sentence embeddings do not use the encoder's own pooler
        new |= {"bert.pooler.dense.weight", "bert.pooler.dense.bias"}
    named = {name for name, _ in model.named_parameters()}  # has tied weights once
    return model, new & named


class LowRank(nn.Module):
    """A trainable addition: W becomes W + B A. B starts at zero."""

    def __init__(self, rows: int, columns: int, rank: int) -> None:
        super().__init__()
        self.down = nn.Parameter(torch.randn(rank, columns) / columns**0.5)
        self.up = nn.Parameter(torch.zeros(rows, rank))

    def forward(self, weight: Tensor) -> Tensor:
        """Return W + B A for W [rows, columns]."""
        return weight + self.up @ self.down


def linear_maps(model: nn.Module) -> dict[str, nn.Linear]:
    """Return the linear maps of the encoder's layers by name."""
    return {
        name: module
        for name, module in model.named_modules()
        if isinstance(module, nn.Linear) and ".layer." in name
    }


def attach_adapter(model: nn.Module, *, rank: int, new: set[str]) -> None:
    """Add a trainable low-rank matrix to each linear map, and freeze the weights of the encoder.

    new: the names of other parameters to train. Random numbers come from torch's generator.
    """
    for name, weight in model.named_parameters():
        weight.requires_grad_(name in new)
    for module in linear_maps(model).values():
        addition = LowRank(module.out_features, module.in_features, rank)
        parametrize.register_parametrization(module, "weight", addition.to(module.weight.device))


def fold_adapter(model: nn.Module) -> None:
    """Replace each W and its low-rank matrix by their sum, as an ordinary weight."""
    for module in linear_maps(model).values():
        parametrize.remove_parametrizations(module, "weight", leave_parametrized=True)


def extract_adapter(model: nn.Module, *, new: set[str]) -> Weights:
    """Return the low-rank matrices and the new parameters as float16."""
    weights = {name: w for name, w in model.named_parameters() if name in new}
    for name, module in linear_maps(model).items():
        addition: Any = module.parametrizations["weight"][0]  # type: ignore[index]
        weights |= {name + DOWN: addition.down, name + UP: addition.up}
    return {name: weight.detach().cpu().half().contiguous() for name, weight in weights.items()}


def merge_adapter(model: nn.Module, weights: Mapping[str, Tensor]) -> None:
    """Add B A to the linear maps of a model without an adapter, and set the new parameters.

    Raises KeyError or RuntimeError if the weights belong to another model.
    """
    maps, parameters = linear_maps(model), dict(model.named_parameters())
    with torch.no_grad():
        for name, weight in weights.items():
            if name.endswith(UP):
                target = name.removesuffix(UP)
                maps[target].weight += weight.float() @ weights[target + DOWN].float()
            elif not name.endswith(DOWN):
                parameters[name].copy_(weight)


def write_adapter(folder: str | Path, weights: Weights, *, class_name: str) -> None:
    """Write an adapter. class_name: the class of transformers to load the encoder with."""
    root = Path(folder)
    root.mkdir(parents=True, exist_ok=True)
    contents = save(weights, metadata={"kind": class_name})
    write_atomic(root / ADAPTER_FILE, lambda file: file.write(contents))


def read_adapter(folder: str | Path) -> tuple[Weights, str]:
    """Read the weights of an adapter, and the class of transformers that it belongs to.

    Raises FileError if the file is missing or broken.
    """
    path = Path(folder) / ADAPTER_FILE
    try:
        with safe_open(path, framework="pt") as file:
            return {name: file.get_tensor(name) for name in file.keys()}, file.metadata()["kind"]  # noqa: SIM118
    except (KeyError, OSError, SafetensorError, TypeError) as error:
        raise FileError(
            f"no adapter can be read from {path} ({error})",
            expected="a file that `attnflow train` wrote",
            fix="Train it again, or install attnflow again.",
        ) from error
