"""Train a tiny ViT on handwritten digits, and draw which patches reach its [CLS] token.

The digits are those of scikit-learn (1,797 images of 8 x 8 pixels), enlarged to 32 x 32 and split
into 8 x 8 patches of 4 x 4 pixels. It takes about a minute on one core, downloads nothing, and
needs scikit-learn and `attnflow[figures,images]`:

    python examples/digits_vit.py --out digits
"""

import argparse
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from sklearn.datasets import load_digits  # type: ignore[import-untyped]
from transformers import ViTConfig, ViTForImageClassification
from transformers.models.vit.image_processing_pil_vit import ViTImageProcessorPil

import attnflow
from attnflow.figures import draw_overlay, save

SIDE = 32
HELD_OUT = 297
BATCH = 50


def make_model() -> Any:
    config = ViTConfig(
        image_size=SIDE,
        patch_size=4,
        num_channels=3,
        hidden_size=64,
        num_hidden_layers=4,
        num_attention_heads=4,
        intermediate_size=128,
        initializer_range=0.08,  # larger than usual, because the model is so narrow
        id2label={i: str(i) for i in range(10)},
        label2id={str(i): i for i in range(10)},
    )
    return ViTForImageClassification(config)


def make_pictures() -> tuple[list[Any], Any]:
    """The digits as Pillow images, and their classes, in the order of the data set."""
    digits = load_digits()
    pictures = [
        Image.fromarray(np.uint8(255 * image / 16)).resize((SIDE, SIDE), Image.Resampling.BICUBIC)
        for image in digits.images
    ]
    return [picture.convert("RGB") for picture in pictures], torch.as_tensor(digits.target)


def train(model: Any, pixels: Any, classes: Any, epochs: int) -> None:
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3, weight_decay=0.05)
    steps = epochs * -(-len(pixels) // BATCH)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 2e-3, total_steps=steps)
    for epoch in range(epochs):
        total = 0.0
        for batch in torch.split(torch.randperm(len(pixels)), BATCH):
            loss = model(pixel_values=pixels[batch], labels=classes[batch]).loss
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
            total += float(loss) * len(batch)
        print(f"epoch {epoch + 1} of {epochs}: loss {total / len(pixels):.3f}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description="Train a tiny ViT and draw its attention.")
    parser.add_argument("--out", type=Path, default=Path("digits"))
    parser.add_argument("--epochs", type=int, default=20)
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(1)  # faster for a model this small, also next to other work
    torch.manual_seed(0)
    pictures, classes = make_pictures()
    processor = ViTImageProcessorPil(size={"height": SIDE, "width": SIDE})
    pixels = processor(images=pictures, return_tensors="pt")["pixel_values"]
    model = make_model()
    train(model.train(), pixels[:-HELD_OUT], classes[:-HELD_OUT], options.epochs)
    model.eval()
    with torch.no_grad():
        correct = model(pixel_values=pixels[-HELD_OUT:]).logits.argmax(-1) == classes[-HELD_OUT:]
    print(f"accuracy on {HELD_OUT} held-out digits: {float(correct.float().mean()):.3f}")
    model.save_pretrained(options.out)
    processor.save_pretrained(options.out)

    shown = next(i for i in range(len(pictures) - HELD_OUT, len(pictures)) if classes[i] == 4)
    pictures[shown].save(options.out / "digit.png")
    explanation = attnflow.explain_image(pictures[shown], str(options.out))
    print(explanation)
    drawn = {
        "vit-digits.png": draw_overlay(explanation),
        "vit-digits-dark.png": draw_overlay(explanation, dark=True),
        "vit-digits-patch.png": draw_overlay(
            explanation, position="patch 4,4", methods=["rollout"], width=3.3
        ),
    }
    for name, figure in drawn.items():
        save(figure, options.out / name, dpi=160)
        print(f"wrote {options.out / name}")


if __name__ == "__main__":
    main()
