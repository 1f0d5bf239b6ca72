"""A small random vision model of 32 x 32 pixels in 4 x 4 patches, and pictures for it."""

from typing import Any

import numpy as np
import torch
import transformers
from PIL import Image

SIDE, PATCH = 32, 8  # pixels
GRID = SIDE // PATCH


def save_vit(folder: Any) -> str:
    """A checkpoint in a folder, with its image processor."""
    torch.manual_seed(0)
    config: Any = transformers.ViTConfig(
        hidden_size=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=16,
        image_size=SIDE,
        patch_size=PATCH,
        initializer_range=0.3,
        id2label={0: "cat", 1: "dog"},
        label2id={"cat": 0, "dog": 1},
    )
    model: Any = transformers.ViTForImageClassification(config)
    model.eval().save_pretrained(folder)
    module: Any = transformers.models.vit.image_processing_pil_vit
    processor = module.ViTImageProcessorPil(size={"height": SIDE, "width": SIDE})
    processor.save_pretrained(folder)
    return str(folder)


def make_picture(seed: int = 0) -> Image.Image:
    """A picture of random pixels, of the size of the model."""
    pixels = np.random.default_rng(seed).integers(0, 256, (SIDE, SIDE, 3), dtype=np.uint8)
    return Image.fromarray(pixels)
