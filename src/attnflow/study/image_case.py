"""ImageCase: an image and the class that a vision model predicts for it; its patches are ranked.

The counterpart of `case` and `masked_model` for images.
"""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnflow.arrays import to_numpy
from attnflow.errors import InputError, check_choice
from attnflow.graph import AttentionGraph
from attnflow.models.prediction import Contrast, resolve_contrast
from attnflow.models.vision import EncodedImage, LoadedImageModel, encode_image, open_image
from attnflow.optional import import_optional
from attnflow.study.case import Question, Step, log_chance

Bools = NDArray[np.bool_]
Floats = NDArray[np.float64]

REPLACEMENTS = ("mean", "blur")
BLUR = 4  # of the image: pixels are averages over squares of a quarter of it


@dataclass(frozen=True, eq=False)
class ImageCase:
    """An image whose prediction is explained.

    loaded: the model. image: the Pillow image. pixels: [1, channels, height, width].
    steps: one prediction. units: the token of each patch. labels: such as "patch 2,3".
    label, probability: the target. shape: rows and columns of patches.
    """

    loaded: LoadedImageModel
    image: Any
    pixels: Any
    steps: tuple[Step, ...]
    units: tuple[tuple[int, ...], ...]
    labels: tuple[str, ...]
    label: str
    probability: float
    shape: tuple[int, int]
    evidence: None = None

    @property
    def positions(self) -> list[int]:
        """The explained position."""
        return [step.position for step in self.steps]

    def merge(self, scores: Any) -> Floats:
        """Select the scores of patches from those of all tokens."""
        values = np.asarray(scores, dtype=np.float64)
        return np.asarray([values[token] for (token,) in self.units])

    def merge_pixels(self, values: Any) -> Floats:
        """Sum values [height, width] over the pixels of each patch."""
        rows, columns = self.shape
        array = np.asarray(values, dtype=np.float64)
        height, width = array.shape[0] // rows, array.shape[1] // columns
        cut = array[: rows * height, : columns * width]
        return np.asarray(cut.reshape(rows, height, columns, width).sum((1, 3)).ravel())

    def capture(self, edges: Any, heads: Any) -> AttentionGraph:
        """Run the model, and return its graph with NumPy arrays."""
        from attnflow.explainer import explain_image

        step = self.steps[0]
        explanation = explain_image(
            self.image,
            self.loaded,
            target=step.contrast.target,
            against=step.contrast.against,
            residual_weight=edges.residual_weight,
            heads=heads,
            edges=edges.name,
            keep_heads=False,
        )
        graph = explanation.graph
        return replace(graph, weights=to_numpy(graph.weights), attention=to_numpy(graph.attention))

    def score(self, pixels: Any) -> Any:
        """Return the explained score [images] of pixel values; it can be differentiated."""
        return self.steps[0].contrast.score(self.loaded.model(pixel_values=pixels).logits)


def make_image_case(loaded: LoadedImageModel, path: Any, question: Question) -> ImageCase:
    """Run the model on an image, and return the case.

    path: of the image, or the image. question: a target and a contrast; the rest is for texts.
    Raises InputError for a model that is no classifier, FileError for an unreadable image.
    """
    from attnflow.explainer import explain_image

    name, image = open_image(path)
    encoded: EncodedImage = encode_image(loaded, image, name)
    explanation = explain_image(image, loaded, keep_heads=False)
    if explanation.prediction is None or explanation.image is None:
        raise InputError(
            f"{loaded.name} predicts nothing", expected="a classifier", fix="Use another model."
        )
    grid = explanation.image
    tokens = range(grid.first, grid.first + grid.rows * grid.columns)
    pixels = _to_model(loaded, encoded.inputs["pixel_values"])
    torch = import_optional("torch", "running a model")
    with torch.no_grad():
        [logits] = loaded.model(pixel_values=pixels).logits
    contrast: Contrast = resolve_contrast(
        loaded.predicting, logits, question.target, question.against
    )
    return ImageCase(
        loaded=loaded,
        image=image,
        pixels=pixels,
        steps=(Step(explanation.position, contrast),),
        units=tuple((token,) for token in tokens),
        labels=tuple(explanation.tokens[token] for token in tokens),
        label=str(loaded.model.config.id2label.get(contrast.target, contrast.target)),
        probability=float(log_chance(loaded.predicting, logits, contrast).exp()),
        shape=(grid.rows, grid.columns),
    )


