"""The examples run."""

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

EXAMPLE = Path(__file__).parent.parent / "examples" / "made_up_attention.py"


def test_rollout_and_flow_find_the_subject_where_raw_attention_does_not():
    done = subprocess.run([sys.executable, EXAMPLE], capture_output=True, text=True, check=True)
    last_layers = [line.split()[2:] for line in done.stdout.splitlines() if "layer 4 " in line]
    raw, rollout, flow = ([float(score) for score in row] for row in last_layers)
    # At the last layer raw attention is uniform; rollout and flow rank "key" first.
    assert raw == [0.17] * 6
    assert max(rollout) == rollout[1] > sorted(rollout)[-2]
    assert max(flow) == flow[1] > sorted(flow)[-2]
