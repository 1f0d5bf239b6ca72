"""Chats: messages turned into text by the template of the tokenizer, with the place of each one.

Tokens of the template, such as `<|im_start|>user`, count as special tokens: they are the form of a
chat, not its content.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from attnflow.errors import InputError, quote
from attnflow.models.loading import LoadedModel

ASSISTANT = "assistant"


@dataclass(frozen=True)
class RenderedChat:
    """A chat as text.

    text: with the markup of the template. spans: the role of each message, and the start and end of
    its content in the text. answer: the content of the last message, if it is the assistant's.
    """

    text: str
    spans: tuple[tuple[str, int, int], ...]
    answer: str | None = None


def is_chat(value: Any) -> bool:
    """Whether a value is a list of messages: mappings with a role."""
    return (
        isinstance(value, list | tuple)
        and len(value) > 0
        and all(isinstance(message, Mapping) and "role" in message for message in value)
    )


def render_chat(loaded: LoadedModel, messages: Sequence[Mapping[str, Any]]) -> RenderedChat:
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
    answer = None
    if messages and messages[-1]["role"] == ASSISTANT:
        *messages, last = messages
        answer = content_of(last)
    text = _apply_template(loaded, messages)
    spans, cursor = [], 0
    for message in messages:
        content = content_of(message).strip()
        start = text.find(content, cursor) if content else -1
        if start >= 0:
            cursor = start + len(content)
            spans.append((str(message["role"]), start, cursor))
    return RenderedChat(text, tuple(spans), answer)


def _apply_template(loaded: LoadedModel, messages: Sequence[Mapping[str, Any]]) -> str:
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


def content_of(message: Mapping[str, Any]) -> str:
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
