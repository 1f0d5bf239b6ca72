"""Fail unless the newest version in CHANGELOG.md is the version in pyproject.toml.

Headings look like `## 0.1.0 (2026-11-16)`. One `## Unreleased` may stand above them.
"""

import re
import sys
import tomllib
from datetime import date
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
HEADING = re.compile(r"(?P<version>\d+\.\d+\.\d+\S*) \((?P<date>\d{4}-\d{2}-\d{2})\)")


def find_problem(changelog: str, version: str) -> str | None:
    """Say what is wrong with the changelog, or None if nothing is."""
    titles = [line[3:].strip() for line in changelog.splitlines() if line.startswith("## ")]
    if titles and titles[0] == "Unreleased":
        titles = titles[1:]
    if not titles:
        return f"CHANGELOG.md has no version heading; expected one for {version}."
    heading = HEADING.fullmatch(titles[0])
    if heading is None:
        return f"CHANGELOG.md has the heading `{titles[0]}`; expected `{version} (YYYY-MM-DD)`."
    try:
        date.fromisoformat(heading["date"])
    except ValueError:
        return f"CHANGELOG.md dates {heading['version']} {heading['date']}, which is no date."
    if heading["version"] != version:
        return (
            f"CHANGELOG.md's newest version is {heading['version']} and pyproject.toml's is "
            f"{version}. Change the one that is wrong."
        )
    return None


def main() -> int:
    """Check this repository; return the exit status."""
    pyproject = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    problem = find_problem(changelog, pyproject["project"]["version"])
    if problem is not None:
        print(problem, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
