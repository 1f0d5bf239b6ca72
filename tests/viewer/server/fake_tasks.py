"""Tasks that fail in various ways, and a pool without processes."""

import os
from dataclasses import dataclass
from threading import Event

from attnflow import InputError


@dataclass(frozen=True)
class Hang:
    """Reports progress, and never ends."""

    def run(self, _models, _limits, report):
        report("hanging", 1, 2)
        Event().wait()


@dataclass(frozen=True)
class Exit:
    """Ends the process."""

    def run(self, _models, _limits, _report):
        os._exit(3)


@dataclass(frozen=True)
class Raise:
    """Raises an error."""

    error: Exception

    def run(self, _models, _limits, _report):
        raise self.error


@dataclass(frozen=True)
class ProcessId:
    """Returns the ID of the process."""

    def run(self, _models, _limits, _report):
        return os.getpid()


INVALID = Raise(InputError("the given part", "the expected part", "The fix."))
BUG = Raise(ZeroDivisionError("on purpose"))


class InlinePool:
    """A pool that runs tasks in the calling thread."""

    def __init__(self, models, limits):
        self.models, self.limits = models, limits

    def run(self, task, report, abandoned=bool):  # noqa: ARG002 - as WorkerPool's
        return task.run(self.models, self.limits, report)

    def close(self):
        pass
