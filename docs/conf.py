"""Sphinx configuration. `tools/website.py` makes the gallery, the live page and the notebooks."""

import os
import sys
from importlib.metadata import version as installed_version
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from tools import website

# Progress bars would become outputs of the tutorials.
os.environ.setdefault("TQDM_DISABLE", "1")
# Messages of the interpreter would, too.
os.environ.setdefault("PYDEVD_DISABLE_FILE_VALIDATION", "1")

project = "attnflow"
author = "The attnflow authors"
copyright = "2026, The attnflow authors"
release = installed_version("attnflow")
version = release

extensions = ["myst_nb", "sphinx.ext.autodoc"]
exclude_patterns = ["results"]
myst_heading_anchors = 3
myst_enable_extensions = ["attrs_inline"]  # no formulas: they would be loaded from the network

# Tutorials are executed by each build, in an empty folder.
nb_execution_mode = "force"
nb_execution_in_temp = True
nb_execution_timeout = 600
nb_execution_raise_on_error = True
nb_merge_streams = True
nb_output_stderr = "remove"  # the solver tells when it is compiled
# Widgets need a kernel: show their static picture.
nb_mime_priority_overrides = [("*", "application/vnd.jupyter.widget-view+json", None)]

autodoc_member_order = "bysource"
autodoc_typehints = "signature"

html_theme = "furo"
pygments_dark_style = "github-dark"
html_title = f"attnflow {release}"
html_static_path = ["_static"]
html_favicon = "_static/favicon.svg"
html_css_files = ["attnflow.css"]
html_js_files = ["attnflow.js"]
html_copy_source = False
html_show_sourcelink = False


def prepare_docstring(app, what, name, obj, options, lines):  # noqa: ARG001 - Sphinx's signature
    """Let Sphinx read a docstring."""
    lines[:] = website.to_restructured_text(lines)


def setup(app):
    """Called by Sphinx."""
    app.connect("autodoc-process-docstring", prepare_docstring)
    website.connect(app)
