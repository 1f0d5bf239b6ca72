"""The optional packages of the corpus, imported where they are used."""

from importlib import import_module
from typing import Any

from attnflow.errors import MissingDependencyError


def import_pyarrow(purpose: str) -> Any:
    """Import pyarrow with its Parquet reader, or say what it is needed for."""
    try:
        import_module("pyarrow.parquet")
        return import_module("pyarrow")
    except ImportError as error:
        raise missing("pyarrow", purpose, "corpus") from error


def import_datasets(purpose: str) -> Any:
    """Import Hugging Face datasets, or say what it is needed for."""
    try:
        return import_module("datasets")
    except ImportError as error:
        raise missing("datasets", purpose, "datasets") from error


def import_ray(purpose: str) -> Any:
    """Import Ray, or say what it is needed for."""
    try:
        return import_module("ray")
    except ImportError as error:
        raise missing("ray", purpose, "ray") from error


def missing(package: str, purpose: str, extra: str) -> MissingDependencyError:
    """The error for a package that is not installed."""
    return MissingDependencyError(
        f"{package} is not installed and {purpose} needs it. "
        f"Install it: pip install 'attnflow[{extra}]'"
    )
