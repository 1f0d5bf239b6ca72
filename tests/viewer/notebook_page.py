"""A page that imitates a notebook: it renders widgets and connects them to Python."""

import base64
import json
from urllib.parse import urlsplit

from attnflow.viewer.notebook import build_module
from attnflow.viewer.page import MODULE
from tests.viewer.browser import ViewerPage

# Provides the model through which a widget gets, sets and sends data.
NOTEBOOK = """<!doctype html><html lang="en"><title>notebook</title><main></main>
<script type="module">
import widget from "/attnflow-viewer.js";
const bytes = (text) => Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
for (const [number, traits] of (await window.traits()).entries()) {
  const listeners = {};
  const values = { ...traits, chunks: {} };
  for (const [key, text] of Object.entries(traits.chunks)) {
    values.chunks[key] = new DataView(bytes(text).buffer);
  }
  const model = {
    get: (name) => values[name],
    set: (name, value) => { values[name] = value; },
    save_changes: () => window.save(number, JSON.stringify(values.state)),
    on: (event, callback) => (listeners[event] ??= new Set()).add(callback),
    off: (event, callback) => listeners[event]?.delete(callback),
    async send(message) {
      for (const [content, buffers] of await window.deliver(number, message)) {
        const views = buffers.map((text) => new DataView(bytes(text).buffer));
        for (const callback of listeners["msg:custom"] ?? []) callback(content, views);
      }
    },
  };
  const el = document.createElement("section");
  document.querySelector("main").append(el);
  widget.render({ model, el });
}
</script></html>"""


class Notebook(ViewerPage):
    """Widgets on a page. kernel: whether Python answers them. asked: what they requested."""

    def __init__(self, browser, *widgets, kernel=True, clock=False):
        super().__init__(browser, network=True)
        self.states: dict[int, dict[str, object]] = {}
        self.asked: list[str] = []
        self.widgets, self.kernel = widgets, kernel
        pages = {
            "/": ("text/html", NOTEBOOK),
            f"/{MODULE}": ("text/javascript", build_module()),
        }

        def serve(route):
            kind, body = pages[urlsplit(route.request.url).path]
            route.fulfill(content_type=kind, body=body)

        self.context.route("http://notebook.test/**", serve)
        self.page.expose_function("traits", lambda: [_traits(widget) for widget in widgets])
        self.page.expose_function("deliver", self._deliver)
        self.page.expose_function("save", lambda n, text: self.states.update({n: json.loads(text)}))
        if clock:
            self.page.clock.install()
        self.page.goto("http://notebook.test/")

    def _deliver(self, number, message):
        self.asked.append(message.get("key", message["kind"]))
        if not self.kernel:
            return []
        sent: list[object] = []
        widget = self.widgets[number]
        widget.send = lambda content, buffers: sent.append(
            [content, [base64.b64encode(buffer).decode() for buffer in buffers]]
        )
        widget._handle_custom_msg(message, [])
        return sent


def _traits(widget):
    chunks = {key: base64.b64encode(value).decode() for key, value in widget.chunks.items()}
    traits = {name: getattr(widget, name) for name in ("header", "state", "picture")}
    return {**traits, "chunks": chunks}
