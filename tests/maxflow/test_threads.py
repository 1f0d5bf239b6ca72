"""Jobs on several threads: results, progress, interrupts, and the memory they use and keep."""

import signal
import subprocess
import sys

import numpy as np
import pytest

from attnflow.maxflow import max_flows, solver
from attnflow.maxflow.layout import WORKSPACE
from attnflow.maxflow.network import build_network
from tests.maxflow.networks import attention, causal

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("threads", [2, 3])
def test_results_do_not_depend_on_the_number_of_threads(threads):
    capacities = attention(5, 24, seed=5)
    alone = max_flows(capacities, threads=1)
    together = max_flows(capacities, threads=threads)
    assert np.array_equal(alone.values, together.values)
    assert alone.proofs == together.proofs


def test_progress_counts_all_pairs():
    reports = []
    max_flows(attention(3, 30, seed=0), threads=2, progress=lambda *counts: reports.append(counts))
    assert reports[-1] == (2700, 2700)
    assert reports == sorted(reports)


def test_an_error_in_the_progress_callback_ends_the_threads_and_later_calls_work():
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
    shared = network.capacity.nbytes + network.tables.nbytes
    assert shared <= 2.5 * capacities.nbytes
    assert WORKSPACE.allocate(128, 6).nbytes <= 4 * capacities.nbytes


def test_workspaces_are_reused_without_affecting_results():
    jobs = [attention(4, 12, seed=seed) for seed in range(6)]
    fresh = []
    for job in jobs:
        solver._pool.clear()
        fresh.append(max_flows(job).values)
    again = [max_flows(job).values for job in jobs]
    assert len(solver._pool) == 1
    for first, second in zip(fresh, again, strict=True):
        assert np.array_equal(first, second)
    for n in range(3, 12):
        max_flows(attention(2, n, seed=0))
    assert len(solver._pool) == solver.POOL_SIZE


def test_results_do_not_depend_on_what_a_workspace_holds():
    for capacities in (attention(5, 70, seed=3, sharpness=4.0), causal(5, 70, seed=3)):
        solver._pool.clear()
        expected = max_flows(capacities, sources=range(0, 70, 7), threads=1)
        (_, memory), *_ = solver._pool
        changes, flow = (WORKSPACE.array(memory, name) for name in ("changes", "flow"))
        changed = changes[1 : 1 + changes[0]]
        assert set(np.flatnonzero(flow)) <= set(changed.tolist())
        fields = {field.name for field in WORKSPACE.fields} - {"changes", "flow"}
        for name in fields:
            array = WORKSPACE.array(memory, name)
            array.view(np.uint64)[:] = ~np.uint64(0)  # NaN, -1 or all positions
        flow[changed] = np.nan
        again = max_flows(capacities, sources=range(0, 70, 7), threads=1)
        assert np.array_equal(again.values, expected.values)
        assert again.proofs == expected.proofs


def test_small_jobs_stay_on_one_thread():
    assert solver.count_threads(8, n_pairs=100) == 1
    assert solver.count_threads(2, n_pairs=100_000) == 2


INTERRUPTED_JOB = """
import signal
import sys

import numpy as np

from attnflow.maxflow import max_flows

signal.signal(signal.SIGINT, signal.default_int_handler)  # background jobs inherit SIG_IGN
rows = np.random.default_rng(0).dirichlet(np.full(400, 0.3), size=(6, 400))
counts = []


def report(done, total):
    counts.append((done, total))
    if len(counts) == 1:
        print("started", flush=True)


try:
    max_flows(0.5 * rows + 0.5 * np.eye(400), threads=int(sys.argv[1]), progress=report)
except KeyboardInterrupt:
    print(*counts[-1])
"""


@pytest.mark.skipif(sys.platform == "win32", reason="Windows sends no SIGINT")
@pytest.mark.parametrize("threads", [1, 2])
def test_an_interrupt_ends_the_work_early(threads):
    with subprocess.Popen(
        [sys.executable, "-c", INTERRUPTED_JOB, str(threads)], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "started\n"
        process.send_signal(signal.SIGINT)
        output, _ = process.communicate(timeout=120)
    done, total = map(int, output.split())
    assert 0 < done < total
