"""How arrays are made small for a file: bytes grouped and deflated, weights on a logarithmic scale.

The front end reverses both: `static/single-file.js` inflates, `viewer/src/data/loader.ts` decodes.
"""

import zlib
from typing import Any

import numpy as np
from numpy.typing import NDArray

LARGEST = 8  # weights are at most 2 to the power of this
# Levels per power of two, finest first. With so many, weights are rounded by at most 0.3% to 19%.
LEVELS = (128, 64, 32, 16, 8, 6, 4, 3, 2)
BYTES = 8  # with at most so many levels, a weight is one byte


def compress(data: bytes, width: int) -> bytes:
    """Deflate data after grouping the first bytes of all numbers, then the second, and so on.

    width: bytes of a number; 1 for text. The high bytes of numbers resemble each other.

    >>> zlib.decompress(compress(b"aAbBcC", 2))
    b'abcABC'
    """
    grouped = np.frombuffer(data, dtype=np.uint8).reshape(-1, width).T.tobytes()
    # Weights are noisy: short repetitions that occur by chance take more room than they save.
    deflate = zlib.compressobj(6, strategy=zlib.Z_FILTERED)
    return deflate.compress(grouped) + deflate.flush()


def encode_log(weights: Any, levels: int) -> bytes:
    """Write weights as uint16 on a logarithmic scale, little-endian, in C order.

    0 stands for 0, and a number q for 2 ** (LARGEST - (q - 1) / levels). With few levels, numbers
    are uint8 after a float32, the highest weight, which is there in place of 2 ** LARGEST; a weight
    that is too small for them is 0.

    >>> np.frombuffer(encode_log(np.asarray([0.0, 256.0, 1.0, 0.5]), 16), "<u2")
    array([  0,   1, 129, 145], dtype=uint16)
    """
    values = np.asarray(weights, dtype=np.float64)
    if levels <= BYTES:
        return _encode_bytes(values, levels)
    codes = np.zeros(values.shape, dtype="<u2")
    positive = values > 0
    steps = np.rint(levels * (LARGEST - np.log2(values[positive])))
    codes[positive] = 1 + np.clip(steps, 0, 65_534)
    return codes.tobytes()


def _encode_bytes(values: NDArray[np.float64], levels: int) -> bytes:
    top = np.asarray(values.max(initial=0.0), dtype="<f4")
    codes = np.zeros(values.shape, dtype=np.uint8)
    positive = values > 0
    steps = np.rint(levels * (np.log2(float(top) or 1.0) - np.log2(values[positive]))) + 1
    codes[positive] = np.where(steps > 255, 0, np.maximum(steps, 1))
    return top.tobytes() + codes.tobytes()


def rounding_of(levels: int) -> float:
    """The largest relative error of weights with so many levels.

    >>> round(rounding_of(16), 4)
    0.0219
    """
    return float(2 ** (0.5 / levels) - 1)
