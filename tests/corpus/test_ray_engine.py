"""The worker pool and the connection of the Ray engine, without a cluster."""

import socket
from contextlib import contextmanager, suppress
from threading import Thread
from types import SimpleNamespace
from typing import Any

import pytest

from attnflow.corpus import ray_engine
from attnflow.corpus.ray_engine import IN_FLIGHT, RETRIES, WorkerPool, connect
from attnflow.errors import AttnflowError, FileError
from tests.refusal import refusal


class RayError(Exception):
    """In place of the base class of Ray's errors."""


class LostError(RayError):
    """In place of the errors of Ray for a lost worker."""


class TaskError(RayError):
    """In place of an error that a worker raised."""

    cause = AttnflowError("there is no layer 9", "1 to 6")


NAMES = ("RayActorError", "WorkerCrashedError", "NodeDiedError", "ObjectLostError")
ERRORS = dict.fromkeys([*NAMES, "OutOfMemoryError"], LostError)


class FakeRay:
    """Workers compute when a result is fetched. room: how many can run at the same time."""

    def __init__(self, room, losing=()):
        self.exceptions = SimpleNamespace(RayTaskError=TaskError, RayError=RayError, **ERRORS)
        self.room, self.losing = room, set(losing)
        self.started, self.dead = 0, set()
        self.given: list[tuple[int, int]] = []  # worker and shard
        self.is_running = True

    def start(self):
        self.started += 1
        number = self.started
        ready = SimpleNamespace(remote=lambda: ("ready", number))
        return SimpleNamespace(number=number, ready=ready)

    def submit(self, actor, shard):
        self.given.append((actor.number, shard))
        return ("shard", actor.number, shard, len(self.given))

    def alive(self):
        """The numbers of the running workers, in the order of their start."""
        return [i + 1 for i in range(self.started) if i + 1 not in self.dead][: self.room]

    def wait(self, refs, num_returns, timeout):  # noqa: ARG002 - as Ray's
        """Running workers are ready; no shard is finished before its result is fetched."""
        assert num_returns <= len(refs)
        done = [ref for ref in refs if ref[0] == "ready" and ref[1] in self.alive()]
        return done, [ref for ref in refs if ref not in done]

    def get(self, ref):
        _, worker, shard, _ = ref
        if worker in self.losing:
            self.dead.add(worker)
        if worker in self.dead:
            raise LostError("it is gone")
        if shard == "bad":
            raise TaskError
        if shard == "last":
            raise RayError("the raylet died")
        return [shard]

    def nodes(self):
        return [{"Alive": False}, {"Alive": self.is_running}]

    def kill(self, actor):
        self.dead.add(actor.number)


def compute(ray, n, shards):
    return list(WorkerPool(ray, n, ray.start, ray.submit).compute(shards))


def test_workers_that_are_not_running_get_no_shard():
    ray = FakeRay(room=2)
    assert compute(ray, 8, range(10)) == [[i] for i in range(10)]
    assert {worker for worker, _ in ray.given} == {1, 2}


def test_at_most_two_shards_per_worker_are_in_flight():
    ray = FakeRay(room=2)
    shards: Any = range(10)
    results = WorkerPool(ray, 3, ray.start, ray.submit).compute(shards)
    next(results)
    assert len(ray.given) == IN_FLIGHT * 2
    assert sorted(worker for worker, _ in ray.given) == [1, 1, 2, 2]


@pytest.mark.filterwarnings("ignore:a worker of the Ray cluster")
def test_shards_of_a_lost_worker_go_to_running_workers():
    # There is no room for a replacement, as when its whole node is lost.
    ray = FakeRay(room=2, losing=[2])

    def feed():
        for i in range(10):
            ray.room = 2 if i < 4 else 1
            yield i

    assert compute(ray, 2, feed()) == [[i] for i in range(10)]
    assert ray.started == 3  # the replacement waits
    assert {worker for worker, _ in ray.given} == {1, 2}


