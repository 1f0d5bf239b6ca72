"""Who gets which shard, and what happens to those of workers who are lost; without a cluster."""

import socket
from types import SimpleNamespace
from typing import Any

import pytest

from attnflow.corpus import ray_engine as cluster
from attnflow.corpus import ray_engine as crew
from attnflow.corpus.ray_engine import IN_FLIGHT, RETRIES, Crew
from attnflow.errors import AttnflowError, FileError
from tests.refusal import refusal


class LostError(Exception):
    """Stands in for the errors of Ray that say that a worker is lost."""


class TaskError(Exception):
    """Stands in for an error that a worker raised."""

    cause = AttnflowError("there is no layer 9")


NAMES = ("RayActorError", "WorkerCrashedError", "NodeDiedError", "ObjectLostError")
ERRORS = dict.fromkeys([*NAMES, "OutOfMemoryError"], LostError)


class FakeRay:
    """Workers compute at once when asked for a result. room: how many may be there at a time."""

    def __init__(self, room, losing=()):
        self.exceptions = SimpleNamespace(RayTaskError=TaskError, **ERRORS)
        self.room, self.losing = room, set(losing)
        self.started, self.dead = 0, set()
        self.given: list[tuple[int, int]] = []  # worker and shard

    def start(self):
        self.started += 1
        number = self.started
        here = SimpleNamespace(remote=lambda: ("here", number))
        return SimpleNamespace(number=number, here=here)

    def submit(self, actor, shard):
        self.given.append((actor.number, shard))
        return ("shard", actor.number, shard, len(self.given))

    def alive(self):
        """Those who found room, in the order they came."""
        return [i + 1 for i in range(self.started) if i + 1 not in self.dead][: self.room]

    def wait(self, refs, num_returns, timeout):  # noqa: ARG002 - as Ray's
        """Workers who are there have answered; nothing else is finished before it is asked for."""
        assert num_returns <= len(refs)
        done = [ref for ref in refs if ref[0] == "here" and ref[1] in self.alive()]
        return done, [ref for ref in refs if ref not in done]

    def get(self, ref):
        _, worker, shard, _ = ref
        if worker in self.losing:
            self.dead.add(worker)
        if worker in self.dead:
            raise LostError("it is gone")
        if shard == "bad":
            raise TaskError
        return [shard]

    def kill(self, actor):
        self.dead.add(actor.number)


def compute(ray, n, shards):
    return list(Crew(ray, n, ray.start, ray.submit).compute(shards))


def test_workers_without_room_get_no_shard():
    ray = FakeRay(room=2)
    assert compute(ray, 8, range(10)) == [[i] for i in range(10)]
    assert {worker for worker, _ in ray.given} == {1, 2}


def test_no_more_than_two_shards_a_worker_are_on_the_way():
    ray = FakeRay(room=2)
    shards: Any = range(10)
    results = Crew(ray, 3, ray.start, ray.submit).compute(shards)
    next(results)
    assert len(ray.given) == IN_FLIGHT * 2
    assert sorted(worker for worker, _ in ray.given) == [1, 1, 2, 2]


def test_shards_of_a_lost_worker_go_to_those_who_are_there():
    # There is room for nobody in its place, as when its whole node is lost.
    ray = FakeRay(room=2, losing=[2])

    def feed():
        for i in range(10):
            ray.room = 2 if i < 4 else 1
            yield i

    assert compute(ray, 2, feed()) == [[i] for i in range(10)]
    assert ray.started == 3  # one in its place, who waits
    assert {worker for worker, _ in ray.given} == {1, 2}


def test_a_lost_worker_is_replaced_where_there_is_room():
    ray = FakeRay(room=1, losing=[1, 2])
    assert compute(ray, 1, range(3)) == [[0], [1], [2]]
    assert {worker for worker, _ in ray.given} == {1, 2, 3}


def test_a_shard_that_always_loses_its_worker_stops_the_run():
    ray = FakeRay(room=1, losing=range(100))
    with refusal(AttnflowError, "a shard lost its worker 6 times (it is gone)", "lower --batch"):
        compute(ray, 1, range(3))
    assert [shard for _, shard in ray.given].count(0) == RETRIES + 1


def test_an_error_of_the_library_is_that_of_the_run():
    with refusal(AttnflowError, "there is no layer 9"):
        compute(FakeRay(room=1), 1, ["bad"])


def test_it_is_said_that_there_is_no_room(monkeypatch):
    monkeypatch.setattr(crew, "PATIENCE", 0)
    ray = FakeRay(room=0)
    found = ray.wait

    def room_at_last(*given, **options):
        done = found(*given, **options)
        ray.room = 1
        return done

    ray.wait = room_at_last  # type: ignore[method-assign]
    with pytest.warns(UserWarning, match="the Ray cluster has no room for a worker yet"):
        assert compute(ray, 1, range(2)) == [[0], [1]]


def test_a_cluster_that_lets_nobody_in_is_told_from_none(monkeypatch):
    def refuse(**_options):
        raise ConnectionError("Failed to connect to Ray cluster")

    fake = SimpleNamespace(is_initialized=lambda: False, init=refuse)
    monkeypatch.setattr(cluster, "import_ray", lambda _purpose: fake)
    with socket.create_server(("127.0.0.1", 0)) as listening:
        address = f"127.0.0.1:{listening.getsockname()[1]}"
        with (
            refusal(FileError, f"what listens at '{address}' takes no", "RAY_AUTH_MODE=token"),
            cluster.connected(address),
        ):
            pass
    for nowhere in (address, "auto"):
        wording = (f"there is no Ray cluster at '{nowhere}'", "ray start --head")
        with refusal(FileError, *wording), cluster.connected(nowhere):
            pass
