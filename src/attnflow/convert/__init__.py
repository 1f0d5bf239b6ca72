"""Converters: results of attnflow in the forms that other packages take.

Enters: an Explanation, or an Attribution where it holds all that is needed. Leaves: an object of
the other package, whose own methods show, save and evaluate it. Each needs the extra of its name.

Read `source.py` first, then one file for each package: `inseq.py` (also the methods that inseq
finds by name), `interpreto.py`, `captum.py`, `bertviz.py`, `neuronpedia.py`, `tables.py` (pandas,
polars, xarray). Weights come in from such packages through `Attentions.from_layers`.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from attnflow.convert.bertviz import to_bertviz
    from attnflow.convert.captum import to_captum
    from attnflow.convert.inseq import to_inseq
    from attnflow.convert.interpreto import to_interpreto
    from attnflow.convert.neuronpedia import to_neuronpedia
    from attnflow.convert.tables import to_pandas, to_polars, to_xarray

__all__ = [
    "to_bertviz",
    "to_captum",
    "to_inseq",
    "to_interpreto",
    "to_neuronpedia",
    "to_pandas",
    "to_polars",
    "to_xarray",
]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'attnflow.convert' has no attribute {name!r}")
    package = name.removeprefix("to_")
    home = "tables" if package in ("pandas", "polars", "xarray") else package
    value = getattr(import_module(f"attnflow.convert.{home}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
