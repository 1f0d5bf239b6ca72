"""Which column of a table holds the texts, and which their ids."""

from collections.abc import Sequence
from difflib import get_close_matches

from attnflow.errors import InputError, SelectionError

USUAL = ("text", "sentence")  # taken if no column is named


def choose_text_column(names: Sequence[str], asked: str | None, source: str) -> str:
    """The column of the texts: the one asked for, else `text` or `sentence`, else the only one.

    Raises SelectionError if there is no such column, InputError if one must be named.

    >>> choose_text_column(["id", "sentence"], None, "a.csv")
    'sentence'
    """
    if asked is not None:
        return choose_column(names, asked, source)
    found = [name for name in USUAL if name in names] or (list(names) if len(names) == 1 else [])
    if not found:
        raise InputError(
            f"{source} has the columns {_listed(names)}; expected one named text or sentence. "
            "Name the one that holds the texts with --text-column (text_column=...)."
        )
    return found[0]


def choose_column(names: Sequence[str], asked: str, source: str) -> str:
    """The column that was asked for. Raises SelectionError if there is none of that name."""
    if asked not in names:
        close = get_close_matches(asked, names, n=1, cutoff=0.3)
        hint = f"Did you mean {close[0]!r}?" if close else "Name one of these."
        raise SelectionError(
            f"{source} has no column {asked!r}; expected one of {_listed(names)}. {hint}"
        )
    return asked


def _listed(names: Sequence[str]) -> str:
    shown = ", ".join(map(repr, names[:20])) or "none"
    return shown if len(names) <= 20 else f"{shown} and {len(names) - 20} more"
