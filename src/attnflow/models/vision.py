"""A vision model, its image processor and what it predicts, from an object, a folder or a hub name.

The rules are those of `attnflow.models.loading`: weights from safetensors only, and no code that
a checkpoint brings along.

From a picture to what a vision model takes, and back to the picture as the model saw it.
"""

import io
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnflow.arrays import shape_text, to_numpy
from attnflow.errors import FileError, InputError, MissingDependencyError
from attnflow.explanation import ImageGrid
from attnflow.models.builtin.folders import find_adapter, find_folder
from attnflow.models.loading import (
    LoadedModel,
    Task,
    class_names,
    first_line,
    import_transformers,
    read_config,
    refuse_remote_code,
    require_safetensors,
    warn_of_missing,
)

PROCESSOR_FILES = ("preprocessor_config.json", "processor_config.json")


@dataclass(frozen=True, eq=False)
class LoadedImageModel:
    """A vision model ready to be explained.

    model: called with pixel_values, in evaluation mode. processor: makes these from pictures.
    task: "classifier", or "encoder", which predicts nothing. name: what it was loaded from.
    """

    model: Any
    processor: Any
    task: Task
    name: str

    @property
    def config(self) -> Any:
        """The configuration of the vision model; of a model with several parts, that of this."""
        config: Any = getattr(self.model, "config", None)
        return getattr(config, "vision_config", None) or config

    @property
    def predicting(self) -> LoadedModel:
        """The model as `attnflow.models.prediction` takes it."""
        return LoadedModel(self.model, self.processor, self.task, self.name, None)


def load_image_model(model: Any, processor: Any = None) -> LoadedImageModel:
    """Load a vision model and its image processor, and find out what it predicts.

    model: a transformers model (put into evaluation mode), a folder, a name on the hub, or a
    LoadedImageModel, which is given back.
    processor: an object, a folder or a name; where the model came from if not given.
    Raises FileError for a checkpoint that is missing, has no safetensors weights or needs its own
    code, InputError if no processor is named. Warns if weights are missing.
    """
    if isinstance(model, LoadedImageModel):
        return model
    if isinstance(model, str | Path):
        _refuse_text_model(str(model))
    import_transformers("loading a model")
    if isinstance(model, str | Path):
        name, origin = str(model), str(model)
        task, loaded = _load_checkpoint(name)
    else:
        if not callable(getattr(model, "forward", None)):
            raise InputError(
                f"model is a {type(model).__name__}",
                expected="a vision model of transformers, a folder or a name on the hub",
                fix="Give one of these.",
            )
        loaded = model
        origin = str(getattr(model, "name_or_path", "") or "")
        name = origin or type(model).__name__
        task = _task_of([kind.__name__ for kind in type(model).__mro__])
    _refuse_two_towers(name, loaded)
    loaded.eval()
    if processor is None and not origin:
        raise InputError(
            f"no image processor was given, and the {name} does not say where it came from",
            expected="one with such a model",
            fix="Name it with processor=...",
        )
    if processor is None or isinstance(processor, str | Path):
        processor = load_processor(str(processor or origin))
    return LoadedImageModel(loaded, processor, task, name)


def _refuse_text_model(name: str) -> None:
    """Raise InputError for the models that come with attnflow, or are trained by it."""
    if find_folder(name) is not None or find_adapter(name) is not None:
        raise InputError(
            f"{name} is a text model",
            expected="a vision model",
            fix="For texts, use attnflow explain.",
        )


def _refuse_two_towers(name: str, model: Any) -> None:
    config = getattr(model, "config", None)
    if hasattr(config, "text_config") and callable(getattr(model, "get_text_features", None)):
        raise InputError(
            f"{name} is a model of pictures and texts",
            expected="one of pictures alone",
            fix="Give its vision part, such as CLIPVisionModel.from_pretrained(...), with "
            "processor=...",
        )


