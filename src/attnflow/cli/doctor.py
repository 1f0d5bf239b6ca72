"""The command `doctor`: versions, extras, devices, compiled code and caches of this installation.

Versions are read from the metadata of installed packages. torch is imported for the devices only.
"""

import json
import os
import platform
import sys
from dataclasses import asdict, dataclass
from importlib import import_module
from importlib.metadata import PackageNotFoundError, metadata, version
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from attnflow.cli.options import clear_errors, echo, spinner
from attnflow.optional import requirements

if TYPE_CHECKING:
    from packaging.requirements import Requirement


SOLVER_CACHE = "compiled solver"


@dataclass(frozen=True)
class Extra:
    """Optional packages of attnflow.

    installed: versions by name. lacking: requirements that no installed package meets.
    """

    installed: dict[str, str]
    lacking: list[str]


@dataclass(frozen=True)
class Folder:
    """A folder that something is cached in; writable also if it can be created."""

    purpose: str
    path: str
    exists: bool
    writable: bool


@dataclass(frozen=True)
class Diagnosis:
    """What `doctor` shows.

    base: the packages that attnflow always needs. solver: whether each part is compiled; None for
    a part whose packages are missing. solver_problem: why the solver cannot be loaded, if so.
    """

    attnflow: str
    python: str
    platform: str
    location: str
    base: Extra
    extras: dict[str, Extra]
    devices: dict[str, str]
    solver: dict[str, bool | None]
    solver_problem: str | None
    caches: list[Folder]


def register(app: typer.Typer) -> None:
    """Add the command to the command line."""
    app.command()(doctor)


def doctor(
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")] = False,
) -> None:
    """Show what is installed: versions, extras, devices, compiled code and caches.

    Exit codes: 0 if attnflow can run, 1 if a package that it always needs is missing or too old.

    Example: attnflow doctor --json
    """
    with clear_errors():
        with spinner("Looking"):
            diagnosis = diagnose()
        if as_json:
            echo(json.dumps(asdict(diagnosis), indent=2))
        else:
            print_diagnosis(diagnosis)
        if diagnosis.base.lacking or diagnosis.solver_problem:
            raise typer.Exit(1)


def diagnose() -> Diagnosis:
    """Look at packages, devices and folders of this installation."""
    import attnflow

    solver, problem, folder = _check_solver()
    return Diagnosis(
        attnflow=attnflow.__version__,
        python=platform.python_version(),
        platform=f"{platform.system()} {platform.machine()}",
        location=str(Path(attnflow.__file__).parent),
        base=_check_requirements(requirements()),
        extras={name: _check_requirements(requirements(name)) for name in _extra_names()},
        devices=find_devices(),
        solver=solver,
        solver_problem=problem,
        caches=_find_caches(folder),
    )


def _extra_names() -> list[str]:
    """The extras of the installed package; none if attnflow runs from a folder."""
    try:
        return sorted(metadata("attnflow").get_all("Provides-Extra") or [])
    except PackageNotFoundError:
        return []


def _check_requirements(wanted: "list[Requirement]") -> Extra:
    installed, lacking = {}, []
    for requirement in wanted:
        name = requirement.name
        try:
            installed[name] = version(name)
        except PackageNotFoundError:
            lacking.append(f"{name}{requirement.specifier}")
            continue
        if not requirement.specifier.contains(installed[name], prereleases=True):
            lacking.append(f"{name}{requirement.specifier} ({installed[name]} is installed)")
    return Extra(installed, lacking)


def find_devices() -> dict[str, str]:
    """The devices that models can run on, as `--device` names them, with a description."""
    devices = {"cpu": f"{os.cpu_count()} processors"}
    try:
        torch: Any = import_module("torch")
    except (ImportError, OSError) as error:  # not installed, or a shared library is missing
        return {**devices, "others": f"unknown, because torch cannot be imported ({error})"}
    devices["cpu"] += f", {torch.get_num_threads()} threads in torch {torch.__version__}"
    for index in range(torch.cuda.device_count()):
        properties = torch.cuda.get_device_properties(index)
        devices[f"cuda:{index}"] = f"{properties.name}, {properties.total_memory / 2**30:.0f} GiB"
    if torch.backends.mps.is_available():
        devices["mps"] = "Apple GPU"
    for index in range(torch.xpu.device_count()):
        devices[f"xpu:{index}"] = torch.xpu.get_device_name(index)
    return devices


