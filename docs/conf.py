"""Sphinx configuration."""

import re
from importlib.metadata import version as installed_version

project = "attnflow"
author = "The attnflow authors"
copyright = "2026, The attnflow authors"
release = installed_version("attnflow")
version = release

extensions = ["myst_parser", "sphinx.ext.autodoc"]
myst_heading_anchors = 3

autodoc_member_order = "bysource"
autodoc_typehints = "signature"

html_theme = "furo"
html_title = f"attnflow {release}"


ARGUMENT = re.compile(r"(\w+(, \w+)*: |Returns |Raises )")


def separate_arguments(app, what, name, obj, options, lines):  # noqa: ARG001 - Sphinx's signature
    """Turn each line of a docstring that describes an argument ("name: text") into a paragraph."""
    for i in reversed(range(1, len(lines))):
        if ARGUMENT.match(lines[i]) and lines[i - 1].strip():
            lines.insert(i, "")


def setup(app):
    """Called by Sphinx."""
    app.connect("autodoc-process-docstring", separate_arguments)
