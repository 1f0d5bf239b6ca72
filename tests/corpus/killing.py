"""Kill runs at random moments, again and again, until each corpus is complete all the same.

Run as: python -m tests.corpus.killing FOLDER KILLS SEED. It forks from one process that has loaded
everything, so that lives are short and kills fall anywhere in them.
"""

import os
import random
import signal
import sys
import time
from functools import partial
from pathlib import Path

from attnflow.corpus.integrity import check
from attnflow.corpus.job import work
from tests.corpus.faking import contents, engine, job, run

ROWS = 60
LONGEST_LIFE = 0.12  # seconds; a whole run takes several times as long


def write_input(path: Path) -> None:
    """Texts of all lengths, and bad rows among them."""
    lines = [b"word " * (i % 7) + str(i).encode() for i in range(ROWS)]
    lines[10], lines[20], lines[31] = b"", b"\xff\xfe", b"long " * 40
    path.write_bytes(b"\n".join(lines))


def live(given: Path, out: Path, seconds: float) -> bool:
    """Start a run and kill it after a time; whether it had finished before."""
    process = os.fork()
    if not process:
        work(job(given, out), partial(engine, pause=0.001))
        os._exit(0)
    time.sleep(seconds)
    ended, status = os.waitpid(process, os.WNOHANG)
    if ended:
        assert status == 0, f"a run failed with status {status}"
        return True
    os.kill(process, signal.SIGKILL)
    os.waitpid(process, 0)
    return False


def main(folder: Path, n_kills: int, seed: int) -> None:
    """Kill at least so often; every corpus must end up the same. Prints what was done."""
    choice = random.Random(seed)
    given = folder / "texts.txt"
    write_input(given)
    run(given, folder / "undisturbed")
    expected = contents(folder / "undisturbed")
    kills = corpora = 0
    while kills < n_kills:
        out = folder / f"killed-{corpora}"
        while not live(given, out, choice.uniform(0, LONGEST_LIFE)):
            kills += 1
            if (out / "manifest.json").exists():
                assert not check(out).damaged, "a finished shard was not whole"
        assert contents(out) == expected, f"{out} differs"
        corpora += 1
    sys.stdout.write(f"{kills} kills, {corpora} corpora\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
