"""Chats: messages turned into text by the template of the tokenizer, with the place of each one.

Tokens of the template, such as `<|im_start|>user`, count as special tokens: they are the form of a
chat, not its content. A system prompt that the template adds by itself is content, and a segment of
its own.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from attnflow.errors import InputError, quote
from attnflow.models.loading import LoadedModel

ASSISTANT, SYSTEM = "assistant", "system"
DEFAULT_PROMPT = "default system prompt"
# Characters for private use, which stand for the texts of messages; no template has them.
MARK = re.compile("\ue0f0([0-9]+)\ue0f1")
TAIL = 12  # characters of the template before a text, to find it where the template changed others

Message: TypeAlias = Mapping[str, Any]


@dataclass(frozen=True)
class RenderedChat:
    """A chat as text.

    text: with the markup of the template. spans: the role of each message, and the start and end of
    its content in the text. answer: the content of the last message, if it is the assistant's.
    default: where the template's own system prompt is, if it adds one.
    """

    text: str
    spans: tuple[tuple[str, int, int], ...]
    answer: str | None = None
    default: tuple[int, int] | None = None


def is_chat(value: Any) -> bool:
    """Whether a value is a list of messages: mappings with a role."""
    return (
        isinstance(value, list | tuple)
        and len(value) > 0
        and all(isinstance(message, Mapping) and "role" in message for message in value)
    )


def render_chat(loaded: LoadedModel, messages: Sequence[Message]) -> RenderedChat:
    """Turn messages into text up to the point where the assistant answers.

    messages: as chat templates take them, with "role" and "content". If the last one is the
    assistant's, it is the answer, and the text ends before it.
    Raises InputError without a chat template, or for messages that the template refuses.
    """
    for i, message in enumerate(messages):
        if "role" not in message:
            raise InputError(
                f"message {i} is {quote(message)}",
                expected='a role and a content, such as {"role": "user", "content": "Hello"}',
                fix="Pass such messages.",
            )
        content_of(message)  # checks it
    answer = None
    if messages and messages[-1]["role"] == ASSISTANT:
        *messages, last = messages
        answer = content_of(last)

    def render(chat: Sequence[Message]) -> str:
        return _apply_template(loaded, chat)

    text = render(messages)
    spans = locate_messages(render, messages, text)
    return RenderedChat(text, spans, answer, _find_default_prompt(render, messages, text))


def locate_messages(
    render: Callable[[Sequence[Message]], str], messages: Sequence[Message], text: str
) -> tuple[tuple[str, int, int], ...]:
    """Return the role of each message, and the start and end of its content in a rendered chat.

    The template is rendered once more with marks in place of the contents, so that a content is not
    mistaken for the same words in the template. A message that the template leaves out or rewrites
    has no place.
    """
    contents: list[tuple[int, str]] = []  # the message and the text of each mark

    def mark(number: int, content: str) -> str:
        contents.append((number, content))
        return f"\ue0f0{len(contents) - 1}\ue0f1"

    marked = [_replace_text(message, i, mark) for i, message in enumerate(messages)]
    try:
        skeleton = render(marked)
    except InputError:  # the template reads what the messages say
        return ()
    pieces = MARK.split(skeleton)  # template, number, template, number, ...
    places: dict[int, tuple[int, int]] = {}
    end = 0
    for before, number in zip(pieces[::2], pieces[1::2], strict=False):
        message, content = contents[int(number)]
        found = _find_content(text, before, content, end)
        if found is not None:
            end = found[1]
            places[message] = (places.get(message, found)[0], end)
    return tuple((str(messages[i]["role"]), *places[i]) for i in sorted(places))


def _replace_text(message: Message, number: int, mark: Callable[[int, str], str]) -> Message:
    """The message with a mark in place of its text, or of each of its texts."""
    content = message.get("content")
    if isinstance(content, str):
        return {**message, "content": mark(number, content)}
    if not isinstance(content, list | tuple):
        return message
    parts = [
        {**part, "text": mark(number, str(part["text"]))}
        if isinstance(part, Mapping) and "text" in part
        else part
        for part in content
    ]
    return {**message, "content": parts}


def _find_content(text: str, before: str, content: str, cursor: int) -> tuple[int, int] | None:
    """The place of a content after its part of the template, from the cursor on; many trim it."""
    tail = before[-TAIL:]
    for written in filter(None, dict.fromkeys((content, content.strip()))):
        if text.startswith(before + written, cursor):
            start = cursor + len(before)
        else:
            start = text.find(tail + written, cursor) + len(tail)
            if start < len(tail):
                continue
        return start, start + len(written)
    return None


def _find_default_prompt(
    render: Callable[[Sequence[Message]], str], messages: Sequence[Message], text: str
) -> tuple[int, int] | None:
    """The system prompt that a template adds by itself: what a message of the system replaces."""
    if any(message["role"] == SYSTEM for message in messages):
        return None
    mark = "\ue0f0-1\ue0f1"
    try:
        header, found, rest = render([{"role": SYSTEM, "content": mark}, *messages]).partition(mark)
    except InputError:  # a template without such messages
        return None
    end = len(text) - len(rest)
    if not found or not text.startswith(header) or not text.endswith(rest) or end <= len(header):
        return None
    return len(header), end


def _apply_template(loaded: LoadedModel, messages: Sequence[Message]) -> str:
    tokenizer = loaded.tokenizer
    if not getattr(tokenizer, "chat_template", None):
        raise InputError(
            f"messages were given, and the tokenizer of {loaded.name} has no chat template",
            expected="a model for chats",
            fix="Pass the prompt as a text instead.",
        )
    try:
        return str(
            tokenizer.apply_chat_template(
                [dict(message) for message in messages],
                tokenize=False,
                add_generation_prompt=True,
            )
        )
    except Exception as error:  # templates raise errors of their own
        raise InputError(
            f"the chat template of {loaded.name} refuses the messages ({error})",
            expected="the roles and the order that the template knows",
            fix="Check the roles; most templates start with a system or user message.",
        ) from error


def content_of(message: Message) -> str:
    """The text of a message; of several parts, the texts."""
    content = message.get("content")
    if isinstance(content, str):
        return content
    if content is None:
        return ""
    if isinstance(content, list | tuple):
        parts = [part.get("text", "") if isinstance(part, Mapping) else "" for part in content]
        return "".join(str(part) for part in parts)
    raise InputError(
        f"the content of a message is {quote(content)}",
        expected="a text, or a list of parts",
        fix='For example {"role": "user", "content": "Hello"}.',
    )
