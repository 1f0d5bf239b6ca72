"""Worker processes: as many as may compute at the same time, replaced when they end.

The process that computes for the local page: it loads the models once, and does one task a time.

It can be killed at any moment without harm to the server, which is what makes a limit on time
possible. It answers over a pipe: ("progress", stage, done, total), ("ready", models),
("done", result), ("refused", message) for what the caller can mend, or ("failed", what).
"""

import multiprocessing
import os
import queue
import signal
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from logging import ERROR, getLogger
from multiprocessing.connection import Connection
from pathlib import Path
from threading import Event
from time import monotonic
from typing import Any, Protocol, TypeAlias

from attnflow.errors import AttnflowError, InputError
from attnflow.graph import AttentionGraph
from attnflow.models.builtin.folders import find_folder
from attnflow.viewer.server.security import CrashError, Limits, TimeOutError

# What is being done, how much of it is done, and how much there is; (0, 0) if nobody knows.
Report: TypeAlias = Callable[[str, int, int], None]

EXAMPLE = "the film is short , and the acting is a joy to watch ."
AGREEMENT_EXAMPLE = "the author of the books on the old table"  # for what predicts a verb's number
MASKED_EXAMPLE = "the author of the books {} on the old table"


@dataclass(frozen=True)
class ModelInfo:
    """A model as the page offers it: its name, what it predicts, its limit, and a text to try."""

    label: str
    task: str
    tokens: int | None
    example: str


class Task(Protocol):
    """Something to compute. It travels to the worker, and its result back."""

    def run(self, models: Sequence[Any], limits: Limits, report: Report, /) -> Any:
        """Compute it. models: those of the worker."""


@dataclass(frozen=True)
class ExplainTask:
    """Texts to explain, each with the number of its model; several are compared."""

    examples: tuple[tuple[str, int], ...]

    def run(self, models: Sequence[Any], limits: Limits, report: Report) -> Any:
        """The payload of the viewer, with all its flows computed."""
        from attnflow.explainer import explain

        explanations = []
        for i, (text, model) in enumerate(self.examples):
            report("reading the text", i, len(self.examples))
            _check_length(models[model], text, limits)
            explanations.append(explain(text, models[model]))
        return _payload(explanations, None, report)


@dataclass(frozen=True)
class ReadTask:
    """Saved attentions to read from a file. name: what the page calls it."""

    path: str
    name: str

    def run(self, models: Sequence[Any], limits: Limits, report: Report) -> Any:  # noqa: ARG002
        """The payload of the viewer, with all its flows computed."""
        from attnflow.attentions import Attentions
        from attnflow.explanation import Explanation

        report("reading the file", 0, 0)
        try:
            attentions = Attentions.load(self.path)
        except InputError as error:
            # Where the server put the file is none of the browser's business.
            raise InputError(str(error).replace(self.path, "the file")) from None
        n, length = attentions.n_tokens, sum(map(len, attentions.tokens))
        if n > limits.tokens or length > limits.text_length:
            raise InputError(
                f"the file has {n} tokens of {length} characters",
                expected=f"at most {limits.tokens} and {limits.text_length}",
                fix="Save a shorter text, or start the server with larger limits.",
            )
        return _payload([Explanation.from_attentions(attentions)], self.name, report)


@dataclass(frozen=True)
class FlowTask:
    """The flow of one position at one layer of a graph."""

    graph: AttentionGraph
    position: int
    layer: int

    def run(self, models: Sequence[Any], limits: Limits, report: Report) -> Any:  # noqa: ARG002
        """The flow to each token, [tokens]."""
        from attnflow.methods.flow import flow

        result = flow(self.graph, layers=self.layer, positions=self.position)
        return result.to_numpy()[0, 0]


