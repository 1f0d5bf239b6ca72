"""Vision models: loading a model with its image processor, and turning images into tensors.

The rules for checkpoints are those of `attnflow.models.checkpoint`: weights from safetensors only,
and no code from a checkpoint. `attnflow.explainer.explain_image` computes the explanation.
"""

import io
from collections.abc import Mapping
from dataclasses import dataclass
from os import PathLike
from os.path import isfile
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from attnflow.arrays import shape_text, to_numpy
from attnflow.errors import FileError, InputError, first_line, quote
from attnflow.explanation import ImageGrid
from attnflow.models.builtin import find_adapter, find_verb_number
from attnflow.models.checkpoint import (
    GGUF,
    Task,
    TaskRow,
    check_name,
    find_task,
    is_adapter,
    load_checkpoint,
    read_config,
)
from attnflow.models.hub import hub_access
from attnflow.models.loading import LoadedModel, find_source
from attnflow.models.wrappers import unwrap
from attnflow.optional import import_optional

IMAGE_TASKS: tuple[TaskRow, ...] = (
    (
        "classifier",
        "MODEL_FOR_IMAGE_CLASSIFICATION_MAPPING_NAMES",
        "AutoModelForImageClassification",
    ),
)
PROCESSOR_FILES = ("preprocessor_config.json", "processor_config.json")

Pixels: TypeAlias = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class LoadedImageModel:
    """A vision model with its image processor, ready to be explained.

    model: called with pixel_values. processor: turns images into pixel_values.
    task: "classifier", or "encoder", which predicts nothing. name: a hub name, a folder or a class.
    """

    model: Any
    processor: Any
    task: Task
    name: str

    @property
    def config(self) -> Any:
        """The configuration of the vision part of the model."""
        config: Any = getattr(self.model, "config", None)
        return getattr(config, "vision_config", None) or config

    @property
    def predicting(self) -> LoadedModel:
        """The model in the form that `attnflow.models.prediction` takes."""
        return LoadedModel(self.model, self.processor, self.task, self.name, None)


def load_image_model(model: Any, processor: Any = None) -> LoadedImageModel:
    """Load a vision model and its image processor, and determine the model's task.

    model: a transformers model, a folder, a hub name, or a LoadedImageModel, which is returned as
    it is. A model object stays in its mode and on its device.
    processor: an object, a folder or a name. Default: the processor saved with the model.
    Raises FileError for a checkpoint that is missing, has no safetensors weights, lacks some of
    them, or needs its own code; InputError if there is no processor.
    """
    if isinstance(model, LoadedImageModel):
        return model
    if isinstance(model, str | Path):
        name = source = str(model)
        _check_not_text_model(name)
        import_optional("transformers", "loading a model")
        task, loaded = load_checkpoint(name, IMAGE_TASKS)
    else:
        import_optional("transformers", "loading a model")
        source = find_source(model, "a vision model of transformers, a folder or a hub name")
        loaded = unwrap(model)
        name = source or type(loaded).__name__
        task = find_task((cls.__name__ for cls in type(loaded).__mro__), IMAGE_TASKS)
    _check_single_tower(name, loaded)
    if processor is None and not source:
        raise InputError(
            f"no image processor was given, and the {name} was not loaded from a folder or the hub",
            expected="an image processor with such a model",
            fix="Pass it as processor=...",
        )
    if processor is None or isinstance(processor, str | Path):
        processor = load_processor(str(processor or source))
    return LoadedImageModel(loaded, processor, task, name)


def is_image_model(name: str) -> bool:
    """Whether a model classifies images, given its folder or name; only its config is read.

    Raises FileError if there is no such model.
    """
    check_name(name)
    is_text_model = find_verb_number(name) is not None or find_adapter(name) is not None
    if is_text_model or name.lower().endswith(GGUF) or is_adapter(name):
        return False
    import_optional("transformers", "reading the configuration of a model")
    classes = read_config(name).get("architectures") or []
    return find_task(classes, IMAGE_TASKS) == "classifier"


def _check_not_text_model(name: str) -> None:
    """Raise InputError for the built-in models and those trained like them."""
    if find_verb_number(name) is not None or find_adapter(name) is not None:
        raise InputError(
            f"{name} is a text model",
            expected="a vision model",
            fix="For texts, use explain(text, model) or `attnflow explain`.",
        )


