"""The examples run."""

import subprocess
import sys
from pathlib import Path

EXAMPLE = Path(__file__).parent.parent / "examples" / "made_up_attention.py"


def test_rollout_and_flow_find_the_subject_where_raw_attention_does_not():
    done = subprocess.run([sys.executable, EXAMPLE], capture_output=True, text=True, check=True)
    raw, rollout, flow = done.stdout.strip().split("\n\n")
    # At the last layer raw attention is even; rollout and flow have "key" first.
    assert {line.split()[-1] for line in raw.splitlines()[4:]} == {"0.167"}
    for table in (rollout, flow):
        rows = [line.split() for line in table.splitlines()[4:]]
        assert max(rows, key=lambda row: float(row[-1]))[1] == "key"
