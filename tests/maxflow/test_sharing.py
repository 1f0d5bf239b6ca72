"""One job on several threads: the same answer, little memory, and an end when it is asked for."""

import signal
import subprocess
import sys
import time

import numpy as np
import pytest

from attnflow.maxflow import max_flows
from attnflow.maxflow import solver as solve
from attnflow.maxflow.layout import build_network, build_scratch
from attnflow.maxflow.solver import count_threads
from tests.maxflow.networks import attention


@pytest.mark.parametrize("threads", [2, 3])
def test_the_answer_does_not_depend_on_threads(threads):
    capacities = attention(5, 24, seed=5)
    alone = max_flows(capacities, threads=1)
    together = max_flows(capacities, threads=threads)
    assert np.array_equal(alone.values, together.values)
    assert alone.proofs == together.proofs


def test_progress_counts_all_pairs():
    seen = []
    max_flows(attention(3, 30, seed=0), threads=2, progress=lambda *counts: seen.append(counts))
    assert seen[-1] == (2700, 2700)
    assert [done for done, _ in seen] == sorted(done for done, _ in seen)


def test_an_error_in_progress_ends_the_threads_and_later_calls_work():
    def interrupt(_done, _total):
        raise KeyboardInterrupt

    capacities = attention(4, 48, seed=1)
    with pytest.raises(KeyboardInterrupt):
        max_flows(capacities, threads=2, progress=interrupt)
    again = max_flows(capacities, threads=2).values
    assert np.array_equal(again, max_flows(capacities, threads=1).values)


def test_memory_stays_at_a_few_graphs_per_thread():
    capacities = np.full((6, 128, 128), 1 / 128)
    network, _, _ = build_network(capacities)
    shared = network.capacity.nbytes + network.layout.nbytes
    scratch = sum(piece.nbytes for piece in build_scratch(128, 6))
    assert shared <= 2.5 * capacities.nbytes
    assert scratch <= 4 * capacities.nbytes


def test_memory_of_an_earlier_job_is_used_again_but_not_its_numbers():
    jobs = [attention(4, 12, seed=seed) for seed in range(6)]
    fresh = []
    for job in jobs:
        solve._kept.clear()
        fresh.append(max_flows(job).values)
    again = [max_flows(job).values for job in jobs]
    assert len(solve._kept) == 1
    for first, second in zip(fresh, again, strict=True):
        assert np.array_equal(first, second)
    for n in range(3, 12):
        max_flows(attention(2, n, seed=0))
    assert len(solve._kept) == solve.KEPT


def test_small_jobs_stay_on_one_thread():
    assert count_threads(8, pairs=100) == 1
    assert count_threads(2, pairs=100_000) == 2


@pytest.mark.skipif(sys.platform == "win32", reason="signals differ there")
@pytest.mark.parametrize("threads", [1, 2])
def test_control_c_ends_the_work_at_once(threads):
    code = (
        "import numpy as np, sys\n"
        "from attnflow.maxflow import max_flows\n"
        "rows = np.random.default_rng(0).dirichlet(np.full(400, 0.3), size=(6, 400))\n"
        "capacities = 0.5 * rows + 0.5 * np.eye(400)\n"
        "max_flows(capacities[:, :8, :8])\n"  # compiled or loaded by now
        "print('started', flush=True)\n"
        f"max_flows(capacities, threads={threads})\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "started\n"
        time.sleep(1)
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=60)
    assert process.returncode != 0
    assert "KeyboardInterrupt" in errors