def _check_single_tower(name: str, model: Any) -> None:
    config = getattr(model, "config", None)
    if hasattr(config, "text_config") and callable(getattr(model, "get_text_features", None)):
        raise InputError(
            f"{name} is a model of images and texts",
            expected="a model of images only",
            fix="Pass its vision part, such as CLIPVisionModel.from_pretrained(...), with "
            "processor=...",
        )


def load_processor(name: str) -> Any:
    """Load an image processor from a folder or by its hub name.

    Raises FileError if there is none.
    """
    transformers = import_optional("transformers", "loading an image processor")
    folder = Path(name)
    if folder.is_dir() and not any((folder / file).is_file() for file in PROCESSOR_FILES):
        raise FileError(
            f"the folder {name} has no image processor",
            expected="preprocessor_config.json",
            fix="Write it there with processor.save_pretrained, or pass processor=...",
        )
    try:
        # The "pil" backend gives the same pixels with and without torchvision.
        with hub_access(name):
            return transformers.AutoImageProcessor.from_pretrained(
                name, backend="pil", trust_remote_code=False
            )
    except Exception as error:  # transformers raises many kinds of errors
        raise FileError(
            f"no image processor can be loaded from {name} ({first_line(error)})",
            expected="a folder or hub name with an image processor",
            fix="Pass another as processor=...",
        ) from error


@dataclass(frozen=True, eq=False)
class EncodedImage:
    """An image as the model sees it.

    name: the name of its file, or "image". inputs: pixel_values [1, channels, height, width].
    png, width, height: the image as the model sees it, to display. rows, columns: of patches.
    """

    name: str
    inputs: Mapping[str, Any]
    png: bytes
    rows: int
    columns: int
    width: int
    height: int

    @property
    def n_patches(self) -> int:
        """The number of patches."""
        return self.rows * self.columns

    def grid(self, first: int) -> ImageGrid:
        """Return the image with its patches. first: the index of the first patch's token."""
        return ImageGrid(self.png, self.rows, self.columns, first, self.width, self.height)


def encode_image(loaded: LoadedImageModel, image: Any, name: str) -> EncodedImage:
    """Turn an image into tensors, and these back into the image that the model sees.

    image, name: as returned by `open_image`.
    Raises InputError if the model does not divide images into a grid of patches.
    """
    one_channel = getattr(loaded.config, "num_channels", 3) == 1
    image = image.convert("L") if one_channel else to_rgb(image)
    values: Any = np.asarray(image)[..., None] if one_channel else image
    layout = {"input_data_format": "channels_last"} if one_channel else {}
    pixels = loaded.processor(images=values, return_tensors="pt", **layout)["pixel_values"]
    if pixels.ndim != 4 or pixels.shape[0] != 1:
        raise InputError(
            f"the image processor of {loaded.name} returns pixel_values of shape "
            f"{shape_text(pixels)}",
            expected="[1, channels, height, width]",
            fix="Models that split an image beforehand are not supported.",
        )
    height, width = int(pixels.shape[2]), int(pixels.shape[3])
    patch_height, patch_width = _patch_size(loaded)
    visible = unnormalize(loaded.processor, to_numpy(pixels)[0].astype(np.float64))
    return EncodedImage(
        name=name,
        inputs={"pixel_values": pixels},
        png=to_png(visible),
        rows=height // patch_height,
        columns=width // patch_width,
        width=width,
        height=height,
    )


def open_image(image: Any) -> tuple[str, Any]:
    """Return a name and a Pillow image, rotated as its EXIF data says.

    image: a Pillow image, the path of a file, or an array [height, width] or [height, width,
    channels] of integers from 0 to 255 or floats from 0 to 1.
    Raises InputError for other types, FileError for a file that cannot be read.
    """
    pillow = _pillow("Image")
    rotate = _pillow("ImageOps").exif_transpose
    if isinstance(image, pillow.Image):
        return Path(str(getattr(image, "filename", "") or "image")).name, rotate(image)
    if not isinstance(image, str | PathLike):
        return "image", pillow.fromarray(_to_bytes(image))
    path = Path(image)
    if not isfile(path):  # noqa: PTH113 - Path raises if the name is too long
        raise FileError(
            f"there is no file {path}",
            expected="an image file, such as PNG or JPEG",
            fix="Check the path.",
        )
    try:
        with pillow.open(path) as opened:
            opened.load()
            return path.name, rotate(opened)
    except (OSError, ValueError, SyntaxError, pillow.DecompressionBombError) as error:
        raise FileError(
            f"{path} cannot be read as an image ({error})",
            expected="an image file, such as PNG or JPEG",
            fix="Check the file, or convert it.",
        ) from error


