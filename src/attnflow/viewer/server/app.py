"""The web application: routes, and how requests are read and answered.

`security.Guard` checks requests before they arrive here; computations run elsewhere, through
`jobs`. This module imports starlette, so import it only where that is known to be installed.
"""

import asyncio
import json
import tempfile
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route

from attnflow.errors import AttnflowError
from attnflow.viewer.header import stored_layers
from attnflow.viewer.page import MODULE, read_asset
from attnflow.viewer.payload import Payload, flow_rows
from attnflow.viewer.server.choices import list_options, read_input, read_options, text_too_long
from attnflow.viewer.server.jobs import Jobs
from attnflow.viewer.server.security import (
    App,
    BusyError,
    Guard,
    Limits,
    RequestError,
    shorten_message,
)
from attnflow.viewer.server.tasks import ExplainTask, ImageTask, ModelInfo, Question, ReadTask

JSON, BINARY = "application/json", "application/octet-stream"
MAX_EXAMPLES = 2  # to compare
MAX_TITLE = 200  # characters of the name of an uploaded file
PAUSE_SECONDS = 5.0  # between two parts of a body
MAX_UPLOADS = 2  # at the same time, because each is held in memory
BYTES_PER_CHARACTER = 12  # of JSON at most: "\\ud83d\\ude00"
# All static files, read once and served under these paths only.
ASSETS = {
    "/": ("page.html", "text/html"),
    "/page.css": ("page.css", "text/css"),
    "/page.js": ("page.js", "text/javascript"),
    f"/{MODULE}": (MODULE, "text/javascript"),
}


def create_app(
    jobs: Jobs,
    models: Sequence[ModelInfo],
    *,
    limits: Limits,
    hosts: frozenset[str],
    token: str = "",
) -> App:
    """Create the ASGI application.

    models: the models that the workers have loaded, in the same order. hosts: allowed hostnames.
    token: if it is not empty, requests must have it; see `Guard`.
    The jobs are closed when the application shuts down.
    """
    routes = Routes(jobs, models, limits)

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        yield
        jobs.close()

    result = "/api/explanations/{id}"
    app = Starlette(
        routes=[
            *(Route(path, routes.asset) for path in ASSETS),
            Route("/api/models", routes.models),
            Route("/api/explanations", routes.explain, methods=["POST"]),
            Route("/api/attentions", routes.upload, methods=["POST"]),
            Route("/api/images", routes.upload, methods=["POST"]),
            Route("/api/jobs/{id}", routes.job),
            Route("/api/jobs/{id}", routes.cancel, methods=["DELETE"]),
            Route(f"{result}/header", routes.header),
            Route(f"{result}/chunks/{{key:path}}", routes.chunk),
            Route(f"{result}/flow", routes.flow),
        ],
        exception_handlers={
            AttnflowError: respond_error,
            HTTPException: respond_http_error,
            Exception: respond_bug,
        },
        lifespan=lifespan,
    )
    return Guard(app, hosts, token)


