"""Compilation and its cache, bit sets, and the solver without the compiler."""

import json
import os
import shutil
import subprocess
import sys

import numpy as np
import pytest
from numba.core import caching

from attnflow.maxflow import jit

pytestmark = pytest.mark.slow


@pytest.mark.parametrize(
    ("n", "first", "end"), [(5, 0, 5), (64, 0, 64), (65, 3, 65), (200, 70, 130)]
)
def test_bit_sets_hold_a_range_of_members(n, first, end):
    words = np.full((n + 63) // 64 + 2, jit.ALL)  # the set begins at word 1
    jit.fill(words, 1, words.size - 2, first, end)
    assert [u for u in range(n) if jit.contains(words, 1, u)] == list(range(first, end))
    assert words[0] == words[-1] == jit.ALL
    jit.remove(words, 1, first)
    assert not jit.contains(words, 1, first)
    w = 1 + (end - 1) // 64
    only_last = np.uint64(jit.members_from(words[w], end - 1))
    assert jit.first_member(only_last, w - 1) == end - 1
    jit.insert(words, 1, first)
    assert jit.contains(words, 1, first)


def test_the_solver_runs_with_the_compiler_switched_off():
    code = """
import numpy as np
from attnflow.maxflow import max_flows
rows = 0.5 * np.random.default_rng(1).dirichlet(np.ones(5), size=(4, 5)) + 0.5 * np.eye(5)
sparse = np.random.default_rng(2).integers(0, 3, size=(4, 5, 5)) % 2 * 1.0
graphs = rows, np.tril(rows), sparse, np.tril(sparse)
print([max_flows(capacities).values.tolist() for capacities in graphs])
"""
    outputs = [
        subprocess.run(
            [sys.executable, "-W", "ignore", "-c", code],
            env={**os.environ, "NUMBA_DISABLE_JIT": off},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for off in ("0", "1")
    ]
    compiled, plain = (np.asarray(json.loads(text)) for text in outputs)
    assert plain == pytest.approx(compiled, abs=1e-12)


def double(x):
    return 2 * x


def triple(x):
    return 3 * x


@pytest.fixture
def messages(monkeypatch, caplog):
    monkeypatch.setattr(jit, "_uncached", [])
    return caplog


def test_without_a_folder_for_the_cache_kernels_run_with_one_warning(monkeypatch, messages):
    monkeypatch.setattr(caching.CacheImpl, "_locator_classes", [])
    assert (jit.kernel(double)(2), jit.vectorized(triple)(2)) == (4, 6)
    [record] = messages.records
    assert "NUMBA_CACHE_DIR" in record.getMessage()


@pytest.mark.parametrize("name", ["load_overload", "save_overload"])
@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), EOFError()])
def test_a_cache_that_cannot_be_read_or_written(monkeypatch, messages, name, error):
    def fail(*_given):
        raise error

    monkeypatch.setattr(caching.FunctionCache, "load_overload", lambda *_given: None)
    monkeypatch.setattr(caching.FunctionCache, name, fail)
    assert (jit.kernel(double)(2), jit.kernel(triple)(2)) == (4, 6)
    assert len(messages.records) == 1


@pytest.mark.slow
def test_kernels_are_compiled_again_when_a_called_file_changes(tmp_path):
    package = tmp_path / "kernels"
    package.mkdir()
    (package / "__init__.py").touch()
    shutil.copy(jit.__file__, package / "jit.py")
    (package / "outer.py").write_text(
        "from kernels.jit import kernel\n"
        "from kernels.inner import value\n\n"
        "@kernel\n"
        "def twice():\n"
        "    return 2 * value()\n"
    )

    def write(value):
        (package / "inner.py").write_text(
            f"from kernels.jit import kernel\n\n@kernel\ndef value():\n    return {value}\n"
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
