"""The crew: workers of a Ray cluster, who is there, who is lost, and what each has in hand.

A worker that is lost is replaced, but nobody waits for its successor: a cluster that lost a node
may have no room for it. Its shards go to those who are there.
"""

import warnings
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from attnflow.corpus.example import Example, Result
from attnflow.errors import AttnflowError

IN_FLIGHT = 2  # shards for each worker: one that it computes, and one that waits
RETRIES = 5  # of a shard whose worker was lost
PATIENCE = 30.0  # seconds until it is said that there is no room for a worker


@dataclass
class _Member:
    """A worker. coming: its first answer, which it gives when there is room for it; None then."""

    actor: Any
    coming: Any


@dataclass
class _Handed:
    """A shard that is on the way. result: what it will be. losses: how often it was lost."""

    examples: list[Example]
    member: _Member
    result: Any
    losses: int = 0


class Crew:
    """Workers, each of which holds the model.

    start: starts a worker, which may wait for room. submit: gives a shard to a worker, and returns
    what will be its results.
    """

    def __init__(
        self,
        ray: Any,
        n: int,
        start: Callable[[], Any],
        submit: Callable[[Any, list[Example]], Any],
    ) -> None:
        self.ray, self.start, self.submit = ray, start, submit
        errors = ray.exceptions
        self.losses = (
            errors.RayActorError,
            errors.WorkerCrashedError,
            errors.NodeDiedError,
            errors.ObjectLostError,
            errors.OutOfMemoryError,
        )
        self.members = [self._hire() for _ in range(n)]
        self.waiting: deque[_Handed] = deque()

    def compute(self, shards: Iterable[list[Example]]) -> Iterator[list[Result]]:
        """The results of shards, in their order; no more than two a worker are on the way."""
        stream = iter(shards)
        at_end = False
        while True:
            while not at_end and len(self.waiting) < IN_FLIGHT * len(self._here()):
                examples = next(stream, None)
                if examples is None:
                    at_end = True
                    break
                self.waiting.append(self._hand_out(examples))
            if not self.waiting:
                return
            yield self._fetch(self.waiting.popleft())

    def dismiss(self) -> None:
        """End all workers."""
        for member in self.members:
            self.ray.kill(member.actor)

    def _hire(self) -> _Member:
        actor = self.start()
        return _Member(actor, actor.here.remote())

    def _here(self) -> list[_Member]:
        """Those who are there, of whom there is at least one; waits for the first."""
        warned = False
        while True:
            coming = {m.coming: m for m in self.members if m.coming is not None}
            if coming:
                anybody = len(coming) < len(self.members)
                patience = 0 if anybody else PATIENCE
                n = len(coming) if anybody else 1
                for one in self.ray.wait(list(coming), num_returns=n, timeout=patience)[0]:
                    coming[one].coming = None
            here = [member for member in self.members if member.coming is None]
            if here:
                return here
            if not warned:
                warnings.warn(
                    "the Ray cluster has no room for a worker yet; waiting for it", stacklevel=2
                )
                warned = True

    def _hand_out(self, examples: list[Example], losses: int = 0) -> _Handed:
        """Give a shard to the worker with the fewest unfinished ones."""
        of = {handed.result: handed.member for handed in self.waiting}
        unfinished = self.ray.wait(list(of), num_returns=len(of), timeout=0)[1] if of else []
        busy = [id(of[one]) for one in unfinished]
        member = min(self._here(), key=lambda one: busy.count(id(one)))
        return _Handed(examples, member, self.submit(member.actor, examples), losses)

    def _fetch(self, handed: _Handed) -> list[Result]:
        """The results of a shard, which is handed out again if its worker is lost."""
        while True:
            try:
                results: list[Result] = self.ray.get(handed.result)
            except self.ray.exceptions.RayTaskError as error:
                if isinstance(error.cause, AttnflowError):
                    raise error.cause from None
                raise
            except self.losses as error:
                self._replace(handed.member)
                if handed.losses == RETRIES:
                    raise _lost(error) from error
                handed = self._hand_out(handed.examples, handed.losses + 1)
            else:
                return results

    def _replace(self, lost: _Member) -> None:
        """Hire another in the place of one who is lost, once."""
        for i, member in enumerate(self.members):
            if member is lost:
                self.ray.kill(lost.actor)  # it may be out of reach only, and take up room
                self.members[i] = self._hire()


def _lost(error: Exception) -> AttnflowError:
    why = (str(error).splitlines() or [type(error).__name__])[0]
    return AttnflowError(
        f"a shard lost its worker {RETRIES + 1} times ({why}); expected workers that stay. They "
        "may lack memory: use a lower --batch-tokens or --shard-size. All shards finished before "
        "are kept; the same command goes on."
    )