def _check_solver() -> tuple[dict[str, bool | None], str | None, str | None]:
    """Which parts of the solver are compiled, why it cannot be loaded, and where it is stored."""
    from attnflow.cli.warmup import PARTS, is_compiled, solver_folder
    from attnflow.errors import MissingDependencyError

    parts: dict[str, bool | None] = {}
    try:
        for name, run in PARTS.items():
            try:
                parts[name] = is_compiled(run)
            except MissingDependencyError:
                parts[name] = None
        return parts, None, solver_folder()
    except (ImportError, OSError) as error:  # NumPy or Numba is missing, or does not fit
        return {}, str(error), None


def _find_caches(solver: str | None) -> list[Folder]:
    """The folders that attnflow and the packages it uses write to."""
    from attnflow.paper.experiments.experiment import default_cache

    home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    hub = Path(os.environ.get("HF_HOME") or home / "huggingface") / "hub"
    folders = {
        "models from the hub": Path(os.environ.get("HF_HUB_CACHE") or hub),
        "measurements of `reproduce`": default_cache(),
    }
    if solver is not None:
        folders = {SOLVER_CACHE: Path(solver), **folders}
    return [
        Folder(purpose, str(path), path.is_dir(), _is_writable(path))
        for purpose, path in folders.items()
    ]


def _is_writable(path: Path) -> bool:
    """Whether files can be created in a folder, which may have to be created first."""
    existing = next(folder for folder in (path, *path.absolute().parents) if folder.exists())
    return existing.is_dir() and os.access(existing, os.W_OK | os.X_OK)


def print_diagnosis(diagnosis: Diagnosis) -> None:
    """Print a diagnosis as text."""
    echo(f"attnflow {diagnosis.attnflow} in {diagnosis.location}")
    echo(f"Python {diagnosis.python} ({sys.executable}) on {diagnosis.platform}")
    _print_rows("Packages", _list_packages(diagnosis))
    _print_rows("Extras", _list_extras(diagnosis.extras))
    _print_rows("Devices", diagnosis.devices)
    stored = any(folder.purpose == SOLVER_CACHE for folder in diagnosis.caches)
    states = {True: "compiled", False: "not compiled: attnflow warmup", None: "needs torch"}
    if not stored:
        states[False] = "compiled by each process again: see caches"
    solver = {name: states[state] for name, state in diagnosis.solver.items()}
    _print_rows("Solver", solver or {"cannot be loaded": str(diagnosis.solver_problem)})
    caches = {
        folder.purpose: f"{folder.path} ({'' if folder.writable else 'NOT '}writable"
        f"{'' if folder.exists else ', does not exist yet'})"
        for folder in diagnosis.caches
    }
    if solver and not stored:
        caches[SOLVER_CACHE] = "NOWHERE: set NUMBA_CACHE_DIR to a folder that can be written"
    _print_rows("Caches", caches)


def _list_packages(diagnosis: Diagnosis) -> dict[str, str]:
    """Installed packages by name, and those that are always needed and missing."""
    parts = (diagnosis.base, *diagnosis.extras.values())
    installed = {name: number for part in parts for name, number in part.installed.items()}
    rows = dict(sorted(installed.items()))
    if diagnosis.base.lacking:
        rows["MISSING"] = f"{', '.join(diagnosis.base.lacking)}: pip install attnflow"
    return rows


def _list_extras(extras: dict[str, Extra]) -> dict[str, str]:
    """Complete extras in one line; for each other, what it lacks; and what installs an extra."""
    if not extras:
        return {"unknown": "attnflow is not installed, it runs from a folder"}
    complete = [name for name, extra in extras.items() if not extra.lacking]
    rows = {"complete": ", ".join(complete) or "none"}
    for name, extra in extras.items():
        if extra.lacking:
            rows[name] = f"lacks {', '.join(extra.lacking)}"
    if len(complete) < len(extras):
        rows["to install one"] = "pip install 'attnflow[NAME]'"
    return rows


def _print_rows(title: str, rows: dict[str, str]) -> None:
    echo(f"\n{title}")
    width = max(map(len, rows), default=0)
    for name, text in rows.items():
        echo(f"  {name:<{width}}  {text}")
