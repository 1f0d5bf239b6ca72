"""How far a corpus is, on stderr: a bar on a terminal, a log elsewhere. And how to stop it."""

import os
import signal
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from importlib import import_module
from typing import TYPE_CHECKING, Any

import typer

from attnflow.cli.options import EVERY

if TYPE_CHECKING:
    from attnflow.corpus.progress import Progress

SEPARATOR = " · "
NARROWEST = 4  # columns of a terminal for the bar itself, the least that Rich draws
SIGNALS = (signal.SIGINT, signal.SIGTERM)


@contextmanager
def shown_progress(quiet: bool) -> "Iterator[Callable[[Progress], None] | None]":
    """A function to report to; None if nothing is to be shown."""
    if quiet:
        yield None
    elif sys.stderr.isatty():
        with _bar() as report:
            yield report
    else:
        yield _Log()


class _Log:
    """Prints a line now and then."""

    def __init__(self) -> None:
        self.last = 0.0

    def __call__(self, progress: "Progress") -> None:
        if progress.seconds - self.last >= EVERY:
            self.last = progress.seconds
            typer.echo(f"attnflow: {describe(progress)}", err=True)


def describe(progress: "Progress") -> str:
    """How far a run is, in one line.

    >>> from attnflow.corpus.progress import Progress
    >>> describe(Progress(1500, 6000, 500, 2, 20_000, 10.0))
    '1,500 of 6,000 rows (25.0 %), 50 examples/s, 1:30 left, 2 refused, 2,000 flow pairs/s'
    """
    done = f"{progress.done:,} rows"
    if progress.total:
        share = 100 * progress.done / progress.total
        done = f"{progress.done:,} of {progress.total:,} rows ({share:.1f} %)"
    return ", ".join([done, *_rates(progress)])


def _rates(progress: "Progress") -> list[str]:
    """What changes as a run goes on, the least important last, where a terminal may cut it."""
    parts = [f"{_short(progress.rate)} examples/s"]
    if progress.left is not None:
        parts.append(f"{clock(progress.left)} left")
    parts.append(f"{progress.refused:,} refused")
    if progress.pairs:
        parts.append(f"{_short(progress.pair_rate)} flow pairs/s")
    return parts


def fit_rates(progress: "Progress", room: int) -> str:
    """What changes as a run goes on, in so many characters: shorter, or with less of it.

    >>> from attnflow.corpus.progress import Progress
    >>> progress = Progress(1500, 6000, 500, 2, 20_000, 10.0)
    >>> for room in (60, 50, 20):
    ...     print(fit_rates(progress, room))
    50 examples/s · 1:30 left · 2 refused · 2,000 flow pairs/s
    50 ex/s · 1:30 left · 2 refused · 2,000 pairs/s
    50 ex/s · 1:30 left
    """
    parts = _rates(progress)
    if len(SEPARATOR.join(parts)) > room:
        parts = [
            part.replace("examples/s", "ex/s").replace("flow pairs", "pairs") for part in parts
        ]
    while len(parts) > 1 and len(SEPARATOR.join(parts)) > room:
        parts.pop()
    return SEPARATOR.join(parts)


def clock(seconds: float) -> str:
    """Seconds as hours, minutes and seconds.

    >>> clock(59.7), clock(3723)
    ('1:00', '1:02:03')
    """
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"


def _short(rate: float) -> str:
    return f"{rate:,.0f}" if rate >= 10 else f"{rate:.1f}"


@contextmanager
def _bar() -> "Iterator[Callable[[Progress], None]]":
    from rich.console import Console
    from rich.progress import BarColumn, TextColumn
    from rich.progress import Progress as Bar

    columns: tuple[Any, ...] = (
        BarColumn(bar_width=None),
        TextColumn("{task.fields[done]}"),
        TextColumn("{task.fields[rates]}", style="dim"),
    )
    with Bar(*columns, console=Console(stderr=True), expand=True, transient=True) as bar:
        task = bar.add_task("", total=None, done="loading the model", rates="")

        def report(progress: "Progress") -> None:
            total = f"/{progress.total:,}" if progress.total else ""
            done = f"{progress.done:,}{total}"
            room = bar.console.width - NARROWEST - len(done) - 2  # and the gaps between the columns
            bar.update(
                task,
                completed=progress.done,
                total=progress.total,
                done=done,
                rates=fit_rates(progress, room),
            )

        yield report


@contextmanager
def plain_warnings() -> Iterator[None]:
    """Print each warning once, as a line of ours, and keep other packages from drawing bars."""
    with suppress(ImportError):  # the library will say that transformers is missing
        import_module("transformers.utils.logging").disable_progress_bar()
    with warnings.catch_warnings():
        warnings.simplefilter("once", UserWarning)
        warnings.showwarning = lambda message, *_, **__: typer.echo(
            f"attnflow: {message}", err=True
        )
        yield


class Stopper:
    """Whether the user asked to stop, and by which signal."""

    def __init__(self) -> None:
        self.signal: int | None = None

    def __call__(self) -> bool:
        """Whether to stop."""
        return self.signal is not None

    @property
    def exit_code(self) -> int:
        """What a shell expects of a program that a signal stopped: 130 for Ctrl-C."""
        return 128 + (self.signal or signal.SIGINT)


@contextmanager
def stopping(*, at_once: bool) -> Iterator[Stopper]:
    """Let Ctrl-C (or a TERM signal) finish the shard in hand; the second one stops at once.

    at_once: whether the second ends the process; otherwise it raises KeyboardInterrupt, which
    leaves time to hand back what was borrowed. Either way finished shards are safe.
    """
    stopper = Stopper()

    def handle(number: int, _frame: Any) -> None:
        if stopper.signal is None:
            stopper.signal = number
            typer.echo(
                "\nattnflow: finishing the shard in hand; Ctrl-C again stops at once", err=True
            )
            return
        sys.stderr.write("\x1b[?25h" if sys.stderr.isatty() else "")  # the bar hid the cursor
        sys.stderr.flush()
        if at_once:
            os._exit(128 + number)
        raise KeyboardInterrupt

    before = {number: signal.signal(number, handle) for number in SIGNALS}
    try:
        yield stopper
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