class Routes:
    """The handlers of the routes."""

    def __init__(self, jobs: Jobs, models: Sequence[ModelInfo], limits: Limits) -> None:
        self._jobs, self._models, self._limits = jobs, tuple(models), limits
        self._uploads = 0  # in progress
        self._assets = {path: read_asset(name) for path, (name, _) in ASSETS.items()}

    async def asset(self, request: Request) -> Response:
        """A static file."""
        path = request.url.path
        return Response(self._assets[path].encode("utf-8"), media_type=ASSETS[path][1])

    async def models(self, _: Request) -> Response:
        """The models to choose from, and the limits of the page."""
        models = [asdict(model) for model in self._models]
        limits = {
            "text_length": self._limits.text_length,
            "upload": self._limits.upload_bytes,
            "generated": self._limits.generated,
        }
        return respond_json({"models": models, "limits": limits, "options": list_options()})

    async def explain(self, request: Request) -> Response:
        """Start a job that explains one text, or several to compare."""
        check_content_type(request, JSON)
        limit = MAX_EXAMPLES * BYTES_PER_CHARACTER * self._limits.text_length + 4096
        too_large = text_too_long(f"the request has more than {limit} bytes", self._limits)
        body = await read_body(request, limit, self._limits.seconds, too_large)
        examples = read_examples(parse_json(body), len(self._models), self._limits)
        return respond_json({"job": self._jobs.submit(ExplainTask(examples))}, 202)

    async def upload(self, request: Request) -> Response:
        """Start a job that reads saved attentions or an image, sent as the body.

        name: title of the page. For an image also model, and options of the explanation.
        """
        check_content_type(request, BINARY)
        if self._uploads >= MAX_UPLOADS:
            raise BusyError(
                f"the server is busy with {self._uploads} uploads.", fix="Try again in a moment."
            )
        limit = self._limits.upload_bytes
        too_large = RequestError(
            "the file is too large",
            expected=f"at most {limit / 1e6:g} MB",
            fix="Open a smaller file, or start the server with a larger --max-upload.",
            status=413,
        )
        self._uploads += 1
        try:
            body = await read_body(request, limit, self._limits.seconds, too_large)
        finally:
            self._uploads -= 1
        title = request.query_params.get("name", "")[:MAX_TITLE] or "saved attentions"
        make_task = self._file_task(request)
        return respond_json({"job": self._submit_file(body, title, make_task)}, 202)

    async def job(self, request: Request) -> Response:
        """The state of a job."""
        job = self._jobs.job(request.path_params["id"])
        if job is None:
            raise _not_stored("computation")
        return respond_json(asdict(job))

    async def cancel(self, request: Request) -> Response:
        """Give up a job."""
        if not self._jobs.cancel(request.path_params["id"]):
            raise _not_stored("computation")
        return respond_json({})

    async def header(self, request: Request) -> Response:
        """The header of a result."""
        return Response(self._result(request).header_json().encode("ascii"), media_type=JSON)

    async def chunk(self, request: Request) -> Response:
        """An array of a result, float16."""
        payload, key = self._result(request), request.path_params["key"]
        return Response(await asyncio.to_thread(payload.chunk, key), media_type=BINARY)

    async def flow(self, request: Request) -> Response:
        """The flow of one position, or of several as one source, at one layer, float32."""
        payload = self._result(request)
        example = read_number(request, "example", len(payload.examples))
        explanation = payload.examples[example]
        position = read_number(request, "position", len(explanation.tokens))
        layer = read_number(request, "layer", explanation.graph.n_layers + 1, first=1)
        count = 1
        if "count" in request.query_params:
            count = read_number(request, "count", len(explanation.tokens) - position + 1, first=1)
        rows = flow_rows(explanation)
        stored = layer in stored_layers(explanation, "flow")
        if stored and count == 1 and (rows is None or position in rows):
            row: Any = payload.flow(example, position, layer)
        else:
            positions = range(position, position + count)
            row = await asyncio.wrap_future(self._jobs.flow(payload, example, positions, layer))
        return Response(np.ascontiguousarray(row, dtype="<f4").tobytes(), media_type=BINARY)

    def _result(self, request: Request) -> Payload:
        payload = self._jobs.result(request.path_params["id"])
        if payload is None:
            raise _not_stored("result")
        return payload

    def _file_task(self, request: Request) -> Callable[[str, str], ReadTask | ImageTask]:
        """The task for an uploaded file, of its path and title."""
        if request.url.path != "/api/images":
            return ReadTask
        model = read_number(request, "model", len(self._models))
        options = read_options(request.query_params)
        return lambda path, title: ImageTask(path, title, model, options)

    def _submit_file(
        self, body: bytes, title: str, make_task: Callable[[str, str], ReadTask | ImageTask]
    ) -> str:
        """Write an upload to a temporary file, which is removed when the job has ended."""
        with tempfile.NamedTemporaryFile(suffix=".safetensors", delete=False) as file:
            file.write(body)
        path = Path(file.name)
        try:
            task = make_task(str(path), title)
            return self._jobs.submit(task, cleanup=lambda: path.unlink(missing_ok=True))
        except BaseException:
            path.unlink(missing_ok=True)
            raise


def check_content_type(request: Request, expected: str) -> None:
    """Raise RequestError unless the body has this type, which forms of other pages cannot send."""
    content_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if content_type != expected:
        raise RequestError(
            f"the content type is {content_type[:80]!r}",
            expected=expected,
            fix="Set the header Content-Type.",
            status=415,
        )