def _load_checkpoint(name: str) -> tuple[Task, Any]:
    transformers = import_transformers("loading a model")
    config = read_config(name)
    refuse_remote_code(name, config)
    require_safetensors(name)
    task = _task_of(config.get("architectures") or [])
    loader = "AutoModelForImageClassification" if task == "classifier" else "AutoModel"
    try:
        model, found = getattr(transformers, loader).from_pretrained(
            name, use_safetensors=True, trust_remote_code=False, output_loading_info=True
        )
    except Exception as error:  # transformers raises whatever its parts raise
        raise FileError(
            f"{name} cannot be loaded ({first_line(error)})",
            expected="a vision model as model.save_pretrained writes it",
            fix="Check the folder, or save it again.",
        ) from error
    warn_of_missing(name, task, found["missing_keys"])
    return task, model


def _task_of(classes: list[str]) -> Task:
    """Whether the first known class of these is one that classifies images."""
    tables = import_module("transformers.models.auto.modeling_auto")
    names = class_names(tables.MODEL_FOR_IMAGE_CLASSIFICATION_MAPPING_NAMES)
    return "classifier" if any(name in names for name in classes) else "encoder"


def load_processor(name: str) -> Any:
    """Load an image processor from a folder or by its name on the hub.

    Raises FileError if there is none.
    """
    transformers = import_transformers("loading an image processor")
    folder = Path(name)
    if folder.is_dir() and not any((folder / file).is_file() for file in PROCESSOR_FILES):
        raise FileError(
            f"the folder {name} has no image processor",
            expected="preprocessor_config.json",
            fix="Write it there with processor.save_pretrained, or name it with processor=...",
        )
    try:
        # The same pixels with and without torchvision.
        return transformers.AutoImageProcessor.from_pretrained(
            name, backend="pil", trust_remote_code=False
        )
    except Exception as error:  # transformers raises whatever its parts raise
        raise FileError(
            f"no image processor can be loaded from {name} ({first_line(error)})",
            expected="a folder or name that has one",
            fix="Name it with processor=...",
        ) from error


