"""Tasks: the computations that worker processes run, and the models that they run with.

A task is pickled, sent to a worker, and its result is sent back. Modules that load torch are
imported when a task runs, so that the server process does not load it.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from logging import ERROR, getLogger
from os.path import isfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from attnflow.errors import AttnflowError, InputError, MissingDependencyError
from attnflow.explanation import Explanation
from attnflow.graph import AttentionGraph
from attnflow.models.builtin import find_verb_number
from attnflow.models.loading import display_name
from attnflow.optional import import_optional
from attnflow.viewer.payload import Payload, group_flow_row, make_payload
from attnflow.viewer.server.security import Limits

if TYPE_CHECKING:
    from attnflow.models.loading import LoadedModel

# Called with the current stage, and steps done and in total; both 0 if they are unknown.
Report: TypeAlias = Callable[[str, int, int], None]

EXAMPLE = "the film is short , and the acting is a joy to watch ."
AGREEMENT_EXAMPLE = "the author of the books on the old table"  # for verb-number models
CHAT_EXAMPLE = "What is the capital of France?"
IMAGE = "image"  # the task of vision models
MAX_CLASSES = 1000  # that the page suggests as targets
MASKED_EXAMPLE = "the author of the books {} on the old table"


class Task(Protocol):
    """A computation for a worker process."""

    def run(self, models: "Sequence[LoadedModel]", limits: Limits, report: Report, /) -> Any:
        """Compute the result. models: those that the worker has loaded."""


@contextmanager
def hidden_path(path: str, name: str) -> Iterator[None]:
    """Replace a path in errors: the browser should not learn where the server stores files."""
    try:
        yield
    except AttnflowError as error:
        parts = (error.given, error.expected, error.fix)
        hidden = [part.replace(path, name).replace(Path(path).name, name) for part in parts]
        raise InputError(*hidden) from None
    except Exception as error:  # models and tokenizers raise anything
        raise RuntimeError(str(error).replace(path, name)) from error


class Question(NamedTuple):
    """A text to explain, the index of its model, and options of `explain`.

    The text is empty if the options have the messages of a chat.
    """

    text: str
    model: int
    options: Mapping[str, Any]


@dataclass(frozen=True)
class ExplainTask:
    """Explain texts; several are compared."""

    examples: tuple[Question, ...]

    def run(self, models: "Sequence[LoadedModel]", limits: Limits, report: Report) -> Payload:
        """Return the payload, with all scores computed."""
        from attnflow.explainer import explain

        explanations = []
        for i, (text, model, options) in enumerate(self.examples):
            stage = "generating the answer" if "generate" in options else "running the model"
            report(stage, i, len(self.examples))
            loaded = models[model]
            with hidden_path(loaded.name, display_name(loaded.name)):
                _check_kind(loaded, image=False)
                _check_length(loaded, text, options, limits)
                explanations.append(explain(text or None, loaded, **options))
        return _compute_payload(explanations, None, report)


@dataclass(frozen=True)
class ImageTask:
    """Explain an image. path: of its file. title: the name that the page shows.

    model: the index of a vision model. options: of `explain_image`.
    """

    path: str
    title: str
    model: int
    options: Mapping[str, Any]

    def run(
        self,
        models: "Sequence[LoadedModel]",
        limits: Limits,  # noqa: ARG002
        report: Report,
    ) -> Payload:
        """Return the payload, with all scores computed."""
        from attnflow.explainer import explain_image

        report("running the model", 0, 1)
        _check_kind(models[self.model], image=True)
        with hidden_path(self.path, "the image"):
            explanation = explain_image(self.path, models[self.model], **self.options)
        return _compute_payload([replace(explanation, text=self.title)], self.title, report)


@dataclass(frozen=True)
class ReadTask:
    """Read saved attentions from a file. title: of the page."""

    path: str
    title: str

    def run(
        self,
        models: "Sequence[LoadedModel]",  # noqa: ARG002
        limits: Limits,
        report: Report,
    ) -> Payload:
        """Return the payload, with all scores computed."""
        from attnflow.attentions import Attentions

        report("reading the file", 0, 0)
        with hidden_path(self.path, "the file"):
            attentions = Attentions.load(self.path)
        if attentions.n_layers > limits.layers:
            raise InputError(
                f"the file has {attentions.n_layers} layers",
                expected=f"at most {limits.layers}",
                fix="Save fewer layers.",
            )
        n_tokens, length = attentions.n_tokens, sum(map(len, attentions.tokens))
        if n_tokens > limits.tokens or length > limits.text_length:
            raise InputError(
                f"the file has {n_tokens} tokens with {length} characters",
                expected=f"at most {limits.tokens} tokens and {limits.text_length} characters",
                fix="Save a shorter text, or start the server with larger --max-tokens and "
                "--max-text.",
            )
        return _compute_payload([Explanation.from_attentions(attentions)], self.title, report)


@dataclass(frozen=True)
class FlowTask:
    """Compute the flow of one position, or of several as one source, at one layer of a graph."""

    graph: AttentionGraph
    positions: range
    layer: int

    def run(
        self,
        models: "Sequence[LoadedModel]",  # noqa: ARG002
        limits: Limits,  # noqa: ARG002
        report: Report,  # noqa: ARG002
    ) -> NDArray[np.float64]:
        """Return the flow to each token: [tokens]."""
        return np.asarray(group_flow_row(self.graph, self.positions, self.layer))


@dataclass(frozen=True)
class ModelInfo:
    """A model that the page offers: name, task, maximum number of tokens, and an example text.

    classes: the names of its classes, if it is a classifier. generates: whether it generates text.
    chats: whether it has a template for chats.
    """

    label: str
    task: str
    tokens: int | None
    example: str
    classes: tuple[str, ...] = ()
    generates: bool = False
    chats: bool = False


def load_models(names: Sequence[str], report: Report) -> "list[LoadedModel]":
    """Load models by folder or hub name. Raises InputError if one cannot be loaded."""
    from attnflow.models.loading import load_model
    from attnflow.models.vision import load_image_model

    report("loading the models", 0, len(names))
    with suppress(MissingDependencyError):  # load_model raises it, with the name of the model
        logs = import_optional("transformers.utils.logging", "loading a model")
        logs.disable_progress_bar()
    getLogger("huggingface_hub").setLevel(ERROR)  # our own errors say which model is missing
    models: list[Any] = []
    for i, name in enumerate(names):
        report(f"loading {Path(name).name or name}", i, len(names))
        models.append(load_image_model(name) if _is_vision_model(name) else load_model(name))
    return models


def describe_model(model: "LoadedModel") -> ModelInfo:
    """Describe a model for the page, with an example text that suits it."""
    label = display_name(model.name)
    if not hasattr(model, "tokenizer"):
        return ModelInfo(label, IMAGE, None, "", _list_classes(model))
    mask = getattr(model.tokenizer, "mask_token", None)
    if model.task == "masked_lm" and mask:
        example = MASKED_EXAMPLE.format(mask)
    else:
        example = EXAMPLE if find_verb_number(model.name) is None else AGREEMENT_EXAMPLE
    chats = bool(getattr(model.tokenizer, "chat_template", None))
    generates = model.task in ("causal_lm", "seq2seq")
    if chats:
        example = CHAT_EXAMPLE
    classes = _list_classes(model)
    return ModelInfo(
        label, model.task, model.max_length, example, classes, generates, chats and generates
    )


def _list_classes(model: "LoadedModel") -> tuple[str, ...]:
    """The names of the classes of a classifier, the first MAX_CLASSES of them."""
    names = getattr(getattr(model.model, "config", None), "id2label", None) or {}
    if model.task != "classifier":
        return ()
    return tuple(str(names[index]) for index in sorted(names))[:MAX_CLASSES]


def _is_vision_model(name: str) -> bool:
    """Whether a name is the folder of a vision model: with an image processor, no tokenizer."""
    folder = Path(name)
    is_there = isfile(folder / "preprocessor_config.json")  # noqa: PTH113 - no error if it is long
    return is_there and not any(folder.glob("*token*"))


def _check_kind(model: Any, *, image: bool) -> None:
    """Raise InputError for a text with a vision model, or an image with a text model."""
    if image == hasattr(model, "tokenizer"):
        kind, other = ("text", "vision") if image else ("vision", "text")
        raise InputError(
            f"the chosen model is a {kind} model",
            expected=f"a {other} model",
            fix="Choose another model, or open an image." if not image else "Enter a text.",
        )


def _check_length(
    model: "LoadedModel", text: str, options: Mapping[str, Any], limits: Limits
) -> None:
    """Raise InputError if a text and its answer may have more tokens than is allowed.

    options: of `explain`; the messages of a chat are the text, and tokens to generate count.
    """
    from attnflow.models.chats import render_chat

    chat = render_chat(model, options["messages"]) if "messages" in options else None
    answer = options.get("continuation") or (chat and chat.answer) or ""
    texts = [chat.text if chat else text, options.get("text_pair") or "", answer]
    try:
        n_tokens = sum(
            len(model.tokenizer(part, verbose=False)["input_ids"]) for part in texts if part
        )
    except Exception as error:  # tokenizers raise many kinds of errors
        raise InputError(
            f"the text cannot be tokenized ({type(error).__name__})",
            expected="plain text",
            fix="Remove unusual characters.",
        ) from error
    given = f"the text has {n_tokens} tokens, including special tokens"
    generate = options.get("generate")
    if generate:
        count = generate["max_new_tokens"] if isinstance(generate, Mapping) else generate
        n_tokens += count
        given += f", and {count} are to be generated"
    if model.max_length is not None and n_tokens > model.max_length:
        raise InputError(
            given, expected=f"at most {model.max_length} for this model", fix="Shorten the text."
        )
    if n_tokens > limits.tokens:
        raise InputError(
            given,
            expected=f"at most {limits.tokens}",
            fix="Shorten the text, or start the server with a larger --max-tokens.",
        )


def _compute_payload(
    explanations: Sequence[Explanation], title: str | None, report: Report
) -> Payload:
    payload = make_payload(explanations, title=title)
    payload.compute(lambda done, total: report("computing scores", done, total))
    return payload
