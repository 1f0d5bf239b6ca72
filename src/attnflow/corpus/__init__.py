"""Whole data sets: read as a stream, scored in shards, written as Parquet, killed and resumed."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from attnflow.corpus.integrity import check
    from attnflow.corpus.job import run
    from attnflow.corpus.progress import Progress, Summary
    from attnflow.corpus.results import Corpus, open_corpus
    from attnflow.corpus.settings import Settings

__all__ = ["Corpus", "Progress", "Settings", "Summary", "check", "open_corpus", "run"]

# Where each name lives; loaded when first used.
_HOME = {
    "Corpus": "results",
    "Progress": "progress",
    "Settings": "settings",
    "Summary": "progress",
    "check": "integrity",
    "open_corpus": "results",
    "run": "job",
}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'attnflow.corpus' has no attribute {name!r}")
    value = getattr(import_module(f"attnflow.corpus.{_HOME[name]}"), name)
    globals()[name] = value
    return value
