"""The command `warmup`: compile the solver before it is needed, for example in a container image.

Compiled code is found by its types, so each part is run once on a tiny graph. `doctor` uses the
same parts to tell what is compiled.
"""

from collections.abc import Callable
from functools import partial
from time import perf_counter
from typing import Any

import typer

from attnflow.cli.options import clear_errors, progress_bar
from attnflow.errors import MissingDependencyError
from attnflow.optional import import_optional
from attnflow.progress import compilation_shown


def register(app: typer.Typer) -> None:
    """Add the command to the command line."""
    app.command()(warmup)


def warmup() -> None:
    """Compile the flow solver now, so that the first flow does not wait for it.

    Compiled code is stored for later processes. What is stored already is not compiled again.

    Example: attnflow warmup
    """
    with clear_errors():
        start = perf_counter()
        for name, run in PARTS.items():
            typer.echo(f"{name:<26} {_compile_part(name, run)}")
        folder = solver_folder()
        typer.echo(
            f"Compiled code is stored in {folder} ({perf_counter() - start:.1f} s in all)."
            if folder
            else "Compiled code is not stored: set NUMBA_CACHE_DIR to a folder that can be written."
        )


def _compile_part(name: str, run: Callable[[], object]) -> str:
    """Compile a part of the solver, and return what was done."""
    try:
        if is_compiled(run):
            return "was compiled already"
    except MissingDependencyError as error:
        return f"skipped: {error.given}"
    start = perf_counter()
    with progress_bar(f"compiling {name}") as progress, compilation_shown(progress):
        run()
    return f"compiled in {perf_counter() - start:.1f} s"


def is_compiled(run: Callable[[], object]) -> bool:
    """Whether a part of the solver is compiled, in this process or on disk."""
    from attnflow.maxflow.compilation import NotCompiledError, refused_compilation

    try:
        with refused_compilation():
            run()
    except NotCompiledError:
        return False
    return True


def solver_folder() -> str | None:
    """The folder that stores the compiled solver; None if it cannot be stored."""
    from attnflow.maxflow.jit import cache_folder
    from attnflow.maxflow.pair import solve_chunk

    return cache_folder(solve_chunk)


def _graph(causal: bool) -> Any:
    """Uniform attention of three positions in three layers, [layers, n, n]."""
    import numpy as np

    weights = np.tril(np.ones((3, 3, 3))) if causal else np.ones((3, 3, 3))
    return weights / weights.sum(axis=-1, keepdims=True)


def _run_flows(causal: bool) -> None:
    from attnflow.maxflow import max_flows

    max_flows(_graph(causal))


def _run_in_full(causal: bool) -> None:
    from attnflow.maxflow import max_flow
    from attnflow.maxflow.network import build_network
    from attnflow.maxflow.pair import solve_with_integers

    max_flow(_graph(causal), layer=3, source=2, sink=0)
    network, _, _ = build_network(_graph(causal))
    solve_with_integers(network, 3, 2, 0)


def _run_joint_flow() -> None:
    from attnflow.maxflow import joint_flows

    for causal in (False, True):
        joint_flows(_graph(causal))


def _run_alti() -> None:
    torch = import_optional("torch", "ALTI edges")
    from attnflow.models.capture.proximity import score_proximity

    weights, vectors = torch.ones(1, 4, 3, 3), torch.ones(1, 3, 8)
    score_proximity(weights, torch.ones(1, 4, 3, 8), vectors, vectors)


# What is compiled, and a function that needs all of it.
PARTS: dict[str, Callable[[], object]] = {
    "flow (encoders)": partial(_run_flows, causal=False),
    "flow (decoders)": partial(_run_flows, causal=True),
    "flow paths (encoders)": partial(_run_in_full, causal=False),
    "flow paths (decoders)": partial(_run_in_full, causal=True),
    "joint flow": _run_joint_flow,
    "ALTI edges": _run_alti,
}
