"""Reading requests within their limits, and writing answers: a sentence for whatever is refused."""

import asyncio
import json
from typing import TYPE_CHECKING, Any

from attnflow.errors import AttnflowError
from attnflow.viewer.limits import RequestError

if TYPE_CHECKING:
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
