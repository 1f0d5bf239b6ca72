"""Tasks for worker processes that go wrong in every way, and a pool without processes."""

import os
import time
from dataclasses import dataclass

from attnflow import InputError


@dataclass(frozen=True)
class Sleep:
    seconds: float = 60

    def run(self, _models, _limits, report):
        report("sleeping", 1, 2)
        time.sleep(self.seconds)
        return "awake"


@dataclass(frozen=True)
class Die:
    def run(self, _models, _limits, _report):
        os._exit(3)


@dataclass(frozen=True)
class Raise:
    kind: type[Exception]

    def run(self, _models, _limits, _report):
        raise self.kind("on purpose")


@dataclass(frozen=True)
class Where:
    def run(self, _models, _limits, _report):
        return os.getpid()


REFUSE = Raise(InputError)
BREAK = Raise(ZeroDivisionError)


class InlinePool:
    """A pool that runs tasks in the thread that asks."""

    def __init__(self, models, limits):
        self.models, self.limits = models, limits

    def run(self, task, report):
        return task.run(self.models, self.limits, report)

    def close(self):
        pass
