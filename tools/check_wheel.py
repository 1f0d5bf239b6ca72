"""Install the built wheel with one extra in a clean environment, and run the tests of that extra.

    make dist
    python tools/check_wheel.py none
    python tools/check_wheel.py models --versions lowest --pin torch==2.13.0
    python tools/check_wheel.py --all

The tests are copied away from the repository, so that they see the installed package only. `lowest`
installs the lowest versions that pyproject.toml allows. uv is used if it is there, pip otherwise.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import tomllib
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
# What the tests themselves import.
TOOLS = ("hypothesis", "networkx", "ortools", "psutil", "pytest>=9", "pytest-xdist")
# For each extra the tests that need no other, and packages that only these tests import.
BASE = (
    "tests/maxflow",
    "tests/methods/test_joint_flow.py",
    "tests/test_errors.py",
    "tests/test_selection.py",
    "tests/test_token_text.py",
    "tests/cli/test_progress_bars.py",
)
TESTS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "none": (BASE, ("scipy",)),
    "torch": (("tests/methods", "tests/test_attentions.py", "tests/test_graph.py"), ()),
    "models": (
        ("tests/edges", "tests/models/test_builtin.py", "tests/models/test_prediction.py"),
        (),
    ),
    "figures": (("tests/figures/test_labels.py", "tests/figures/test_graph.py"), ()),
    "images": (("tests/test_images.py",), ("matplotlib",)),
    "minilm": (("tests/models/test_minilm.py",), ()),
    "bertviz": (("tests/convert/test_bertviz.py",), ("transformers",)),
    "captum": (("tests/importance/test_gradients.py", "tests/convert/test_captum.py"), ()),
    "inseq": (("tests/convert/test_inseq.py",), ()),
    "interpreto": (("tests/convert/test_interpreto.py",), ()),
    "corpus": (("tests/corpus/test_parquet.py", "tests/corpus/test_journal.py"), ()),
    "pandas": (("tests/test_attribution.py",), ("torch", "transformers")),
    "polars": (("tests/convert/test_tables.py",), ("torch", "transformers")),
    "xarray": (("tests/convert/test_tables.py",), ("torch", "transformers")),
    "evaluation": (
        ("tests/evaluation", "tests/study/test_explainers.py", "tests/study/test_table.py"),
        (),
    ),
    "serve": (("tests/viewer/server",), ("httpx", "pillow")),
    "notebook": (
        ("tests/viewer/test_payload.py", "tests/figures/test_display.py"),
        ("torch", "transformers"),
    ),
    "datasets": (("tests/corpus/test_readers.py",), ()),
    "ray": (("tests/corpus/test_ray_engine.py",), ()),
}


def requirement_name(requirement: str) -> str:
    """The name of the package of a requirement.

    >>> requirement_name("attnflow[torch]>=1"), requirement_name("numba >= 0.61")
    ('attnflow', 'numba')
    """
    for i, letter in enumerate(requirement):
        if letter in "[<>=!~; ":
            return requirement[:i]
    return requirement


def lowest_versions(extra: str) -> list[str]:
    """Constraints for the lowest versions of what attnflow and an extra require.

    >>> [line for line in lowest_versions("none") if line.startswith("numba")]
    ['numba==0.61']
    """
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"]
    found = list(project["dependencies"])
    waiting = [extra] if extra != "none" else []
    while waiting:
        for requirement in extras[waiting.pop()]:
            if requirement_name(requirement) == project["name"]:
                waiting += requirement.partition("[")[2].rstrip("]").split(",")
            else:
                found.append(requirement)
    return sorted({requirement.replace(">=", "==") for requirement in found})


def check(extra: str, versions: str, pins: list[str], wheel: Path) -> bool:
    """Install the wheel with an extra, and run its tests; whether they passed."""
    paths, packages = TESTS[extra]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        python = make_environment(folder / "environment")
        lines = lowest_versions(extra) if versions == "lowest" else []
        pinned = {requirement_name(pin) for pin in pins}
        lines = [line for line in lines if requirement_name(line) not in pinned] + pins
        constraints = folder / "constraints.txt"
        constraints.write_text("\n".join(lines) + "\n", encoding="utf-8")
        target = str(wheel) if extra == "none" else f"{wheel}[{extra}]"
        install(python, ["--constraint", str(constraints), target])
        install(python, ["--constraint", str(constraints), *TOOLS, *packages])
        for part in ("tests", "pyproject.toml"):
            source, copy = ROOT / part, folder / "work" / part
            copy.parent.mkdir(exist_ok=True)
            shutil.copytree(source, copy) if source.is_dir() else shutil.copy(source, copy)
        print(f"\n{extra}, {versions} versions, Python {sys.version.split()[0]}", flush=True)
        run = [str(python), "-m", "pytest", "-q", "-p", "no:cacheprovider", *paths]
        # Warnings of versions that are not pinned are not errors.
        run += ["-o", "filterwarnings=default", "-o", "addopts=--import-mode=importlib", "-ra"]
        where = [str(python), "-c", WHERE, name]
        for command in (where, run):
            done = subprocess.run(command, cwd=folder / "work", env=environment(), check=False)
            if done.returncode:
                return False
        return True


# Fails if the package comes from anywhere but the environment.
WHERE = """
import sys, attnflow, numba, numpy
assert attnflow.__file__.startswith(sys.argv[1]), attnflow.__file__
print("attnflow", attnflow.__version__, "NumPy", numpy.__version__, "Numba", numba.__version__)
"""


def environment() -> dict[str, str]:
    """The variables of this process, without those that would let in other packages."""
    return {name: text for name, text in os.environ.items() if not name.startswith("PYTHON")}


def make_environment(folder: Path) -> Path:
    """Create a virtual environment, and return its Python."""
    venv.create(folder, with_pip=shutil.which("uv") is None)
    return folder / ("Scripts/python.exe" if os.name == "nt" else "bin/python")


def install(python: Path, arguments: list[str]) -> None:
    """Install packages."""
    command = [str(python), "-m", "pip", "install", "--quiet"]
    if shutil.which("uv"):
        command = ["uv", "pip", "install", "--quiet", "--python", str(python)]
    subprocess.run([*command, *arguments], env=environment(), check=True)


def find_wheel() -> Path:
    """The only wheel in dist."""
    wheels = sorted((ROOT / "dist").glob("*.whl"))
    if len(wheels) != 1:
        raise SystemExit(f"dist has {len(wheels)} wheels; run `make dist` first.")
    return wheels[0]


def main() -> int:
    """Check the extras that are named; return the exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("extras", nargs="*", metavar="EXTRA", help=", ".join(TESTS))
    parser.add_argument("--all", action="store_true", help="check all extras")
    parser.add_argument("--versions", choices=["newest", "lowest"], default="newest")
    parser.add_argument("--pin", action="append", default=[], help="a version, as torch==2.13.0")
    options = parser.parse_args()
    unknown = set(options.extras) - set(TESTS)
    if unknown:
        parser.error(f"unknown: {', '.join(unknown)}; expected {', '.join(TESTS)}")
    wheel = find_wheel()
    extras = list(TESTS) if options.all else options.extras or ["none"]
    failed = [extra for extra in extras if not check(extra, options.versions, options.pin, wheel)]
    print(f"\n{len(extras) - len(failed)} of {len(extras)} passed")
    print("\n".join(f"failed: {extra}" for extra in failed))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
