"""Baselines: scores that know the text, but not what the model does with it.

An explanation that is no better than these says nothing about the model.
"""

import numpy as np
from numpy.typing import NDArray

from attnflow.importance.target import input_embeddings
from attnflow.models.inputs import collate
from attnflow.optional import import_optional
from attnflow.study.case import Case
from attnflow.study.image_case import ImageCase

Floats = NDArray[np.float64]


def constant(case: Case | ImageCase) -> Floats:
    """All units are tied, and metrics average over all orders."""
    return np.zeros(len(case.units))


def earlier(case: Case) -> Floats:
    """The first unit has the highest score."""
    return np.arange(len(case.units), 0, -1, dtype=np.float64)


def later(case: Case) -> Floats:
    """The last unit has the highest score."""
    return np.arange(1, len(case.units) + 1, dtype=np.float64)


def rarity(case: Case) -> Floats:
    """The mean token number of each unit.

    Tokenizers number their tokens from frequent to rare: by merges, by counts, or by scores.
    """
    ids = case.encoded.inputs["input_ids"][0].numpy()
    return np.asarray([ids[list(unit)].mean() for unit in case.units])


def embedding_norm(case: Case) -> Floats:
    """The length of each token's embedding, without positions."""
    torch = import_optional("torch", "running a model")
    with torch.no_grad():
        embeddings = input_embeddings(case.loaded)(
            collate(case.loaded, [case.encoded])["input_ids"]
        )
    return case.merge(embeddings[0].double().norm(dim=-1).cpu().numpy())


def center(case: ImageCase) -> Floats:
    """Patches are the more relevant, the nearer they are to the center of the image."""
    rows, columns = case.shape
    y, x = np.mgrid[:rows, :columns]
    distance = np.hypot(y - (rows - 1) / 2, x - (columns - 1) / 2)
    return np.asarray((distance.max() - distance).ravel())


def contrast(case: ImageCase) -> Floats:
    """The distance of a patch's pixels from the mean color of the image."""
    pixels = case.pixels[0].double()
    distance = (pixels - pixels.mean((1, 2), keepdim=True)).square().sum(0)
    return case.merge_pixels(distance.cpu().numpy())
