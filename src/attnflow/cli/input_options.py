"""Options of `explain` for inputs beyond one text: answers, chats, pairs, and units of the text."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from attnflow.cli.options import SCORES
from attnflow.errors import FileError, InputError

if TYPE_CHECKING:
    from attnflow.explanation import Explanation

ANSWER = "Answer"  # a panel of the help


@dataclass(frozen=True, kw_only=True)
class InputOptions:
    """What is explained besides a text, and what is selected of it."""

    pair: Annotated[
        str | None,
        typer.Option(metavar="TEXT", help="The second text of a pair, as in inference tasks."),
    ] = None
    chat: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help='A JSON file with messages, [{"role": "user", "content": "..."}], instead of a '
            "text. A last message of the assistant is the answer to explain.",
        ),
    ] = None
    generate: Annotated[
        int | None,
        typer.Option(
            min=1,
            metavar="N",
            help="Generate up to N tokens after the text, and explain them.",
            rich_help_panel=ANSWER,
        ),
    ] = None
    continuation: Annotated[
        str | None,
        typer.Option(
            metavar="TEXT",
            help="Explain this answer instead of a generated one.",
            rich_help_panel=ANSWER,
        ),
    ] = None
    sampling: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=VALUE",
            help="An option of model.generate, such as do_sample=true, and with it "
            "temperature=0.7. May be repeated.",
            rich_help_panel=ANSWER,
        ),
    ] = None
    seed: Annotated[
        int, typer.Option(min=0, help="The seed of sampling.", rich_help_panel=ANSWER)
    ] = 0
    answer: Annotated[
        str | None,
        typer.Option(
            metavar="PART",
            help="The part of the answer to explain: whole, tokens, words or sentences for a row "
            "each, or a part of its text. Default: whole.",
            rich_help_panel=ANSWER,
        ),
    ] = None
    units: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Scores of tokens, words, sentences, or segments: messages of a chat, texts of a "
            "pair. Default: tokens.",
            rich_help_panel=SCORES,
        ),
    ] = None

    def arguments(self, text: str | None) -> dict[str, Any]:
        """Arguments of `explain`."""
        if (text is None) == (self.chat is None):
            raise InputError(
                "no text was given" if text is None else "a text and --chat were given",
                expected="a text or --chat FILE",
                fix='For example: attnflow explain "the keys to the cabinet".',
            )
        generate: Any = self.generate
        if self.sampling and generate is None:
            raise InputError(
                "--sampling was given without --generate",
                expected="both",
                fix="Add --generate 40.",
            )
        if self.sampling:
            generate = {"max_new_tokens": generate, **dict(map(_parse_option, self.sampling))}
        return {
            "text": text,
            "messages": None if self.chat is None else read_chat(self.chat),
            "text_pair": self.pair,
            "generate": generate,
            "continuation": self.continuation,
            "seed": self.seed,
        }

    def selection(self, explanation: "Explanation", words: bool) -> dict[str, Any]:
        """Arguments of `Explanation.attribute`."""
        selected: dict[str, Any] = {"words": words}
        if self.units is not None:
            selected["units"] = self.units
        elif words and explanation.answer is not None:
            selected["units"] = "words"
        if self.answer is not None:
            selected["answer"] = self.answer
        return selected

    def view(self, words: bool) -> dict[str, Any]:
        """Arguments of `Explanation.to_html`: what the page shows when it opens."""
        view: dict[str, Any] = {}
        if self.units is not None or words:
            view["units"] = self.units or "words"
        if self.answer is not None and self.answer not in ("tokens", "words", "sentences"):
            view["answer"] = self.answer
        return view


def _parse_option(text: str) -> tuple[str, Any]:
    """NAME=VALUE with a value as JSON, or else a text."""
    name, mark, value = text.partition("=")
    if not mark or not name:
        raise InputError(
            f"--sampling is {text!r}",
            expected="NAME=VALUE",
            fix="For example --sampling do_sample=true --sampling temperature=0.7.",
        )
    try:
        return name, json.loads(value.lower() if value in ("True", "False") else value)
    except ValueError:
        return name, value


def read_chat(path: Path) -> list[Any]:
    """Read messages from a JSON file: a list, or an object with a list of messages.

    Raises FileError for anything else.
    """
    from attnflow.storage import read_text

    text = read_text(path)
    try:
        values = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise FileError(
            f"{path} is not JSON ({error})", expected="a list of messages", fix="Correct the file."
        ) from error
    messages = values.get("messages") if isinstance(values, dict) else values
    if not isinstance(messages, list) or not all(
        isinstance(message, dict) and "role" in message for message in messages
    ):
        raise FileError(
            f"{path} has no messages",
            expected='a list such as [{"role": "user", "content": "Hello"}]',
            fix="Give each message a role and a content.",
        )
    if not messages:
        raise FileError(f"{path} has no messages", expected="at least one", fix="Add a message.")
    return messages
