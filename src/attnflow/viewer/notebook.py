"""The viewer in notebooks: a widget that sends arrays when they are looked at.

Made with anywidget, which runs in JupyterLab, VS Code, Colab and marimo. Arrays that are not
large go along from the start, so that a notebook saved with its widgets works without a kernel.
"""

from collections.abc import Mapping
from functools import cache
from importlib import import_module
from typing import Any
from uuid import uuid4

from attnflow.errors import AttnflowError, InputError, MissingDependencyError
from attnflow.explanation import Explanation
from attnflow.viewer.page import MODULE, inline_module, read_asset
from attnflow.viewer.payload import Payload, make_payload
from attnflow.viewer.preview import embed_picture

ALONG = 1_000_000  # bytes of arrays that go along from the start; heads never do


def show(*explanations: Explanation, title: str | None = None) -> Any:
    """A view of explanations for notebooks; several are compared.

    title: if not given, the text of the first.
    Returns a widget, which a notebook shows where it is the last line of a cell, and `display` or
    a layout of widgets anywhere. Where widgets cannot run, as in exported notebooks, a picture is
    shown in its place.
    Raises MissingDependencyError without anywidget.
    """
    payload = make_payload(explanations, title=title)
    return _widget_class()(
        header=payload.header_json(),
        chunks=_small_chunks(payload),
        picture=f"attnflow-picture-{uuid4().hex}",
        payload=payload,
    )


def import_anywidget(purpose: str) -> Any:
    """Import anywidget, or say what it is needed for and how to install it."""
    try:
        return import_module("anywidget")
    except ImportError as error:
        raise MissingDependencyError(
            f"anywidget is not installed and {purpose} needs it. "
            "Install it: pip install 'attnflow[notebook]'"
        ) from error


def answer(payload: Payload, message: Any) -> tuple[dict[str, Any], list[bytes]]:
    """The answer to a message of the front end: what to send, and its buffers.

    {"kind": "load", "key", "id"} is answered by {"kind": "chunk", "id", "key"} and one buffer,
    {"kind": "flow", "example", "position", "layer", "id"} by {"kind": "flow", "id"} and one buffer
    of float32, and what cannot be answered by {"kind": "error", "id", "message"}.
    """
    asked = message if isinstance(message, Mapping) else {}
    known = {"id": asked.get("id")}
    try:
        if asked.get("kind") == "load":
            key = str(asked.get("key"))
            return {"kind": "chunk", **known, "key": key}, [payload.chunk(key)]
        if asked.get("kind") == "flow":
            numbers = [asked.get(name) for name in ("example", "position", "layer")]
            if not all(isinstance(number, int) for number in numbers):
                raise InputError(
                    f"flow was asked for with {numbers}",
                    expected="whole numbers for example, position and layer",
                    fix="Give them.",
                )
            return {"kind": "flow", **known}, [payload.flow(*numbers).tobytes()]  # type: ignore[arg-type]
        raise InputError(
            f"a message of the kind {asked.get('kind')!r} came",
            expected="'load' or 'flow'",
            fix="Use the front end of the same version.",
        )
    except AttnflowError as error:
        return {"kind": "error", **known, "message": str(error)}, []


def build_module() -> str:
    """The viewer's module, whose entry point also takes the arrays that went along."""
    module, entry = inline_module(read_asset(MODULE), "default")
    return f"{module}\n{read_asset('notebook.js').replace('DEFAULT', entry)}"


def _small_chunks(payload: Payload) -> dict[str, bytes]:
    """All arrays but those of heads, if they are small and flow takes no time."""
    examples = payload.header()["examples"]
    sizes = {
        key: 2 * chunk["shape"][0] * chunk["shape"][1]
        for one in examples
        for key, chunk in one["chunks"].items()
        if "/heads/" not in key
    }
    if sum(sizes.values()) > ALONG:
        return {}
    return {key: payload.chunk(key) for key in sizes}


@cache
def _widget_class() -> Any:
    """The class of the widget; made when first used, since anywidget is optional."""
    anywidget = import_anywidget("showing a view in a notebook")
    traitlets = import_module("traitlets")

    class AttnflowWidget(anywidget.AnyWidget):  # type: ignore[misc, name-defined]
        """The viewer in a notebook."""

        _esm = build_module()
        header = traitlets.Unicode("{}").tag(sync=True)
        state = traitlets.Dict().tag(sync=True)
        chunks = traitlets.Dict().tag(sync=True)
        picture = traitlets.Unicode("").tag(sync=True)  # the class of its picture in the page

        def __init__(self, *, payload: Payload, **traits: Any) -> None:
            super().__init__(**traits)
            self._payload = payload
            self.on_msg(self._answer)

        def _answer(self, _: Any, message: Any, __: Any) -> None:
            content, buffers = answer(self._payload, message)
            self.send(content, buffers)

        def _repr_mimebundle_(self, **options: Any) -> Any:
            """The widget, and beside it a picture for where no widget can be shown."""
            live = self._live(**options)
            if live is None:
                return None
            data, metadata = live
            return {**data, "text/html": self._pictures()}, metadata

        def _ipython_display_(self) -> None:
            """The widget, and the picture as an output of its own, which the widget hides.

            In one output JupyterLab would show an error and no picture once the widget is gone.
            """
            display = import_module("IPython.display").display
            live = self._live()
            if live is not None:
                display(live[0], raw=True)
            box = f'<div class="{self.picture}">{self._pictures()}</div>'
            display({"text/html": box}, raw=True)

        def _live(self, **options: Any) -> Any:
            """The widget alone, as data and metadata; None where anywidget has nothing to show."""
            bundle = super()._repr_mimebundle_(**options)
            if bundle is None:
                return None
            data, metadata = bundle if isinstance(bundle, tuple) else (bundle, {})
            text = "\n".join(map(repr, self._payload.examples))
            return {**data, "text/plain": text}, metadata

        def _pictures(self) -> str:
            return "".join(f"<div>{embed_picture(one)}</div>" for one in self._payload.examples)

    return AttnflowWidget
