"""The options of `explain` that the page offers, and how they are read from a request."""

from collections.abc import Mapping
from typing import Any

from attnflow.edges.registry import EDGES
from attnflow.viewer.server.security import RequestError

HEADS = ("mean", "max", "min")
MEASURED = "measured"
MAX_NAME = 200  # characters of a class or token


def list_options() -> dict[str, Any]:
    """The choices of the page: edges with titles, and ways to merge heads."""
    edges = [
        {"name": edges.name, "title": edges.title, "summary": edges.summary} for edges in EDGES
    ]
    return {"edges": edges, "heads": list(HEADS)}


def read_options(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Read the options of an example; those that are missing or empty have their defaults.

    edges: a registered name. heads: a way to merge them, or the index of a head. residual_weight: a
    number from 0 to 1, or "measured". target, against: a class or token, by index or name.
    Raises RequestError for an invalid value. Whether options fit together and to the model is
    checked by `explain`.
    """
    readers = {
        "edges": _read_edges,
        "heads": _read_heads,
        "residual_weight": _read_residual,
        "target": _read_name,
        "against": _read_name,
    }
    given = {name: fields.get(name) for name in readers}
    return {
        name: readers[name](name, value) for name, value in given.items() if value not in (None, "")
    }


def _read_edges(name: str, value: Any) -> str:
    if value in EDGES.names:
        return str(value)
    raise _invalid(name, value, f"one of {', '.join(EDGES.names)}")


def _read_heads(name: str, value: Any) -> int | str:
    number = _as_index(value)
    if number is not None:
        return number
    if value in HEADS:
        return str(value)
    raise _invalid(name, value, f"{', '.join(HEADS)}, or the index of a head")


def _read_residual(name: str, value: Any) -> float | str:
    if value == MEASURED:
        return MEASURED
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        number = -1.0
    if not 0 <= number <= 1 or isinstance(value, bool):
        raise _invalid(name, value, f"a number from 0 to 1, or {MEASURED!r}")
    return number


def _read_name(name: str, value: Any) -> int | str:
    number = _as_index(value)
    if number is not None:
        return number
    if not isinstance(value, str) or len(value) > MAX_NAME:
        raise _invalid(name, value, f"an index, or a name of at most {MAX_NAME} characters")
    return value


def _as_index(value: Any) -> int | None:
    """A whole number, also if it is written as text; None for others."""
    if type(value) is int and 0 <= value < 1_000_000_000:
        return value
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < 10:
        return int(value)
    return None


def _invalid(name: str, value: Any, expected: str) -> RequestError:
    return RequestError(
        f"{name} is {str(value)[:40]!r}", expected=expected, fix="Choose one of these."
    )
