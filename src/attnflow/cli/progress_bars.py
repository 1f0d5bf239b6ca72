"""Progress of corpus runs on stderr: a bar on a terminal, log lines elsewhere; and stopping."""

import os
import signal
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import typer

from attnflow.cli.options import LOG_INTERVAL, silence_transformers

if TYPE_CHECKING:
    from attnflow.corpus.status import OnStatus, Status

SEPARATOR = " · "
MIN_BAR_WIDTH = 4  # characters, the least that Rich draws
SIGNALS = (signal.SIGINT, signal.SIGTERM)


@contextmanager
def show_status(quiet: bool) -> "Iterator[OnStatus | None]":
    """Yield a callback that shows the status of a run; None if quiet."""
    if quiet:
        yield None
    elif sys.stderr.isatty():
        with _status_bar() as on_status:
            yield on_status
    else:
        yield _StatusLog()


class _StatusLog:
    """Prints a line every LOG_INTERVAL seconds."""

    def __init__(self) -> None:
        self.last = 0.0

    def __call__(self, status: "Status") -> None:
        if status.seconds - self.last >= LOG_INTERVAL:
            self.last = status.seconds
            typer.echo(f"attnflow: {describe(status)}", err=True)


def describe(status: "Status") -> str:
    """Return the status of a run in one line.

    >>> from attnflow.corpus.status import Status
    >>> describe(Status(1500, 6000, 500, 2, 20_000, 10.0))
    '1,500 of 6,000 rows (25.0 %), 50 examples/s, 1:30 left, 2 rejected, 2,000 flow pairs/s'
    """
    done = f"{status.done:,} rows"
    if status.total:
        share = 100 * status.done / status.total
        done = f"{status.done:,} of {status.total:,} rows ({share:.1f} %)"
    return ", ".join([done, *_rates(status)])


def _rates(status: "Status") -> list[str]:
    """Return rates and counts, the least important last, where a narrow terminal drops them."""
    parts = [f"{_format_rate(status.rate)} examples/s"]
    if status.seconds_left is not None:
        parts.append(f"{clock(status.seconds_left)} left")
    parts.append(f"{status.rejected:,} rejected")
    if status.pairs:
        parts.append(f"{_format_rate(status.pair_rate)} flow pairs/s")
    return parts


def fit_rates(status: "Status", width: int) -> str:
    """Return rates and counts in at most so many characters: abbreviated, or fewer of them.

    >>> from attnflow.corpus.status import Status
    >>> status = Status(1500, 6000, 500, 2, 20_000, 10.0)
    >>> for width in (60, 50, 20):
    ...     print(fit_rates(status, width))
    50 examples/s · 1:30 left · 2 rejected · 2,000 flow pairs/s
    50 ex/s · 1:30 left · 2 rejected · 2,000 pairs/s
    50 ex/s · 1:30 left
    """
    parts = _rates(status)
    if len(SEPARATOR.join(parts)) > width:
        parts = [
            part.replace("examples/s", "ex/s").replace("flow pairs", "pairs") for part in parts
        ]
    while len(parts) > 1 and len(SEPARATOR.join(parts)) > width:
        parts.pop()
    return SEPARATOR.join(parts)


def clock(seconds: float) -> str:
    """Return seconds as hours, minutes and seconds.

    >>> clock(59.7), clock(3723)
    ('1:00', '1:02:03')
    """
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"


def _format_rate(rate: float) -> str:
    return f"{rate:,.0f}" if rate >= 10 else f"{rate:.1f}"


@contextmanager
def _status_bar() -> "Iterator[OnStatus]":
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn

    columns: tuple[Any, ...] = (
        BarColumn(bar_width=None),
        TextColumn("{task.fields[done]}"),
        TextColumn("{task.fields[rates]}", style="dim"),
    )
    with Progress(*columns, console=Console(stderr=True), expand=True, transient=True) as bar:
        task = bar.add_task("", total=None, done="loading the model", rates="")

        def on_status(status: "Status") -> None:
            total = f"/{status.total:,}" if status.total else ""
            done = f"{status.done:,}{total}"
            width = bar.console.width - MIN_BAR_WIDTH - len(done) - 2  # and gaps between columns
            bar.update(
                task,
                completed=status.done,
                total=status.total,
                done=done,
                rates=fit_rates(status, width),
            )

        yield on_status


@contextmanager
def plain_warnings() -> Iterator[None]:
    """Print each warning once, at once and in one line; turn off bars of other packages."""
    silence_transformers()
    with warnings.catch_warnings():
        warnings.simplefilter("once", UserWarning)
        warnings.showwarning = lambda message, *_, **__: typer.echo(
            f"attnflow: {message}", err=True
        )
        yield


class Stopper:
    """Whether a signal asked the run to stop, and which one."""

    def __init__(self) -> None:
        self.signal: int | None = None

    def __call__(self) -> bool:
        """Whether to stop."""
        return self.signal is not None

    @property
    def exit_code(self) -> int:
        """The exit code of a program stopped by this signal: 130 for Ctrl-C."""
        return 128 + (self.signal or signal.SIGINT)


@contextmanager
def stop_on_signals(*, at_once: bool) -> Iterator[Stopper]:
    """Stop a run on SIGINT (Ctrl-C) or SIGTERM: first after the current shards, then at once.

    at_once: whether the second signal ends the process; otherwise it raises KeyboardInterrupt, so
    that resources of a cluster are released. Finished shards are kept in both cases.
    """
    stopper = Stopper()

    def handle(number: int, _frame: Any) -> None:
        if stopper.signal is None:
            stopper.signal = number
            typer.echo(
                "\nattnflow: finishing the current shards; press Ctrl-C again to stop at once",
                err=True,
            )
            return
        sys.stderr.write("\x1b[?25h" if sys.stderr.isatty() else "")  # shows the cursor again
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