class MaskedImage:
    """A vision model that can be asked about an image without some of its patches.

    replacement: "mean", the mean color of the image, or "blur", the image out of focus.
    batch_tokens: the maximum number of patches in a batch. draws, seed: for the soft metrics,
    which replace pixels by chance.
    """

    def __init__(
        self, case: ImageCase, replacement: str, *, batch_tokens: int, draws: int, seed: int
    ) -> None:
        check_choice("replacement", replacement, REPLACEMENTS)
        self.replacement = replacement
        self.case, self.draws, self.seed = case, draws, seed
        self.batch = max(1, batch_tokens // len(case.units))
        self.other = _mean_color(case.pixels) if replacement == "mean" else _blur(case.pixels)
        self.runs = 0
        self._known: dict[bytes, float] = {}

    @property
    def n(self) -> int:
        """The number of patches."""
        return len(self.case.units)

    def log_probability(self, removed: Bools) -> Floats:
        """Return log p [sets] of the prediction without some patches. removed: [sets, patches]."""
        sets = np.ascontiguousarray(removed, dtype=bool)
        keys = [row.tobytes() for row in sets]
        new = {key: i for i, key in enumerate(keys) if key not in self._known}
        rows = sets[list(new.values())].reshape(-1, *self.case.shape)
        values = [
            value
            for start in range(0, len(rows), self.batch)
            for value in self._run(self._spread(rows[start : start + self.batch]))
        ]
        self._known.update(zip(new, values, strict=True))
        return np.asarray([self._known[key] for key in keys])

    def soft_probability(self, kept: Floats) -> Floats:
        """Return p [rows] if each pixel of a patch is kept by chance. kept: [rows, patches]."""
        torch = import_optional("torch", "running a model")
        values = []
        for row in kept:
            generator = torch.Generator().manual_seed(self.seed)
            chances = self._spread(row.reshape(1, *self.case.shape)).cpu()
            draws = torch.rand((self.draws, *chances.shape[1:]), generator=generator)
            values.append(
                float(np.mean(np.exp(self._run((draws >= chances).to(self.other.device)))))
            )
        return np.asarray(values)

    def _spread(self, values: Any) -> Any:
        """Spread values [rows, patch rows, patch columns] over pixels, [rows, 1, height, width]."""
        torch = import_optional("torch", "running a model")
        tensor = torch.as_tensor(np.ascontiguousarray(values), device=self.other.device)
        height, width = self.case.pixels.shape[-2:]
        rows, columns = self.case.shape
        tensor = tensor.repeat_interleave(height // rows, 1).repeat_interleave(width // columns, 2)
        rest = (0, width - tensor.shape[2], 0, height - tensor.shape[1])
        return torch.nn.functional.pad(tensor[:, None], rest)

    def _run(self, mask: Any) -> list[float]:
        """Return log p of the image with some pixels replaced. mask: [rows, 1, height, width]."""
        torch = import_optional("torch", "running a model")
        case = self.case
        with torch.no_grad():
            pixels = torch.where(mask.bool(), self.other, case.pixels)
            logits = case.loaded.model(pixel_values=pixels).logits
            values = log_chance(case.loaded.predicting, logits, case.steps[0].contrast)
        self.runs += len(mask)
        return [float(value) for value in values]


def _to_model(loaded: LoadedImageModel, pixels: Any) -> Any:
    weights = next(loaded.model.parameters())
    return pixels.to(weights.device, weights.dtype)


def _mean_color(pixels: Any) -> Any:
    """Return the mean color of the image at every pixel."""
    return pixels.mean((2, 3), keepdim=True).expand_as(pixels)


def _blur(pixels: Any) -> Any:
    """Return the image averaged over large squares, and enlarged again."""
    torch = import_optional("torch", "running a model")
    small = torch.nn.functional.adaptive_avg_pool2d(pixels, BLUR)
    return torch.nn.functional.interpolate(
        small, size=pixels.shape[-2:], mode="bilinear", align_corners=False
    )
