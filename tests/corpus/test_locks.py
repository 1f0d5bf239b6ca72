"""Locks of shards: two runs on one folder, and locks of killed processes."""

import os
import signal
import subprocess
import sys
from pathlib import Path
from socket import gethostname

import pytest

from attnflow.corpus.store import MAX_SHARDS, Folder, shard_lock
from attnflow.errors import AttnflowError, InputError
from tests.corpus.fakes import run
from tests.refusal import refusal

ROOT = Path(__file__).parents[2]
HOLD = """
import sys
from pathlib import Path
from attnflow.corpus.store import Folder, shard_lock
with shard_lock(Folder(Path(sys.argv[1])), range(int(sys.argv[2]), int(sys.argv[3]))):
    print("held", flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def folder(tmp_path):
    folder = Folder(tmp_path / "out")
    folder.create()
    return folder


def hold(folder, first, end):
    """Start a process that holds the lock of some shards until its stdin is closed."""
    command = [sys.executable, "-c", HOLD, str(folder.path), str(first), str(end)]
    process = subprocess.Popen(
        command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    return process


def kill(process):
    process.send_signal(signal.SIGKILL)
    process.communicate()


def lock_files(folder):
    return sorted(path.name for path in (folder.path / "locks").iterdir() if path.name != "guard")


def test_a_second_run_is_an_error_that_names_the_first(folder, tmp_path):
    (tmp_path / "a.txt").write_text("the key")
    process = hold(folder, 0, MAX_SHARDS)
    try:
        with refusal(InputError, str(folder.path), str(process.pid), gethostname(), "--out"):
            run(tmp_path / "a.txt", folder.path)
    finally:
        kill(process)
    # The files of a killed process remain, but they hold no lock.
    assert lock_files(folder) == [f"0-{MAX_SHARDS}.json", f"0-{MAX_SHARDS}.lock"]
    assert run(tmp_path / "a.txt", folder.path).complete
    assert lock_files(folder) == []


def test_a_process_that_ends_normally_leaves_no_files(folder):
    process = hold(folder, 0, 5)
    process.communicate("")
    assert process.returncode == 0
    assert lock_files(folder) == []


def test_ranges_that_do_not_overlap_run_at_the_same_time(folder):
    process = hold(folder, 10, 20)
    try:
        with shard_lock(folder, range(10)), shard_lock(folder, range(20, 30)):
            pass
        for overlapping in (range(19, 25), range(5, 11), range(12, 13), range(MAX_SHARDS)):
            with refusal(InputError, str(process.pid)), shard_lock(folder, overlapping):
                pass
    finally:
        kill(process)


def test_a_second_run_in_the_same_process_is_an_error(folder):
    with (
        shard_lock(folder, range(5)),
        refusal(InputError, f"process {os.getpid()}"),
        shard_lock(folder, range(4, 6)),
    ):
        pass
    with shard_lock(folder, range(5)):
        pass


def test_a_lock_without_the_name_of_its_holder_still_holds(folder):
    with shard_lock(folder, range(5)):
        (folder.path / "locks" / "0-5.json").unlink()
        with refusal(InputError, "another process"), shard_lock(folder, range(5)):
            pass


def test_a_file_system_without_locks_is_an_error(folder, monkeypatch):
    import filelock

    # The existence lock that filelock falls back to would outlive a killed process.
    monkeypatch.setattr(filelock, "FileLock", filelock.SoftFileLock)
    with refusal(AttnflowError, "guard", "locks"), shard_lock(folder, range(5)):
        pass
