"""The viewer: an interactive view of explanations in notebooks, HTML files and a web page.

In: one Explanation, or several to compare. Out: a widget (`show`), a file (`to_html`), or a local
web server (`attnflow serve`). All three run the same front end, `static/attnflow-viewer.js`, which
is built from the TypeScript sources in the folder `viewer` of the repository.

Read `header` and `payload` first: the JSON header, and the arrays and notes that the front end
reads, documented in `docs/viewer.md`. Then the hosts that deliver them: `page` (single files, and
the static files of the front end; `compression` makes their arrays small), `notebook` (the widget)
and `server` (a package of its own).
`preview` draws the static picture that is shown where no script runs.
"""

from attnflow.viewer.notebook import show
from attnflow.viewer.page import to_html

__all__ = ["show", "to_html"]