@pytest.mark.filterwarnings("ignore:a worker of the Ray cluster")
def test_a_lost_worker_is_replaced_where_there_is_room():
    ray = FakeRay(room=1, losing=[1, 2])
    assert compute(ray, 1, range(3)) == [[0], [1], [2]]
    assert {worker for worker, _ in ray.given} == {1, 2, 3}


@pytest.mark.filterwarnings("ignore:a worker of the Ray cluster")
def test_a_shard_that_always_loses_its_worker_stops_the_run():
    ray = FakeRay(room=1, losing=range(100))
    with refusal(AttnflowError, f"{RETRIES + 1} times", "it is gone", "--batch-tokens"):
        compute(ray, 1, range(3))
    assert [shard for _, shard in ray.given].count(0) == RETRIES + 1


def test_a_cluster_that_ended_is_an_error():
    with refusal(AttnflowError, "the raylet died", "same command"):
        compute(FakeRay(room=1), 1, [1, "last"])
    ray = FakeRay(room=1, losing=[1])
    ray.is_running = False
    with (
        pytest.warns(UserWarning, match="same command"),
        refusal(AttnflowError, "Ray cluster", "same command"),
    ):
        compute(ray, 1, range(3))


def test_an_error_of_the_library_is_raised_unchanged():
    with refusal(AttnflowError, "there is no layer 9"):
        compute(FakeRay(room=1), 1, ["bad"])


def test_a_cluster_without_room_is_a_warning(monkeypatch):
    monkeypatch.setattr(ray_engine, "WORKER_TIMEOUT", 0)
    ray = FakeRay(room=0)
    found = ray.wait

    def room_at_last(*given, **options):
        done = found(*given, **options)
        ray.room = 1
        return done

    ray.wait = room_at_last  # type: ignore[method-assign]
    with pytest.warns(UserWarning, match="no room for a worker"):
        assert compute(ray, 1, range(2)) == [[0], [1]]


def test_a_cluster_that_rejects_the_connection_and_a_missing_one(monkeypatch):
    def reject(**_options):
        raise ConnectionError("Failed to connect to Ray cluster")

    fake = SimpleNamespace(is_initialized=lambda: False, init=reject)
    monkeypatch.setattr(ray_engine, "import_optional", lambda _module, _purpose: fake)
    with (
        server(GRPC) as address,
        refusal(FileError, f"'{address}'", "RAY_AUTH_MODE=token"),
        connect(address),
    ):
        pass
    for nowhere in (address, f"ray://{address}", "auto", "127.0.0.1:99999", "nowhere.invalid:1"):
        with refusal(FileError, f"'{nowhere}'", "ray start --head"), connect(nowhere):
            pass


@pytest.mark.parametrize("answer", [b"HTTP/1.1 400 Bad Request\r\n\r\n", b"", b"SSH-2.0\r\n"])
@pytest.mark.parametrize("scheme", ["", "ray://"])
def test_a_server_that_is_not_ray(monkeypatch, answer, scheme):
    monkeypatch.setattr(ray_engine, "CONNECT_TIMEOUT", 0.2)
    with server(answer) as address:
        given = f"{scheme}{address}"
        with refusal(FileError, f"'{given}'", "ray start --head"), connect(given):
            pass


GRPC = bytes([0, 0, 0, 4, 0, 0, 0, 0, 0])  # an empty frame of settings


@contextmanager
def server(answer):
    """Listen at an address, and answer each connection; without an answer it stays open."""
    connections = []

    def serve(listening):
        with suppress(OSError):
            while True:
                connection, _ = listening.accept()
                connections.append(connection)
                connection.sendall(answer)

    with socket.create_server(("127.0.0.1", 0)) as listening:
        Thread(target=serve, args=[listening], daemon=True).start()
        yield f"127.0.0.1:{listening.getsockname()[1]}"
        with suppress(OSError):
            listening.shutdown(socket.SHUT_RDWR)
    for connection in connections:
        connection.close()
