"""Two runs on one folder, and locks of the dead."""

import os
import signal
import subprocess
import sys
from pathlib import Path
from socket import gethostname

import pytest

from attnflow.corpus.store import ENDLESS, locked
from attnflow.errors import InputError
from tests.corpus.faking import run
from tests.refusal import refusal

ROOT = Path(__file__).parents[2]
HOLD = """
import sys, time
from pathlib import Path
from attnflow.corpus.store import locked
with locked(Path(sys.argv[1]), range(int(sys.argv[2]), int(sys.argv[3]))):
    print("held", flush=True)
    time.sleep(60)
"""


@pytest.fixture
def locks(tmp_path):
    (tmp_path / "out" / "locks").mkdir(parents=True)
    return tmp_path / "out" / "locks"


def hold(locks, first, after):
    """A process that holds the lock of some shards."""
    command = [sys.executable, "-c", HOLD, str(locks), str(first), str(after)]
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    return process


def end(process):
    process.send_signal(signal.SIGKILL)
    process.communicate()


def test_a_second_run_is_refused_and_the_holder_named(locks, tmp_path):
    (tmp_path / "a.txt").write_text("the key")
    process = hold(locks, 0, ENDLESS)
    try:
        with refusal(
            InputError,
            f"{tmp_path / 'out'} is being written by process {process.pid} on {gethostname()}",
            "expected no other run on the same shards",
        ):
            run(tmp_path / "a.txt", tmp_path / "out")
    finally:
        end(process)
    # Killed, it holds nothing, though its file is still there.
    assert list(locks.glob("*.lock"))
    assert run(tmp_path / "a.txt", tmp_path / "out").complete
    assert not list(locks.glob("*.lock"))


def test_ranges_that_do_not_overlap_run_side_by_side(locks):
    process = hold(locks, 10, 20)
    try:
        with locked(locks, range(10)), locked(locks, range(20, 30)):
            pass
        for overlapping in (range(19, 25), range(5, 11), range(12, 13), range(ENDLESS)):
            with refusal(InputError, "is being written"), locked(locks, overlapping):
                pass
    finally:
        end(process)


def test_a_run_in_the_same_process_is_refused_too(locks):
    ours = f"process {os.getpid()}"
    with locked(locks, range(5)), refusal(InputError, ours), locked(locks, range(4, 6)):
        pass
    with locked(locks, range(5)):
        pass
