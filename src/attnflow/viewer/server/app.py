"""The local page: a text and a model in, a view to explore out. Routes and their answers.

Who may ask is decided in `guard`; computing happens in other processes, through `jobs`.

Reading requests within their limits, and writing answers: a sentence for whatever is refused.
"""

import asyncio
import json
import tempfile
from collections.abc import Sequence
from contextlib import asynccontextmanager
from dataclasses import asdict
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from attnflow.errors import AttnflowError, MissingDependencyError
from attnflow.viewer.page import MODULE, read_asset
from attnflow.viewer.payload import Payload, flow_rows
from attnflow.viewer.server.jobs import Jobs
from attnflow.viewer.server.security import App, Guard, Limits, RequestError
from attnflow.viewer.server.workers import ExplainTask, ModelInfo, ReadTask

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from starlette.requests import Request
    from starlette.responses import Response


JSON, BINARY = "application/json", "application/octet-stream"


def respond(body: bytes, kind: str, status: int = 200) -> "Response":
    """An answer of this kind of content."""
    from starlette.responses import Response

    return Response(body, status, media_type=kind)


def respond_json(value: Any, status: int = 200) -> "Response":
    """JSON in ASCII, since texts may hold half surrogate pairs."""
    return respond(json.dumps(value).encode("ascii"), JSON, status)


async def answer_refused(_: "Request", error: Any) -> "Response":
    """A sentence for everything that is refused, by us or by the framework."""
    if isinstance(error, RequestError):
        return respond_json({"error": str(error)}, error.status)
    if isinstance(error, AttnflowError):
        return respond_json({"error": str(error)}, 422)
    sentences = {
        404: "there is nothing at this address. Open the page at /.",
        405: "this address does not take such a request. Open the page at /.",
    }
    sentence = sentences.get(error.status_code, str(error.detail))
    return respond_json({"error": sentence}, error.status_code)


async def answer_broken(_: "Request", __: Exception) -> "Response":
    """A sentence for a bug of ours; the framework logs it."""
    sentence = "something went wrong in the server, which goes on. Its terminal says what."
    return respond_json({"error": sentence}, 500)


def expect_type(request: "Request", expected: str) -> None:
    """Raise RequestError unless the body is of this type, which no form of another page sends."""
    given = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if given != expected:
        raise RequestError(
            f"the body is of the type {given[:80]!r}; expected {expected}. Send it as that.", 415
        )


async def read_body(request: "Request", most: int, seconds: float, sentence: str) -> bytes:
    """The body, if it comes in time. sentence: what to say if it has more than `most` bytes."""
    too_large = RequestError(sentence, 413)
    length = request.headers.get("content-length", "0")
    if not length.isdigit() or int(length) > most:
        raise too_large
    parts, size = [], 0
    try:
        async with asyncio.timeout(seconds):
            async for part in request.stream():
                size += len(part)
                if size > most:
                    raise too_large
                parts.append(part)
    except TimeoutError:
        raise RequestError(
            f"the body did not come within {seconds:g} seconds. Send it faster.", 408
        ) from None
    return b"".join(parts)


def parse_json(body: bytes) -> Any:
    """What the body says. Raises RequestError if it is not JSON."""
    try:
        return json.loads(body)
    except (ValueError, RecursionError):
        raise RequestError("the body is not JSON; expected JSON. Send it as that.", 400) from None


def read_number(request: "Request", name: str, end: int, first: int = 0) -> int:
    """A whole number of the query, from `first` up to before `end`."""
    text = request.query_params.get(name, "")
    if text.isascii() and text.isdigit() and len(text) < 9 and first <= int(text) < end:
        return int(text)
    raise RequestError(
        f"{name} is {text[:40]!r}; expected a whole number from {first} to {end - 1}. Ask for one "
        "of these.",
        400,
    )


def unknown_result(what: str) -> RequestError:
    """The refusal of what was never there, or is there no more."""
    return RequestError(
        f"this {what} is not known, or no longer kept. Explain the text again.", 404
    )


MOST_EXAMPLES = 2  # to compare
MOST_NAME = 200  # characters of the name of a file
MOST_UPLOADS = 2  # files that arrive at the same time, each of which is in memory meanwhile
# All that is served as files: read once, by these names and no others.
ASSETS = {
    "/": ("page.html", "text/html"),
    "/page.css": ("page.css", "text/css"),
    "/page.js": ("page.js", "text/javascript"),
    f"/{MODULE}": (MODULE, "text/javascript"),
}


def import_starlette(purpose: str) -> Any:
    """Import starlette, or say what it is needed for and how to install it."""
    try:
        return import_module("starlette.applications")
    except ImportError as error:
        raise MissingDependencyError(
            f"starlette is not installed and {purpose} needs it. "
            "Install it: pip install 'attnflow[serve]'"
        ) from error


def create_app(
    jobs: Jobs, models: Sequence[ModelInfo], *, limits: Limits, hosts: frozenset[str]
) -> App:
    """The application, to be run by an ASGI server.

    models: those that the workers of `jobs` have loaded, in their order. hosts: the names that it
    answers to. Closing it closes the jobs.
    """
    starlette = import_starlette("the local page")
    from starlette.exceptions import HTTPException
    from starlette.routing import Route

    page = Page(jobs, models, limits)

    @asynccontextmanager
    async def lifespan(_: Any) -> "AsyncIterator[None]":
        yield
        jobs.close()

    result = "/api/explanations/{name}"
    routes = [Route(path, page.asset) for path in ASSETS]
    routes += [
        Route("/api/models", page.models),
        Route("/api/explanations", page.explain, methods=["POST"]),
        Route("/api/attentions", page.read, methods=["POST"]),
        Route("/api/jobs/{name}", page.job),
        Route(f"{result}/header", page.header),
        Route(f"{result}/chunks/{{key:path}}", page.chunk),
        Route(f"{result}/flow", page.flow),
    ]
    handlers = {
        AttnflowError: answer_refused,
        HTTPException: answer_refused,
        Exception: answer_broken,
    }
    app = starlette.Starlette(routes=routes, exception_handlers=handlers, lifespan=lifespan)
    return Guard(app, hosts)


