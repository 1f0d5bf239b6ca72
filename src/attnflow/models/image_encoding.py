"""From a picture to what a vision model takes, and back to the picture as the model saw it."""

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
from attnflow.image_grid import ImageGrid
from attnflow.models.image_loading import LoadedImageModel

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
            f"{shape_text(values)}; expected [1, channels, height, width]. Models that cut "
            "pictures into several, or into patches beforehand, cannot be explained."
        )
    height, width = int(values.shape[2]), int(values.shape[3])
    patch_height, patch_width = _patch_size(loaded)
    seen = _unnormalise(loaded.processor, to_numpy(values)[0].astype(np.float64))
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
                f"there is no file {path}; expected a picture. Name a PNG, JPEG or the like."
            )
        try:
            with pillow.open(path) as opened:
                opened.load()
                return path.name, transpose(opened)
        except (OSError, ValueError, SyntaxError, pillow.DecompressionBombError) as error:
            raise FileError(
                f"{path} cannot be read as a picture ({error}); expected a PNG, JPEG or the like. "
                "Check the file, or convert it."
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
            f"{array.dtype}; expected a Pillow image, the path of a file, or numbers [height, "
            "width] or [height, width, channels]. Give one of these."
        )
    least, most = float(array.min()), float(array.max())
    limit = 1.0 if array.dtype.kind == "f" else 255.0
    if not (least >= 0 and most <= limit):
        raise InputError(
            f"the image has values from {least:g} to {most:g}; expected whole numbers from 0 to "
            "255, or fractions from 0 to 1. Rescale it."
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
        f"the configuration of {loaded.name} has patch_size {size}; expected a model that cuts "
        "pictures into patches of one size, such as ViT, DeiT, BEiT or DINOv2. Give such a model."
    )


def _unnormalise(processor: Any, values: Pixels) -> Pixels:
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
