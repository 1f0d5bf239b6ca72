"""Sphinx configuration."""

from importlib.metadata import version as installed_version

project = "attnflow"
author = "The attnflow authors"
copyright = "2026, The attnflow authors"
release = installed_version("attnflow")
version = release

extensions = ["myst_parser", "sphinx.ext.autodoc"]
myst_enable_extensions = ["dollarmath"]
myst_heading_anchors = 3

autodoc_member_order = "bysource"
autodoc_typehints = "signature"

html_theme = "furo"
html_title = f"attnflow {release}"
