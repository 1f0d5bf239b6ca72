"""Verb-number models in folders: written small, and read again.

In a folder are config.json, the tokenizer, and weights.safetensors. Weights are in half precision;
those of matrices, which are nearly all of them, are whole numbers from -127 to 127, with a scale
for each row.
"""

from collections.abc import Mapping
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save
from torch import Tensor

from attnflow.errors import FileError
from attnflow.verb_number.model import VerbNumberConfig, VerbNumberModel
from attnflow.verb_number.tokenizer import make_tokenizer

WEIGHTS = "weights.safetensors"
SCALE = ".scale"  # what the name of a matrix's scales ends in


def save_verb_number(
    model: VerbNumberModel, vocabulary: Mapping[str, int], folder: str | Path
) -> None:
    """Write a model and its tokenizer into a folder, from which `attnflow.load_model` reads it."""
    root = Path(folder)
    root.mkdir(parents=True, exist_ok=True)
    config = model.config
    config.architectures = [type(model).__name__]
    config.save_pretrained(root)
    tokenizer = make_tokenizer(
        vocabulary, max_length=config.n_positions, causal=bool(config.is_decoder)
    )
    tokenizer.save_pretrained(root)
    (root / WEIGHTS).write_bytes(save(shrink(model.state_dict())))


def load_verb_number(folder: str | Path) -> VerbNumberModel:
    """Read a model, in evaluation mode and single precision.

    Raises FileError if a file is missing or broken.
    """
    root = Path(folder)
    try:
        config = VerbNumberConfig.from_pretrained(root)
        weights = restore(load_file(root / WEIGHTS))
        with torch.device("meta"):  # no random numbers are drawn that are not used
            model = VerbNumberModel(config)
        model.load_state_dict(weights, assign=True)
    except (KeyError, OSError, RuntimeError, SafetensorError, TypeError, ValueError) as error:
        raise FileError(
            f"no verb-number model can be read from {root} ({str(error).splitlines()[0]}); "
            f"expected config.json and {WEIGHTS}. Train it again, or install attnflow again."
        ) from error
    model.name_or_path = str(root)
    model.train(False)
    return model


def shrink(weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Weights in half precision, and matrices as whole numbers with scales [rows, 1].

    A weight of a matrix changes by at most 1/254 of the largest in its row.
    """
    small = {}
    for name, part in weights.items():
        if part.dim() < 2:
            small[name] = part.half()
            continue
        matrix = part.float()
        scales = (matrix.abs().amax(-1, keepdim=True) / 127).clamp(min=2**-24)
        small[name] = (matrix / scales).round().to(torch.int8)
        small[name + SCALE] = scales
    return small


def restore(small: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The weights in single precision."""
    weights = {name: part.float() for name, part in small.items() if not name.endswith(SCALE)}
    for name in [name for name, part in weights.items() if part.dim() > 1]:
        weights[name] *= small[name + SCALE]
    return weights
