"""Write docs/paper.md from saved results: `python -m tools.write_paper`.

Results are in docs/results, where `attnflow reproduce NAME --out docs/results --pictures
docs/images` puts them. No number is typed in here; what is said about the numbers is checked
against them where it could change.
"""

from dataclasses import replace
from pathlib import Path

from attnflow.paper.experiments import EXPERIMENTS, find_experiment
from attnflow.paper.experiments.report import Report, Table, parts_to_markdown, to_markdown
from attnflow.paper.experiments.result import Result, read_result
from tools.paper_comments import COMMENTS, INTRODUCTION

ROOT = Path(__file__).parent.parent
RESULTS = ROOT / "docs" / "results"
PAGE = ROOT / "docs" / "paper.md"
PICTURES = "images"  # as seen from the page


def main() -> None:
    results = read_results(RESULTS)
    PAGE.write_text(write_page(results), encoding="utf-8")
    print(f"wrote {PAGE.relative_to(ROOT)} from {len(results)} results")


def read_results(folder: Path) -> dict[str, Result]:
    """The saved results, in the order of the paper."""
    paths = {name: folder / f"{name}.json" for name in EXPERIMENTS}
    return {name: read_result(path) for name, path in paths.items() if path.exists()}


def write_page(results: dict[str, Result]) -> str:
    parts = [INTRODUCTION, list_commands(results)]
    for name, result in results.items():
        report = find_experiment(name).render(result)
        if name in COMMENTS:
            comment, n_tables = COMMENTS[name]
            parts += write_section(report, comment(results), n_tables)
        else:
            parts.append(to_markdown(report, pictures=PICTURES))
    return "\n\n".join(part.strip() for part in parts) + "\n"


def write_section(report: Report, comment: str, n_tables: int | None) -> list[str]:
    """A report with a comment, at its end or after so many tables and before the details."""
    if n_tables is None:
        return [to_markdown(report, pictures=PICTURES), "### What it shows", comment]
    tables = [i for i, part in enumerate(report.parts) if isinstance(part, Table)]
    end = tables[n_tables - 1] + 1
    return [
        to_markdown(replace(report, parts=report.parts[:end]), pictures=PICTURES),
        "### What it shows",
        comment,
        "### In detail",
        *parts_to_markdown(report.parts[end:], pictures=PICTURES),
    ]


def list_commands(results: dict[str, Result]) -> str:
    """What was run, when, and with which version."""
    rows = [
        f"| [{name}](#{anchor(find_experiment(name).render(result).title)}) | "
        f"{EXPERIMENTS[name]} | `{result.command}` | {result.date} | {result.version} |"
        for name, result in results.items()
    ]
    header = ["| experiment | what it shows | command | date | version |", "| --- " * 5 + "|"]
    missing = [name for name in EXPERIMENTS if name not in results]
    note = f"\n\nNot run yet: {', '.join(missing)}." if missing else ""
    return "## What was run\n\n" + "\n".join([*header, *rows]) + note


def anchor(title: str) -> str:
    """The name that a heading has as a target of links."""
    kept = "".join(c for c in title.lower() if c.isalnum() or c in " -_")
    return kept.replace(" ", "-")


if __name__ == "__main__":
    main()
