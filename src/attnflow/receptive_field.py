"""Receptive fields: which keys a query may attend to, and attention spread evenly over them."""

from typing import Any

import numpy as np
from array_api_compat import array_namespace
from array_api_compat import device as device_of
from numpy.typing import NDArray

from attnflow.arrays import Array, to_numpy
from attnflow.errors import AttentionError
from attnflow.rows import rescale_rows


def looks_back_only(attention: Array) -> bool:
    """Whether no query of [..., queries, keys] has weight on a later key.

    >>> looks_back_only(np.asarray([[1.0, 0.0], [0.5, 0.5]]))
    True
    """
    xp = array_namespace(attention)
    return not bool(xp.any(xp.triu(attention, k=1) != 0))


def resolve_causal(attention: Array, causal: bool | None) -> bool:
    """Whether [..., layers, queries, keys] is causal: as told, or found out from the weights.

    One token sees all there is to see, so it is not causal unless told.
    Raises AttentionError if told so and a query has weight on a later key.
    """
    if causal is None:
        return int(attention.shape[-1]) > 1 and looks_back_only(attention)
    if causal and not looks_back_only(attention):
        host = to_numpy(attention)
        *_, layer, query, key = (int(i) for i in np.argwhere(np.triu(host, k=1))[0])
        raise AttentionError(
            f"layer {layer + 1} has weight on a later token (query {query}, key {key}) and causal "
            "is True; expected no such weight. Leave causal out to have it found out."
        )
    return causal


def causal_field(n: int) -> NDArray[np.bool_]:
    """[queries, keys], true for keys up to the query."""
    return np.tri(n, dtype=bool)


def spread_evenly(field: NDArray[np.bool_], like: Array) -> Array:
    """Attention that gives every key of [..., queries, keys] in the field the same weight.

    The result has the kind, type and device of `like`. Queries with an empty field have no weight.

    >>> spread_evenly(causal_field(2), like=np.zeros(1))
    array([[1. , 0. ],
           [0.5, 0.5]])
    """
    xp = array_namespace(like)
    place: dict[str, Any] = {"device": device_of(like)}
    return rescale_rows(xp.astype(xp.asarray(field, **place), like.dtype))
