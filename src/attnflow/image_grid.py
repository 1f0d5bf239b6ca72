"""ImageGrid: the picture that a vision model saw, and which patch of it each token stands for."""

from dataclasses import dataclass, field


@dataclass(frozen=True)
class ImageGrid:
    """A picture cut into patches, row by row.

    png: the picture as it is shown, a whole PNG file. rows, columns: how many patches it has.
    first: the index of the first patch's token; token first + row * columns + column is that patch.
    width, height: the size of the picture in pixels.
    """

    png: bytes = field(repr=False)
    rows: int
    columns: int
    first: int
    width: int
    height: int
