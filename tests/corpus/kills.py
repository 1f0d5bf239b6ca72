"""Kill runs at random moments until each corpus is complete.

Run as: python -m tests.corpus.kills FOLDER KILLS SEED. It forks from one process that has imported
everything, so that runs are short and kills hit any part of them. A run reports its steps through a
pipe, and is killed after a random number of steps.
"""

import os
import random
import signal
import sys
from functools import partial
from pathlib import Path

from attnflow.corpus.integrity import check
from attnflow.corpus.job import run_job
from tests.corpus.fakes import contents, engine, job, run

ROWS = 60
MAX_STEPS = 120  # before a kill; a whole run takes several times as many


def write_input(path: Path) -> None:
    """Texts of different lengths, with invalid rows among them."""
    lines = [b"word " * (i % 7) + str(i).encode() for i in range(ROWS)]
    lines[10], lines[20], lines[31] = b"", b"\xff\xfe", b"long " * 40
    path.write_bytes(b"\n".join(lines))


def run_reporting(data: Path, out: Path, pipe: int) -> None:
    """Run a job; write a byte to the pipe before each example and each operation on files."""

    def step(*_arguments: object) -> None:
        os.write(pipe, b".")

    def stepping(operation):
        def wrapped(*arguments, **options):
            step()
            return operation(*arguments, **options)

        return wrapped

    os.fsync = stepping(os.fsync)
    Path.replace = stepping(Path.replace)  # type: ignore[method-assign]
    Path.open = stepping(Path.open)  # type: ignore[method-assign]
    run_job(job(data, out), partial(engine, before=step))


def run_and_kill(data: Path, out: Path, steps: int) -> bool:
    """Start a run and kill it after some steps; returns whether it finished before."""
    reading, writing = os.pipe()
    process = os.fork()
    if not process:
        os.close(reading)
        run_reporting(data, out, writing)
        os._exit(0)
    os.close(writing)
    done = 0
    while done < steps and (block := os.read(reading, steps - done)):
        done += len(block)
    os.kill(process, signal.SIGKILL)
    _, status = os.waitpid(process, 0)
    os.close(reading)
    if os.WIFSIGNALED(status):
        return False
    assert status == 0, f"a run failed with status {status}"
    return True


def main(folder: Path, n_kills: int, seed: int) -> None:
    """Kill at least so many runs; every corpus must end up the same. Prints the counts."""
    choice = random.Random(seed)
    data = folder / "texts.txt"
    write_input(data)
    run(data, folder / "expected")
    expected = contents(folder / "expected")
    kills = corpora = 0
    while kills < n_kills:
        out = folder / f"killed-{corpora}"
        while not run_and_kill(data, out, choice.randint(0, MAX_STEPS)):
            kills += 1
            if (out / "manifest.json").exists():
                assert not check(out).damaged, "a finished shard is damaged"
        assert contents(out) == expected, f"{out} differs"
        corpora += 1
    sys.stdout.write(f"{kills} kills, {corpora} corpora\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
