"""One viewer in three hosts: notebooks, single HTML files, and a local web page.

The front end is one ES module, `static/attnflow-viewer.js`, built from the folder `viewer`.
"""

from attnflow.viewer.notebook import show
from attnflow.viewer.page import to_html

__all__ = ["show", "to_html"]
