"""The files of the front end that come with the package."""

import re
from functools import cache
from importlib.resources import files

from attnflow.errors import FileError

MODULE = "attnflow-viewer.js"


@cache
def read_asset(name: str) -> str:
    """The text of one of the front end's files.

    Raises FileError if it is missing, as in a checkout where the front end was not built.
    """
    try:
        return files("attnflow.viewer").joinpath("static", name).read_text(encoding="utf-8")
    except FileNotFoundError:
        raise FileError(
            f"the viewer's file {name} is missing; expected it in the package. "
            "Install attnflow again, or build the front end in a checkout: make viewer."
        ) from None


def inline_module(source: str, name: str = "mount") -> tuple[str, str]:
    r"""A module without its exports, to be put into a page, and what one of them is called in it.

    The module ends in one export list, as bundlers write it.
    Raises FileError if it does not, or if the name is not in it.

    >>> inline_module("function m(){}\nexport{d as default,m as mount};")
    ('function m(){}\n', 'm')
    """
    found = re.search(r"export\s*\{([^{}]*)\}\s*;?\s*(?://[^\n]*\s*)?\Z", source)
    if found is not None:
        for item in found[1].split(","):
            names = item.split(" as ")
            if names[-1].strip() == name:
                return source[: found.start()], names[0].strip()
    raise FileError(
        f"the viewer's module does not end in a list of exports that has {name}; expected one. "
        "Build the front end again: make viewer."
    )