Pixels = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class EncodedImage:
    """A picture as the model sees it.

    name: that of its file, or "image". inputs: pixel_values [1, channels, height, width].
    png, width, height: the picture as it is shown. rows, columns: of patches.
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
        """The picture and its patches, whose first token has this index."""
        return ImageGrid(self.png, self.rows, self.columns, first, self.width, self.height)


def import_pillow() -> Any:
    """Import Pillow, or say how to install it."""
    try:
        return import_module("PIL.Image")
    except ImportError as error:
        raise MissingDependencyError(
            "Pillow is not installed and explaining images needs it. "
            "Install it: pip install 'attnflow[images]'"
        ) from error


def encode_image(loaded: LoadedImageModel, picture: Any, name: str) -> EncodedImage:
    """Turn a picture into tensors, and these back into the picture that the model saw.

    picture, name: as `open_image` gives them.
    Raises InputError for a picture that gives no whole patches.
    """
    one_channel = getattr(loaded.config, "num_channels", 3) == 1
    picture = picture.convert("L") if one_channel else _on_white(picture)
    given: Any = np.asarray(picture)[..., None] if one_channel else picture
    layout = {"input_data_format": "channels_last"} if one_channel else {}
    encoding = loaded.processor(images=given, return_tensors="pt", **layout)
    values = encoding["pixel_values"]
    if values.ndim != 4 or values.shape[0] != 1:
        raise InputError(
            f"the image processor of {loaded.name} gives pixel_values of shape "
            f"{shape_text(values)}",
            expected="[1, channels, height, width]",
            fix="Models that cut pictures into several, or into patches beforehand, cannot be "
            "explained.",
        )
    height, width = int(values.shape[2]), int(values.shape[3])
    patch_height, patch_width = _patch_size(loaded)
    seen = _unnormalize(loaded.processor, to_numpy(values)[0].astype(np.float64))
    return EncodedImage(
        name=name,
        inputs={"pixel_values": values},
        png=_to_png(seen),
        rows=height // patch_height,
        columns=width // patch_width,
        width=width,
        height=height,
    )


def open_image(image: Any) -> tuple[str, Any]:
    """A name and a Pillow image, turned the way up that it is meant to be seen.

    image: a Pillow image, the path of a file, or an array [height, width] or [height, width,
    channels], of bytes or of numbers from 0 to 1.
    Raises InputError for something else, FileError for a file that cannot be read.
    """
    pillow = import_pillow()
    transpose = import_module("PIL.ImageOps").exif_transpose
    if isinstance(image, pillow.Image):
        return Path(str(getattr(image, "filename", "") or "image")).name, transpose(image)
    if isinstance(image, str | PathLike):
        path = Path(image)
        if not path.is_file():
            raise FileError(
                f"there is no file {path}",
                expected="a picture",
                fix="Name a PNG, JPEG or the like.",
            )
        try:
            with pillow.open(path) as opened:
                opened.load()
                return path.name, transpose(opened)
        except (OSError, ValueError, SyntaxError, pillow.DecompressionBombError) as error:
            raise FileError(
                f"{path} cannot be read as a picture ({error})",
                expected="a PNG, JPEG or the like",
                fix="Check the file, or convert it.",
            ) from error
    return "image", pillow.fromarray(_to_bytes(image))


def _to_bytes(image: Any) -> NDArray[np.uint8]:
    """An array [height, width] or [height, width, channels] of bytes."""
    array = to_numpy(image) if hasattr(image, "shape") else np.asarray(image)
    if array.ndim == 3 and array.shape[0] in (1, 3) and array.shape[2] not in (1, 3, 4):
        array = np.moveaxis(array, 0, -1)  # channels first, as torch has them
    if array.ndim == 3 and array.shape[2] == 1:
        array = array[..., 0]
    shaped = array.ndim == 2 or (array.ndim == 3 and array.shape[2] in (3, 4))
    if not shaped or 0 in array.shape or array.dtype.kind not in "fiu":
        raise InputError(
            f"the image is a {type(image).__name__} of shape {list(array.shape)} and type "
            f"{array.dtype}",
            expected="a Pillow image, the path of a file, or numbers [height, width] or "
            "[height, width, channels]",
            fix="Give one of these.",
        )
    least, most = float(array.min()), float(array.max())
    limit = 1.0 if array.dtype.kind == "f" else 255.0
    if not (least >= 0 and most <= limit):
        raise InputError(
            f"the image has values from {least:g} to {most:g}",
            expected="whole numbers from 0 to 255, or fractions from 0 to 1",
            fix="Rescale it.",
        )
    scaled = array * 255.0 if array.dtype.kind == "f" else array
    return np.asarray(np.rint(scaled), dtype=np.uint8)


def _on_white(picture: Any) -> Any:
    """The picture in RGB; what is transparent becomes white."""
    if "A" not in picture.getbands() and "transparency" not in picture.info:
        return picture.convert("RGB")
    picture = picture.convert("RGBA")
    ground = import_pillow().new("RGBA", picture.size, "white")
    ground.alpha_composite(picture)
    return ground.convert("RGB")


def _patch_size(loaded: LoadedImageModel) -> tuple[int, int]:
    """The height and width of a patch in pixels."""
    size = getattr(loaded.config, "patch_size", None)
    if isinstance(size, int):
        return size, size
    if isinstance(size, list | tuple) and len(size) == 2:
        return int(size[0]), int(size[1])
    raise InputError(
        f"the configuration of {loaded.name} has patch_size {size}",
        expected="a model that cuts pictures into patches of one size, such as ViT, DeiT, BEiT "
        "or DINOv2",
        fix="Give such a model.",
    )


def _unnormalize(processor: Any, values: Pixels) -> Pixels:
    """Pixels [height, width, channels] from 0 to 1, from those that the model gets.

    values: [channels, height, width].
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
    if least < -0.02 or most > 1.02:  # a processor with its own ways: show what there is
        pixels = (pixels - least) / max(most - least, 1e-12)
    return np.asarray(np.clip(pixels, 0.0, 1.0))


def _to_png(pixels: Pixels) -> bytes:
    picture = np.asarray(np.rint(pixels * 255), dtype=np.uint8)
    buffer = io.BytesIO()
    squeezed = picture[..., 0] if picture.shape[2] == 1 else picture
    import_pillow().fromarray(squeezed).save(buffer, format="PNG")
    return buffer.getvalue()
