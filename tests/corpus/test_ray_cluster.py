"""The Ray engine on a real cluster: the same bytes, and workers that are killed."""

import io
import signal
from pathlib import Path

import psutil
import pytest
import ray

from attnflow.corpus.example import Example
from attnflow.corpus.job import open_engine
from attnflow.corpus.parquet import write_parquet
from attnflow.corpus.ray_engine import IN_FLIGHT, connect, run_on_cluster
from attnflow.corpus.scorer import Scorer
from attnflow.corpus.settings import Settings
from attnflow.errors import FileError, InputError
from attnflow.methods.registry import METHODS
from tests.models.checkpoints import save
from tests.refusal import refusal

pytestmark = [
    pytest.mark.slow,
    # Ray leaves the files of its logs to be closed at exit.
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]
WORDS = ("the", "key", "to", "cabinets", "is", "here")
SHARDS = [
    [Example(i, str(i), " ".join(WORDS[: i % 6 + 1])) for i in range(start, start + 5)]
    for start in range(0, 40, 5)
]


@pytest.fixture(scope="module")
def settings(tmp_path_factory):
    folder = save(tmp_path_factory.mktemp("model"))
    return Settings(model=folder, methods=METHODS.names, importance=("blank_out",))


@pytest.fixture(scope="module")
def expected(settings):
    scorer = Scorer(settings, threads=2)
    return [written(scorer.score(shard), settings) for shard in SHARDS]


@pytest.fixture(scope="module", autouse=True)
def cluster():
    def handle(_number, _frame):
        pass

    before = signal.signal(signal.SIGTERM, handle)
    with connect("local") as device:
        assert signal.getsignal(signal.SIGTERM) is handle  # Ray would replace it
        signal.signal(signal.SIGTERM, before)
        assert device == ("cuda" if ray.cluster_resources().get("GPU") else "cpu")
        with connect(None):  # the existing connection
            pass
        yield
    assert not ray.is_initialized()


def written(results, settings):
    file = io.BytesIO()
    write_parquet(file, results, settings)
    return file.getvalue()


def nothing(_examples, _pairs):
    pass


def worker_processes():
    """The processes of this cluster that hold a model."""
    ours = psutil.Process().children(recursive=True)
    return [one for one in ours if "".join(one.cmdline()).startswith("ray::Worker")]


def test_results_equal_those_of_the_local_engine_with_separate_score_tasks(settings, expected):
    reported = []

    def report(*done):
        reported.append(done)

    found = list(run_on_cluster(settings, SHARDS, report, workers=1, split=True))
    assert [written(results, settings) for results in found] == expected
    assert sum(examples for examples, _ in reported) == 40


@pytest.mark.filterwarnings("ignore:a worker of the Ray cluster")
def test_a_killed_worker_is_replaced_and_nothing_is_lost(settings, expected):
    given = 0

    def feed():
        nonlocal given
        for shard in SHARDS:
            given += 1
            yield shard

    found, killed, ahead = [], 0, []
    for results in run_on_cluster(settings, feed(), nothing, workers=1):
        found.append(written(results, settings))
        ahead.append(given - len(found))
        if len(found) == 3:
            for process in worker_processes():
                process.kill()
                killed += 1
    assert killed
    assert found == expected
    assert max(ahead) < IN_FLIGHT  # no more is on the way, however slowly results are taken


def test_workers_without_room_do_not_delay_the_others(settings, expected):
    many = int(ray.cluster_resources()["CPU"]) + 1
    with pytest.warns(UserWarning, match=f"{many} workers"):
        found = list(run_on_cluster(settings, SHARDS, nothing, workers=many))
    assert [written(results, settings) for results in found] == expected


def test_an_error_of_the_library_in_a_worker_is_raised_unchanged(settings):
    from dataclasses import replace

    missing = replace(settings, model=str(Path(settings.model) / "nothing"))
    with pytest.raises(Exception, match="nothing") as caught:
        list(run_on_cluster(missing, SHARDS, nothing, workers=1))
    assert isinstance(caught.value, FileError)


def test_options_of_the_other_engine_are_errors():
    with refusal(InputError, "threads", "--workers"), open_engine("ray", threads=2):
        pass
    with refusal(InputError, "workers", "--engine ray"), open_engine("local", workers=2):
        pass
    with refusal(InputError, "'spark'", "'local' or 'ray'"), open_engine("spark"):
        pass