async def read_body(request: Request, limit: int, seconds: float, too_large: RequestError) -> bytes:
    """Read the body. too_large: raised if it has more than `limit` bytes.

    Raises RequestError if it does not arrive in time, or if its sender pauses or leaves.
    """
    length = request.headers.get("content-length", "0")
    if not length.isdigit() or int(length) > limit:
        raise too_large
    parts, size = [], 0
    try:
        async with asyncio.timeout(seconds) as timeout:
            end = timeout.when() or 0.0
            async for part in request.stream():
                size += len(part)
                if size > limit:
                    raise too_large
                parts.append(part)
                timeout.reschedule(min(end, asyncio.get_running_loop().time() + PAUSE_SECONDS))
    except (TimeoutError, ClientDisconnect):
        raise RequestError(
            "the body is incomplete",
            expected=f"all of it within {seconds:g} seconds, without pauses",
            fix="Send it faster.",
            status=408,
        ) from None
    return b"".join(parts)


def parse_json(body: bytes) -> Any:
    """Parse the body. Raises RequestError if it is not JSON."""
    try:
        return json.loads(body)
    except (ValueError, RecursionError):
        raise RequestError(
            "the body is not JSON", expected="JSON in UTF-8", fix="Encode it."
        ) from None


def read_examples(body: Any, n_models: int, limits: Limits) -> tuple[Question, ...]:
    """Read the texts to explain, their models and options from a parsed body.

    Raises RequestError if the body is invalid or exceeds the limits.
    """
    examples = body.get("examples") if isinstance(body, dict) else None
    if not isinstance(examples, list) or not 1 <= len(examples) <= MAX_EXAMPLES:
        raise RequestError(
            f"the body has no list of 1 to {MAX_EXAMPLES} examples",
            expected='{"examples": [{"text": "...", "model": 0}]}',
            fix="Send such an object.",
        )
    return tuple(_read_example(example, n_models, limits) for example in examples)


def _read_example(example: Any, n_models: int, limits: Limits) -> Question:
    fields = example if isinstance(example, dict) else {}
    model = fields.get("model")
    text, answer = read_input(fields, limits)
    if type(model) is not int or not 0 <= model < n_models:
        raise RequestError(
            f"there is no model {str(model)[:40]!r}",
            expected=f"an index from 0 to {n_models - 1}",
            fix="Choose one of the models that the server was started with.",
        )
    return Question(text, model, {**read_options(fields), **answer})


def read_number(request: Request, name: str, end: int, first: int = 0) -> int:
    """Read an integer from `first` to `end` - 1 from the query."""
    text = request.query_params.get(name, "")
    if text.isascii() and text.isdigit() and len(text) < 9 and first <= int(text) < end:
        return int(text)
    raise RequestError(
        f"{name} is {text[:40]!r}",
        expected=f"an integer from {first} to {end - 1}",
        fix="Request one of these.",
    )


def respond_json(value: Any, status: int = 200) -> Response:
    """A response in JSON; in ASCII, because texts may hold lone surrogates."""
    return Response(json.dumps(value).encode("ascii"), status, media_type=JSON)


async def respond_error(_: Request, error: Any) -> Response:
    """The response to an invalid request."""
    status = error.status if isinstance(error, RequestError) else 422
    return respond_json({"error": shorten_message(error)}, status)


async def respond_http_error(_: Request, error: Any) -> Response:
    """The response to a request that starlette rejects."""
    messages = {
        404: "there is nothing at this address. Open the page at /.",
        405: "this address does not support the request method. Open the page at /.",
    }
    message = messages.get(error.status_code, str(error.detail))
    return respond_json({"error": message}, error.status_code)


async def respond_bug(_: Request, __: Exception) -> Response:
    """The response if our code fails; starlette logs the error."""
    return respond_json({"error": "the server failed. Its terminal shows the error."}, 500)


def _not_stored(kind: str) -> RequestError:
    return RequestError(
        f"the {kind} is unknown or no longer stored.", fix="Explain the text again.", status=404
    )
