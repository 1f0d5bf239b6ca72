"""Token ids as users pass them, checked and split into rows without padding.

Ids come as lists, arrays, tensors or the output of a tokenizer. `attnflow.models.inputs` turns the
rows into what a model takes.
"""

from collections.abc import Iterable, Mapping, Sequence
from operator import index
from typing import Any

from attnflow.errors import InputError
from attnflow.models.caches import without_cache

# What a tokenizer returns and `encode_inputs` takes; the second group is computed anew.
ID_NAMES = ("input_ids", "attention_mask", "token_type_ids")
IGNORED_NAMES = ("special_tokens_mask", "offset_mapping", "length")


def read_rows(values: Mapping[str, Any]) -> tuple[list[dict[str, list[int]]], bool]:
    """Split the tensors of a batch into rows without padding.

    values: [tokens] or [texts, tokens] by name.
    Returns rows {name: [tokens]}, and whether there is a single row.
    """
    values = without_cache(values)
    known = (*ID_NAMES, *IGNORED_NAMES)
    if "input_ids" not in values or not all(name in known for name in values):
        raise InputError(
            f"the inputs have {', '.join(map(repr, values)) or 'no names'}",
            expected="'input_ids', and optionally 'attention_mask' and 'token_type_ids'",
            fix="Pass what the tokenizer returned, without other tensors, or pass the text.",
        )
    tables = {name: _read_table(name, values[name]) for name in ID_NAMES if name in values}
    lengths = [len(row) for row in tables["input_ids"]]
    for name, table in tables.items():
        if [len(row) for row in table] != lengths:
            raise InputError(
                f"{name} has rows of {_shorten([len(row) for row in table])} numbers, and "
                f"input_ids of {_shorten(lengths)}",
                expected="one number for each token",
                fix="Pass tensors of the same shape.",
            )
    rows = [
        _remove_padding({name: table[i] for name, table in tables.items()})
        for i in range(len(lengths))
    ]
    return rows, not _is_nested(to_list(values["input_ids"]))


def _is_nested(rows: list[Any]) -> bool:
    return any(isinstance(row, list | tuple) for row in rows)


def _read_table(name: str, values: Any) -> list[list[int]]:
    """Return integers [tokens] or [texts, tokens] as rows [texts, tokens]."""
    rows = to_list(values)
    table = rows if _is_nested(rows) else [rows]
    if not all(isinstance(row, list | tuple) and len(row) for row in table):
        raise InputError(
            f"{name} is empty, or has rows that are empty or not lists",
            expected="at least one token in each row",
            fix="Pass token ids [tokens] or [texts, tokens].",
        )
    return [[_read_id(name, value) for value in row] for row in table]


def _read_id(name: str, value: Any) -> int:
    if isinstance(value, list | tuple | Mapping):
        raise InputError(
            f"{name} has more than one batch",
            expected="[tokens] or [texts, tokens]",
            fix="Explain each batch separately.",
        )
    try:
        if isinstance(value, bool) and name != "attention_mask":
            raise TypeError
        return index(value)
    except TypeError:
        raise InputError(
            f"{name} contains a {type(value).__name__}: {str(value)[:40]}",
            expected="integers",
            fix="Pass the token ids that the tokenizer returned, a string or a list of strings.",
        ) from None


def _remove_padding(row: Mapping[str, list[int]]) -> dict[str, list[int]]:
    """Remove the columns at both ends that the attention mask hides."""
    mask = row.get("attention_mask", [1] * len(row["input_ids"]))
    visible = [i for i, value in enumerate(mask) if value]
    is_span = bool(visible) and visible[-1] - visible[0] + 1 == len(visible)
    if not is_span or any(value not in (0, 1) for value in mask):
        raise InputError(
            f"attention_mask is {_shorten(mask)}",
            expected="1 for the tokens of the text, and 0 for padding before or after it",
            fix="Pass the mask that the tokenizer returned.",
        )
    columns = slice(visible[0], visible[-1] + 1)
    return {name: values[columns] for name, values in row.items()}


def _shorten(numbers: Sequence[int]) -> str:
    """The first numbers of a list, for an error message."""
    shown = ", ".join(map(str, numbers[:8]))
    return f"{shown}, ..." if len(numbers) > 8 else shown


def to_list(inputs: Any) -> list[Any]:
    """Convert an array, tensor or iterable to a list; arrays in a list to nested lists."""
    try:
        values = inputs.tolist() if hasattr(inputs, "tolist") else inputs
    except Exception:  # such as a tensor without values
        raise invalid_type(inputs) from None
    if isinstance(values, bytes) or not isinstance(values, Iterable):
        raise invalid_type(inputs)
    return [item.tolist() if hasattr(item, "tolist") else item for item in values]


def invalid_type(inputs: Any) -> InputError:
    """Return the error for inputs that are neither texts nor token ids."""
    return InputError(
        f"the text is of type {type(inputs).__name__}",
        expected="a string, a list of strings, token ids, or a mapping with input_ids",
        fix="Pass one of these; join words that are in a list.",
    )