def work(connection: Connection, names: Sequence[str], limits: Limits) -> None:
    """Load the models, then do what comes over the pipe until it is closed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the server decides when to end
    _be_killed_first()

    def report(stage: str, done: int, total: int) -> None:
        connection.send(("progress", stage, done, total))

    with suppress(BrokenPipeError, EOFError):  # the server is gone
        loaded = _attempt(connection, lambda: _load(names, report))
        if loaded is None:
            return
        connection.send(("ready", [describe(model) for model in loaded]))
        while True:
            task: Task = connection.recv()
            done = _attempt(connection, partial(task.run, loaded, limits, report))
            if done is not None:
                connection.send(("done", done))


def _attempt(connection: Connection, action: Callable[[], Any]) -> Any:
    """What the action returns; None after saying why not."""
    try:
        return action()
    except AttnflowError as error:
        connection.send(("refused", str(error)))
    except BrokenPipeError:
        raise
    except Exception as error:  # whatever a model raises: the page says so, and the next may work
        connection.send(("failed", f"{type(error).__name__}: {error}"[:300]))
    return None


def _be_killed_first() -> None:
    """Should memory run out, Linux is to end this process, and not the server."""
    with suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("1000", encoding="ascii")


def _load(names: Sequence[str], report: Report) -> list[Any]:
    from attnflow.models.loading import load_model

    report("loading the models", 0, len(names))
    with suppress(ImportError):  # loading says what is missing
        import_module("transformers.utils.logging").disable_progress_bar()
    getLogger("huggingface_hub").setLevel(ERROR)  # we say ourselves what cannot be found
    loaded = []
    for i, name in enumerate(names):
        report(f"loading {os.path.basename(name) or name}", i, len(names))  # noqa: PTH119
        _refuse_pictures(name)
        loaded.append(load_model(name))
    return loaded


def _refuse_pictures(name: str) -> None:
    """Raise InputError for a folder with a vision model, whose missing tokenizer is no mistake."""
    folder = Path(name)
    if (folder / "preprocessor_config.json").is_file() and not any(folder.glob("*token*")):
        raise InputError(
            f"the folder {name} holds a model of pictures",
            expected="one of texts, which is what the page takes",
            fix=f"For a picture: attnflow explain-image PICTURE --html FILE --model {name}",
        )


def describe(loaded: Any) -> ModelInfo:
    """What the page says of a model."""
    label = Path(loaded.name).resolve().name if Path(loaded.name).exists() else loaded.name
    mask = getattr(loaded.tokenizer, "mask_token", None)
    masked = loaded.task == "masked_lm" and mask
    example = EXAMPLE if find_folder(loaded.name) is None else AGREEMENT_EXAMPLE
    if masked:
        example = MASKED_EXAMPLE.format(mask)
    return ModelInfo(label, loaded.task, loaded.max_length, example)


def _check_length(loaded: Any, text: str, limits: Limits) -> None:
    from attnflow.models.inputs import encode_text

    try:
        n = len(encode_text(loaded, text).tokens)
    except InputError as error:
        raise InputError(_for_the_page(str(error))) from None
    if n > limits.tokens:
        raise InputError(
            f"the text has {n} tokens",
            expected=f"at most {limits.tokens}",
            fix="Shorten it, or start the server with a larger --max-tokens.",
        )


def _for_the_page(sentence: str) -> str:
    """A refusal without what only the library can do.

    >>> _for_the_page("it is long. Shorten the text, split it, or cut it with truncate='cut'.")
    'it is long. Shorten the text.'
    """
    said, found, _ = sentence.partition("Shorten the text, ")
    return f"{said}Shorten the text." if found else sentence


def _payload(explanations: Sequence[Any], title: str | None, report: Report) -> Any:
    from attnflow.viewer.payload import make_payload

    payload = make_payload(explanations, title=title)
    payload.compute(lambda done, total: report("computing flow", done, total))
    return payload


START_SECONDS = 1800.0  # to load the models, which may have to be downloaded


class Worker:
    """One process with the models loaded. models: what it says of them once it is ready."""

    def __init__(self, names: Sequence[str], limits: Limits) -> None:
        # A fresh process: a fork would copy the server's sockets and threads' locks.
        context = multiprocessing.get_context("spawn")
        self._connection, theirs = context.Pipe()
        self._process = context.Process(
            target=work, args=(theirs, tuple(names), limits), daemon=True, name="attnflow-worker"
        )
        self._process.start()
        theirs.close()
        self.models: list[ModelInfo] = []

    def wait_until_ready(self, report: Report) -> None:
        """Wait for the models. Raises InputError if one cannot be loaded."""
        self.models = self._await(report, START_SECONDS)

    def run(self, task: Task, report: Report, seconds: float) -> Any:
        """Do a task. Raises InputError, TimeOutError or CrashError; the last two end the worker."""
        try:
            self._connection.send(task)
        except OSError:
            self.kill()
            raise CrashError("its process had ended") from None
        return self._await(report, seconds)

    @property
    def alive(self) -> bool:
        """Whether it can take another task."""
        return not self._connection.closed and self._process.is_alive()

    def end(self) -> None:
        """End the process at once, whatever it does; from any thread."""
        self._process.kill()

    def kill(self) -> None:
        """End the process, and clear it away; from the thread that waits for it."""
        self.end()
        self._process.join()
        self._connection.close()

    def _await(self, report: Report, seconds: float) -> Any:
        deadline = monotonic() + seconds
        while True:
            try:
                if not self._connection.poll(max(0.0, deadline - monotonic())):
                    self.kill()
                    raise TimeOutError(seconds)
                kind, *rest = self._connection.recv()
            except (EOFError, OSError):
                self.kill()
                raise CrashError("its process ended") from None
            if kind == "progress":
                report(*rest)
            elif kind == "refused":
                raise InputError(rest[0])
            elif kind == "failed":
                raise CrashError(rest[0])
            else:
                return rest[0]


class WorkerPool:
    """Workers that take turns. Used from threads, one for each worker."""

    def __init__(self, names: Sequence[str], limits: Limits) -> None:
        self._names, self._limits = tuple(names), limits
        self._closed = Event()
        self._workers: set[Worker] = set()
        # Idle workers; None for one that has to be started first.
        self._idle: queue.LifoQueue[Worker | None] = queue.LifoQueue()
        for _ in range(limits.workers):
            self._idle.put(None)

    def start(self, report: Report) -> list[ModelInfo]:
        """Start one worker, the others when they are needed, and say what models there are.

        Raises InputError if a model cannot be loaded.
        """
        self._idle.get()
        worker = None
        try:
            worker = self._new_worker(report)
            return worker.models
        finally:
            self._idle.put(worker)

    def run(self, task: Task, report: Report) -> Any:
        """Do a task with the next idle worker; waits for one. The time limit starts then.

        Raises InputError, TimeOutError or CrashError.
        """
        worker = self._idle.get()
        try:
            if worker is None or not worker.alive:
                worker = None
                worker = self._new_worker(report)
            return worker.run(task, report, self._limits.seconds)
        finally:
            if worker is not None and not worker.alive:
                self._workers.discard(worker)
                worker = None
            self._idle.put(worker)

    def close(self) -> None:
        """End all workers; tasks that run are given up."""
        self._closed.set()
        for worker in list(self._workers):
            worker.end()

    def _new_worker(self, report: Report) -> Worker:
        if self._closed.is_set():
            raise CrashError("the server is closing")
        worker = Worker(self._names, self._limits)
        self._workers.add(worker)
        try:
            worker.wait_until_ready(report)
        except BaseException:
            self._workers.discard(worker)
            worker.kill()
            raise
        return worker
