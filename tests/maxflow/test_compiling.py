"""How the solver is compiled and kept, and that it also runs without the compiler."""

import json
import os
import shutil
import subprocess
import sys

import numpy as np
import pytest

from attnflow.maxflow import jit as compiling


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


def test_a_change_in_a_called_file_is_seen(tmp_path):
    package = tmp_path / "kernels"
    package.mkdir()
    (package / "__init__.py").touch()
    shutil.copy(compiling.__file__, package / "compiling.py")
    (package / "outer.py").write_text(
        "from kernels.compiling import kernel\n"
        "from kernels.inner import value\n\n"
        "@kernel\n"
        "def twice():\n"
        "    return 2 * value()\n"
    )

    def write(value):
        (package / "inner.py").write_text(
            f"from kernels.compiling import kernel\n\n@kernel\ndef value():\n    return {value}\n"
        )

    def run():
        code = "from kernels.outer import twice; print(twice(), dict(twice.stats.cache_hits))"
        environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
        environment.pop("NUMBA_CACHE_DIR", None)
        return subprocess.run(
            [sys.executable, "-W", "ignore", "-c", code],
            env=environment, capture_output=True, text=True, check=True,
        ).stdout  # fmt: skip

    write(3)
    assert run() == "6 {}\n"
    assert run() == "6 {(): 1}\n"
    write(10)
    assert run() == "20 {}\n"
