"""What the page sends to explain: texts, chats and options, and how they are read."""

from collections.abc import Mapping
from typing import Any

from attnflow.edges.registry import EDGES
from attnflow.viewer.server.security import Limits, RequestError

HEADS = ("mean", "max", "min")
MEASURED = "measured"
MAX_NAME = 200  # characters of a class or token
MAX_ROLE = 40  # characters of the role of a message
MAX_MESSAGES = 50  # of a chat
MAX_TEMPERATURE = 10


def list_options() -> dict[str, Any]:
    """The choices of the page: edges with titles, and ways to merge heads."""
    edges = [
        {"name": edges.name, "title": edges.title, "summary": edges.summary} for edges in EDGES
    ]
    return {"edges": edges, "heads": list(HEADS)}


def read_options(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Read the options of an example; those that are missing or empty have their defaults.

    edges: a registered name. heads: a way to merge them, or the index of a head. residual_weight: a
    number from 0 to 1, or "measured". target, against: a class or token, by index or name.
    Raises RequestError for an invalid value. Whether options fit together and to the model is
    checked by `explain`.
    """
    readers = {
        "edges": _read_edges,
        "heads": _read_heads,
        "residual_weight": _read_residual,
        "target": _read_name,
        "against": _read_name,
    }
    given = {name: fields.get(name) for name in readers}
    return {
        name: readers[name](name, value) for name, value in given.items() if value not in (None, "")
    }


def read_input(fields: Mapping[str, Any], limits: Limits) -> tuple[str, dict[str, Any]]:
    """Read the text of an example, or its chat, and what to do with it.

    text: a text, which may have a second one, text_pair; or messages: a list of role and content.
    generate: the number of tokens to generate, with the options of `_read_sampling`.
    continuation: a given answer instead.
    Returns the text, which is empty for a chat, and options of `explain`.
    Raises RequestError if something is missing, invalid or too long.
    """
    options: dict[str, Any] = {}
    texts = []
    if fields.get("messages"):
        options["messages"] = _read_messages(fields["messages"])
        texts = [message["content"] for message in options["messages"]]
    else:
        texts.append(_read_text("text", fields.get("text")))
        if fields.get("text_pair"):
            texts.append(_read_text("second text", fields["text_pair"]))
            options["text_pair"] = texts[-1]
    if fields.get("continuation"):
        texts.append(_read_text("continuation", fields["continuation"]))
        options["continuation"] = texts[-1]
    if fields.get("generate") not in (None, ""):
        options["generate"] = _read_generate(fields["generate"], limits)
        sampling = _read_sampling(fields)
        if "seed" in sampling:
            options["seed"] = sampling.pop("seed")
        if sampling:
            options["generate"] = {"max_new_tokens": options["generate"], **sampling}
    length = sum(map(len, texts))
    if length > limits.text_length:
        raise text_too_long(f"the text has {length} characters", limits)
    return "" if "messages" in options else texts[0], options


def _read_text(name: str, value: Any) -> str:
    if not isinstance(value, str) or not value.strip():
        raise RequestError(f"there is no {name}", expected="at least one word", fix="Enter a text.")
    if any(0xD800 <= ord(character) < 0xE000 for character in value):
        raise RequestError(
            f"the {name} has half of a surrogate pair", expected="valid Unicode", fix="Remove it."
        )
    return value


def _read_messages(value: Any) -> list[dict[str, str]]:
    if not isinstance(value, list) or len(value) > MAX_MESSAGES:
        raise _invalid("messages", value, f"a list of at most {MAX_MESSAGES} messages")
    messages = []
    for message in value:
        role = message.get("role") if isinstance(message, dict) else None
        if not isinstance(role, str) or not 0 < len(role) <= MAX_ROLE:
            raise _invalid("a message", message, "a role and a content")
        messages.append({"role": role, "content": _read_text("message", message.get("content"))})
    return messages


def _read_generate(value: Any, limits: Limits) -> int:
    number = _as_index(value)
    if number is None or not 1 <= number <= limits.generated:
        raise RequestError(
            f"the number of tokens to generate is {str(value)[:40]!r}",
            expected=f"1 to {limits.generated}",
            fix="Generate fewer, or start the server with a larger --max-generate.",
        )
    return number


def _read_sampling(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Read how tokens are sampled; without these options, as the model is configured.

    temperature: from 0, which takes the most probable token. top_p: the probability that the most
    probable tokens, from which one is sampled, have together. seed: a whole number.
    """
    options: dict[str, Any] = {}
    temperature = _read_number("temperature", fields.get("temperature"), MAX_TEMPERATURE)
    top_p = _read_number("top_p", fields.get("top_p"), 1)
    if temperature == 0:
        options["do_sample"] = False
    elif temperature is not None or top_p is not None:
        given = {"temperature": temperature, "top_p": top_p}
        options = {name: value for name, value in given.items() if value is not None}
        options["do_sample"] = True
    if fields.get("seed") not in (None, ""):
        options["seed"] = _as_index(fields["seed"])
        if options["seed"] is None:
            raise _invalid("seed", fields["seed"], "a whole number from 0")
    return options


def _read_number(name: str, value: Any, largest: float) -> float | None:
    """A number from 0, or None if it is missing; a probability is not 0."""
    if value in (None, ""):
        return None
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        number = -1.0
    if isinstance(value, bool) or not 0 <= number <= largest or (name == "top_p" and number == 0):
        bounds = f"above 0 and at most {largest}" if name == "top_p" else f"from 0 to {largest}"
        raise _invalid(name, value, f"a number {bounds}")
    return number


def text_too_long(given: str, limits: Limits) -> RequestError:
    """The error of a request with too many characters."""
    return RequestError(
        given,
        expected=f"a text of at most {limits.text_length} characters",
        fix="Shorten the text, or start the server with a larger --max-text.",
        status=413,
    )


def _read_edges(name: str, value: Any) -> str:
    if value in EDGES.names:
        return str(value)
    raise _invalid(name, value, f"one of {', '.join(EDGES.names)}")


def _read_heads(name: str, value: Any) -> int | str:
    number = _as_index(value)
    if number is not None:
        return number
    if value in HEADS:
        return str(value)
    raise _invalid(name, value, f"{', '.join(HEADS)}, or the index of a head")


def _read_residual(name: str, value: Any) -> float | str:
    if value == MEASURED:
        return MEASURED
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        number = -1.0
    if not 0 <= number <= 1 or isinstance(value, bool):
        raise _invalid(name, value, f"a number from 0 to 1, or {MEASURED!r}")
    return number


def _read_name(name: str, value: Any) -> int | str:
    number = _as_index(value)
    if number is not None:
        return number
    if not isinstance(value, str) or len(value) > MAX_NAME:
        raise _invalid(name, value, f"an index, or a name of at most {MAX_NAME} characters")
    return value


def _as_index(value: Any) -> int | None:
    """A whole number, also if it is written as text; None for others."""
    if type(value) is int and 0 <= value < 1_000_000_000:
        return value
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < 10:
        return int(value)
    return None


def _invalid(name: str, value: Any, expected: str) -> RequestError:
    return RequestError(
        f"{name} is {str(value)[:40]!r}", expected=expected, fix="Choose one of these."
    )
