"""Progress of compilation, its log message, and its refusal, on small kernels of these tests."""

import logging
from typing import Any

import numba
import pytest

from attnflow.maxflow import compilation, jit
from attnflow.maxflow.compilation import NotCompiledError, called_kernels, refused_compilation
from attnflow.progress import compilation_display, compilation_shown

pytestmark = pytest.mark.skipif(not jit.COMPILED, reason="nothing is compiled")


def build_kernels():
    """A kernel that calls another, which inlines a third; all watched and not yet compiled."""
    scope: dict[str, Any] = {}
    exec(
        "def low(x):\n    return x + 1\n"
        "def middle(x):\n    return low(x) * low(x)\n"
        "def top(x):\n    return middle(x) - 1\n",
        scope,
    )
    for name in ("low", "middle", "top"):
        inline: Any = "always" if name == "low" else "never"
        scope[name] = numba.njit(inline=inline)(scope[name])
        compilation.watch(scope[name], inlined=name == "low")
    return scope


def test_progress_goes_from_nothing_to_all_once():
    kernels = build_kernels()
    reports = []
    with compilation_shown(lambda done, total: reports.append((done, total))):
        assert kernels["top"](2) == 8
        assert kernels["top"](3) == 15
    sizes = {name: len(kernels[name].py_func.__code__.co_code) for name in ("low", "middle", "top")}
    inner = sizes["middle"] + sizes["low"]  # its own code and what is inlined
    total = inner + sizes["top"]
    assert reports == [(0, total), (inner, total), (total, total)]
    assert compilation_display() is None


def test_inlined_and_compiled_kernels_are_not_counted():
    kernels = build_kernels()
    inlines = compilation._watch.inlines
    assert called_kernels(kernels["top"], inlines) == {kernels["top"], kernels["middle"]}
    kernels["middle"](1)
    assert called_kernels(kernels["top"], inlines) == {kernels["top"]}


def test_refused_kernels_are_compiled_later():
    kernels = build_kernels()
    with refused_compilation(), pytest.raises(NotCompiledError) as caught:
        kernels["top"](1)
    assert "top" in caught.value.given
    assert kernels["top"](1) == 3
    with refused_compilation():
        assert kernels["top"](1) == 3


def test_long_compilation_is_logged_unless_it_is_shown(monkeypatch, caplog):
    kernels = build_kernels()
    with caplog.at_level(logging.WARNING):
        kernels["top"](1)
        assert caplog.records == []
        monkeypatch.setattr(compilation, "LONG", 1)
        kernels["top"](1.0)
        assert [record.name for record in caplog.records] == ["attnflow.maxflow.compilation"]
        with compilation_shown(lambda _done, _total: None):
            kernels["top"](1j)
        assert len(caplog.records) == 1