def _pillow(module: str) -> Any:
    return import_optional(f"PIL.{module}", "explaining images")


def _to_bytes(image: Any) -> NDArray[np.uint8]:
    """Convert an array to [height, width] or [height, width, channels] of bytes."""
    try:
        array = to_numpy(image) if hasattr(image, "shape") else np.asarray(image)
    except Exception as error:  # arrays of other packages raise anything
        raise InputError(
            f"the image is {quote(image)}",
            expected="a Pillow image, the path of a file, or numbers [height, width]",
            fix="Convert the image to one of these.",
        ) from error
    if array.ndim == 3 and array.shape[0] in (1, 3) and array.shape[2] not in (1, 3, 4):
        array = np.moveaxis(array, 0, -1)  # channels first, as in torch
    if array.ndim == 3 and array.shape[2] == 1:
        array = array[..., 0]
    is_image = array.ndim == 2 or (array.ndim == 3 and array.shape[2] in (3, 4))
    if not is_image or 0 in array.shape or array.dtype.kind not in "fiu":
        raise InputError(
            f"the image is a {type(image).__name__} of shape {list(array.shape)} and type "
            f"{array.dtype}",
            expected="a Pillow image, the path of a file, or numbers [height, width] or "
            "[height, width, channels]",
            fix="Convert the image to one of these.",
        )
    least, most = float(array.min()), float(array.max())
    limit = 1.0 if array.dtype.kind == "f" else 255.0
    if not (least >= 0 and most <= limit):
        raise InputError(
            f"the image has values from {least:g} to {most:g}",
            expected="integers from 0 to 255, or floats from 0 to 1",
            fix="Rescale the image.",
        )
    scaled = array * 255.0 if array.dtype.kind == "f" else array
    return np.asarray(np.rint(scaled), dtype=np.uint8)


def to_rgb(image: Any) -> Any:
    """Convert a Pillow image to RGB. Transparent parts become white."""
    if "A" not in image.getbands() and "transparency" not in image.info:
        return image.convert("RGB")
    image = image.convert("RGBA")
    background = _pillow("Image").new("RGBA", image.size, "white")
    background.alpha_composite(image)
    return background.convert("RGB")


def _patch_size(loaded: LoadedImageModel) -> tuple[int, int]:
    """The height and width of a patch in pixels."""
    size = getattr(loaded.config, "patch_size", None)
    if isinstance(size, int):
        return size, size
    if isinstance(size, list | tuple) and len(size) == 2:
        return int(size[0]), int(size[1])
    raise InputError(
        f"the configuration of {loaded.name} has patch_size {size}",
        expected="a model with patches of one size, such as ViT, DeiT, BEiT or DINOv2",
        fix="Use such a model.",
    )


def unnormalize(processor: Any, values: Pixels) -> Pixels:
    """Undo what the processor did to the colors.

    values: [channels, height, width]. Returns pixels [height, width, channels] from 0 to 1.
    """
    pixels = np.moveaxis(values, 0, -1)
    if getattr(processor, "do_normalize", False):
        mean, deviation = (
            np.asarray(getattr(processor, name), dtype=np.float64).reshape(-1)
            for name in ("image_mean", "image_std")
        )
        pixels = pixels * deviation + mean
    if not getattr(processor, "do_rescale", True):
        pixels = pixels / 255
    least, most = pixels.min(), pixels.max()
    if least < -0.02 or most > 1.02:  # the processor normalizes in another way: stretch the range
        pixels = (pixels - least) / max(most - least, 1e-12)
    return np.asarray(np.clip(pixels, 0.0, 1.0))


def to_png(pixels: Pixels) -> bytes:
    """Write pixels [height, width, channels] from 0 to 1 as a PNG file."""
    values = np.asarray(np.rint(pixels * 255), dtype=np.uint8)
    buffer = io.BytesIO()
    gray_or_rgb = values[..., 0] if values.shape[2] == 1 else values
    _pillow("Image").fromarray(gray_or_rgb).save(buffer, format="PNG")
    return buffer.getvalue()