class Page:
    """The answers to requests."""

    def __init__(self, jobs: Jobs, models: Sequence[ModelInfo], limits: Limits) -> None:
        self._jobs, self._models, self._limits = jobs, tuple(models), limits
        self._uploads = 0  # that arrive just now
        self._assets = {path: read_asset(name) for path, (name, _) in ASSETS.items()}

    async def asset(self, request: "Request") -> "Response":
        """A file of the page."""
        path = request.url.path
        return respond(self._assets[path].encode("utf-8"), ASSETS[path][1])

    async def models(self, _: "Request") -> "Response":
        """The models to choose from, and the limits."""
        models = [asdict(model) for model in self._models]
        limits = {"text_length": self._limits.text_length, "upload": self._limits.upload_bytes}
        return respond_json({"models": models, "limits": limits})

    async def explain(self, request: "Request") -> "Response":
        """Start explaining one text, or several to compare."""
        expect_type(request, JSON)
        most = (
            MOST_EXAMPLES * 12 * self._limits.text_length + 4096
        )  # a character may be \\ud83d\\ude00
        too_large = (
            f"the text is too long; expected at most {self._limits.text_length} characters. "
            "Shorten it, or start the server with a larger --max-text."
        )
        body = await read_body(request, most, self._limits.seconds, too_large)
        task = ExplainTask(self._examples(parse_json(body)))
        return respond_json({"job": self._jobs.submit(task)}, 202)

    async def read(self, request: "Request") -> "Response":
        """Start reading saved attentions, which are the body as it is. name: what to call them."""
        expect_type(request, BINARY)
        most = self._limits.upload_bytes
        too_large = (
            f"the file is too large: at most {most / 1e6:g} MB. Open a smaller one, or start the "
            "server with a larger --max-upload."
        )
        if self._uploads >= MOST_UPLOADS:
            raise RequestError(
                f"the server is busy: {self._uploads} files arrive already. Try again in a moment.",
                503,
            )
        self._uploads += 1
        try:
            body = await read_body(request, most, self._limits.seconds, too_large)
        finally:
            self._uploads -= 1
        name = request.query_params.get("name", "")[:MOST_NAME] or "saved attentions"
        with tempfile.NamedTemporaryFile(suffix=".safetensors", delete=False) as file:
            file.write(body)
        path = Path(file.name)
        try:
            task = ReadTask(str(path), name)
            job = self._jobs.submit(task, after=lambda: path.unlink(missing_ok=True))
        except BaseException:
            path.unlink(missing_ok=True)
            raise
        return respond_json({"job": job}, 202)

    async def job(self, request: "Request") -> "Response":
        """How far a computation is."""
        job = self._jobs.job(request.path_params["name"])
        if job is None:
            raise unknown_result("computation")
        return respond_json(asdict(job))

    async def header(self, request: "Request") -> "Response":
        """The header of a result."""
        return respond(self._result(request).header_json().encode("ascii"), JSON)

    async def chunk(self, request: "Request") -> "Response":
        """One array of a result; float16."""
        payload, key = self._result(request), request.path_params["key"]
        return respond(await asyncio.to_thread(payload.chunk, key), BINARY)

    async def flow(self, request: "Request") -> "Response":
        """The flow of one position at one layer of a result; float32."""
        payload = self._result(request)
        example = read_number(request, "example", len(payload.examples))
        one = payload.examples[example]
        position = read_number(request, "position", len(one.tokens))
        layer = read_number(request, "layer", one.graph.n_layers + 1, first=1)
        rows = flow_rows(one)
        if rows is None or position in rows:
            row: Any = payload.flow(example, position, layer)
        else:
            row = await asyncio.wrap_future(self._jobs.flow(payload, example, position, layer))
        return respond(np.ascontiguousarray(row, dtype="<f4").tobytes(), BINARY)

    def _result(self, request: "Request") -> Payload:
        payload = self._jobs.result(request.path_params["name"])
        if payload is None:
            raise unknown_result("result")
        return payload

    def _examples(self, given: Any) -> tuple[tuple[str, int], ...]:
        """Texts and models of a request, checked."""
        examples = given.get("examples") if isinstance(given, dict) else None
        if not isinstance(examples, list) or not 1 <= len(examples) <= MOST_EXAMPLES:
            raise RequestError(
                f"the request has no list of 1 to {MOST_EXAMPLES} examples; expected "
                '{"examples": [{"text": "...", "model": 0}]}. Send it like that.',
                400,
            )
        return tuple(self._example(one) for one in examples)

    def _example(self, one: Any) -> tuple[str, int]:
        text = one.get("text") if isinstance(one, dict) else None
        model = one.get("model") if isinstance(one, dict) else None
        if not isinstance(text, str) or not text.strip():
            raise RequestError(
                "there is no text; expected at least one word. Type a text to explain.", 400
            )
        if len(text) > self._limits.text_length:
            raise RequestError(
                f"the text has {len(text)} characters; expected at most "
                f"{self._limits.text_length}. Shorten it, or start the server with a larger "
                "--max-text.",
                413,
            )
        if type(model) is not int or not 0 <= model < len(self._models):
            raise RequestError(
                f"there is no model {str(model)[:40]!r}; expected the number of one that the "
                f"server was started with, 0 to {len(self._models) - 1}. Choose one of the list.",
                400,
            )
        return text, model
