"""The solver without Numba's compiler, for debugging."""

import json
import os
import subprocess
import sys

import numpy as np
import pytest


def test_the_solver_also_runs_with_the_compiler_switched_off():
    code = """
import numpy as np
from attnflow.maxflow import max_flows
rows = 0.5 * np.random.default_rng(1).dirichlet(np.ones(5), size=(4, 5)) + 0.5 * np.eye(5)
print(repr(max_flows(rows).values.tolist()))
"""
    found = [
        subprocess.run(
            [sys.executable, "-W", "ignore", "-c", code],
            env={**os.environ, "NUMBA_DISABLE_JIT": off},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for off in ("0", "1")
    ]
    compiled, plain = (np.asarray(json.loads(text)) for text in found)
    assert plain == pytest.approx(compiled, abs=1e-12)
