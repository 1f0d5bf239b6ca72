"""The viewer in notebooks: a widget that sends arrays when the front end requests them.

The widget uses anywidget, which runs in JupyterLab, VS Code, Colab and marimo. Small arrays are
sent at the start, so that a notebook saved with its widgets works without a kernel.
"""

from collections.abc import Mapping
from functools import cache
from importlib import import_module
from math import prod
from typing import Any, Unpack
from uuid import uuid4

from attnflow.errors import AttnflowError, InputError, check_text
from attnflow.explanation import Explanation, ViewOptions
from attnflow.optional import import_optional
from attnflow.viewer.page import MODULE, inline_module, read_asset
from attnflow.viewer.payload import Payload, make_payload
from attnflow.viewer.preview import embed_picture

EAGER_BYTES = 1_000_000  # arrays up to this total size, without heads, are sent at the start


def show(*explanations: Explanation, title: str | None = None, **view: Unpack[ViewOptions]) -> Any:
    """Show explanations in a notebook, several of them side by side.

    title: the text of the first explanation by default. view: what the viewer shows first: method,
    layer, normalize, words, special and top, as in `Explanation.attribute`.
    Returns a widget. A notebook displays it if it is the last line of a cell; elsewhere, pass it
    to `display` or a layout. Where widgets cannot run, as in exported notebooks, a static picture
    is shown instead.
    Raises MissingDependencyError without anywidget.
    """
    check_text("title", title)
    payload = make_payload(explanations, title=title, **view)
    return _widget_class()(
        header=payload.header_json(),
        chunks=_eager_chunks(payload),
        picture=f"attnflow-picture-{uuid4().hex}",
        payload=payload,
    )


def answer(payload: Payload, message: Any) -> tuple[dict[str, Any], list[bytes]]:
    """Answer a message of the front end. Returns the reply, and its buffers.

    {"kind": "load", "key", "id"} is answered by {"kind": "chunk", "key", "id"} and a buffer of
    float16; {"kind": "flow", "example", "position", "count", "layer", "id"} by {"kind": "flow",
    "id"} and a buffer of float32; an invalid message by {"kind": "error", "id", "message"}.
    """
    request = message if isinstance(message, Mapping) else {}
    reply = {"id": request.get("id")}
    try:
        if request.get("kind") == "load":
            key = str(request.get("key"))
            return {"kind": "chunk", **reply, "key": key}, [payload.chunk(key)]
        if request.get("kind") == "flow":
            row = payload.flow(*_read_numbers(request))
            return {"kind": "flow", **reply}, [row.tobytes()]
        raise InputError(
            f"the kind of the message is {request.get('kind')!r}",
            expected="'load' or 'flow'",
            fix="Use the front end of the same version.",
        )
    except AttnflowError as error:
        return {"kind": "error", **reply, "message": str(error)}, []


def build_module() -> str:
    """The JavaScript module of the widget: the viewer, and an entry point for notebooks."""
    module, entry = inline_module(read_asset(MODULE), "default")
    return f"{module}\n{read_asset('notebook.js').replace('DEFAULT', entry)}"


def _read_numbers(request: Mapping[Any, Any]) -> list[int]:
    """Example, position, layer and number of positions of a request."""
    values = [request.get(name) for name in ("example", "position", "layer")]
    values.append(request.get("count", 1))
    numbers = [value for value in values if isinstance(value, int)]
    if len(numbers) == len(values):
        return numbers
    raise InputError(
        f"example, position, layer and count are {', '.join(map(repr, values))}",
        expected="integers",
        fix="Use the front end of the same version.",
    )


def _eager_chunks(payload: Payload) -> dict[str, bytes]:
    """All arrays but heads, if they are small; none otherwise."""
    chunks = [chunk for chunk in payload.chunks.values() if chunk.kind != "heads"]
    if sum(2 * prod(chunk.shape) for chunk in chunks) > EAGER_BYTES:
        return {}
    return {chunk.key: payload.chunk(chunk.key) for chunk in chunks}


@cache
def _widget_class() -> Any:
    """The class of the widget, created on first use because anywidget is optional."""
    anywidget = import_optional("anywidget", "showing a view in a notebook")
    traitlets = import_module("traitlets")  # installed with anywidget

    class AttnflowWidget(anywidget.AnyWidget):  # type: ignore[misc, name-defined]
        """The viewer in a notebook."""

        _esm = build_module()
        header = traitlets.Unicode("{}").tag(sync=True)
        state = traitlets.Dict().tag(sync=True)
        chunks = traitlets.Dict().tag(sync=True)
        picture = traitlets.Unicode("").tag(sync=True)  # CSS class of the static picture

        def __init__(self, *, payload: Payload, **traits: Any) -> None:
            super().__init__(**traits)
            self._payload = payload
            self.on_msg(self._answer)

        def _answer(self, _: Any, message: Any, __: Any) -> None:
            content, buffers = answer(self._payload, message)
            self.send(content, buffers)

        def _repr_mimebundle_(self, **options: Any) -> Any:
            """The widget, with a static picture for front ends that show no widgets."""
            bundle = self._widget_bundle(**options)
            if bundle is None:
                return None
            data, metadata = bundle
            return {**data, "text/html": self._pictures()}, metadata

        def _ipython_display_(self) -> None:
            """Display the widget, and the picture as a second output, which the widget hides.

            In a single output, JupyterLab shows an error and no picture once the widget is gone.
            """
            display = import_module("IPython.display").display
            bundle = self._widget_bundle()
            if bundle is not None:
                display(bundle[0], raw=True)
            box = f'<div class="{self.picture}">{self._pictures()}</div>'
            display({"text/html": box}, raw=True)

        def _widget_bundle(self, **options: Any) -> Any:
            """Data and metadata of the widget alone; None if anywidget cannot show it."""
            bundle = super()._repr_mimebundle_(**options)
            if bundle is None:
                return None
            data, metadata = bundle if isinstance(bundle, tuple) else (bundle, {})
            text = "\n".join(map(repr, self._payload.examples))
            return {**data, "text/plain": text}, metadata

        def _pictures(self) -> str:
            examples = self._payload.examples
            return "".join(f"<div>{embed_picture(example)}</div>" for example in examples)

    return AttnflowWidget
