"""The examples run. The demo needs Numba."""

import subprocess
import sys
from pathlib import Path

DEMO = Path(__file__).parent.parent / "examples" / "demo.py"


def test_the_demo_finds_the_subject():
    done = subprocess.run([sys.executable, DEMO], capture_output=True, text=True, check=True)
    raw, rollout, flow = done.stdout.strip().split("\n\n")
    # At the last layer raw attention is even; rollout and flow have "key" first.
    assert {line.split()[-1] for line in raw.splitlines()[4:]} == {"0.167"}
    for table in (rollout, flow):
        rows = [line.split() for line in table.splitlines()[4:]]
        assert max(rows, key=lambda row: float(row[-1]))[1] == "key"
