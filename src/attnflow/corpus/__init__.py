"""Corpus runs: score a whole data set, in shards that are written as Parquet. Runs resume.

An input (file, data set or list of texts) and `Settings` enter `run`; a folder of Parquet shards
leaves. `open_corpus` reads the folder, `check` verifies it.

Reading order: `settings` (all options), `example` (a row, its scores, or why it is rejected);
`formats` and `readers` (input); `batches`, `scorer` (from a shard to scores); `local_engine`,
`ray_engine` (where shards are scored); `parquet`, `manifest`, `store` (files and locks); `job` (the
loop that ties these together), `status` (its progress); `results` and `integrity` (finished
corpora).
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from attnflow.corpus.integrity import check
    from attnflow.corpus.job import run
    from attnflow.corpus.results import Corpus, open_corpus
    from attnflow.corpus.settings import Settings
    from attnflow.corpus.status import Status, Summary

__all__ = ["Corpus", "Settings", "Status", "Summary", "check", "open_corpus", "run"]

# The module of each name; imported on first use.
_MODULES = {
    "Corpus": "results",
    "Settings": "settings",
    "Status": "status",
    "Summary": "status",
    "check": "integrity",
    "open_corpus": "results",
    "run": "job",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module 'attnflow.corpus' has no attribute {name!r}")
    value = getattr(import_module(f"attnflow.corpus.{_MODULES[name]}"), name)
    globals()[name] = value
    return value
