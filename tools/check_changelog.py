"""Check CHANGELOG.md, arrange it for a release, or print the notes of a version.

Headings look like `## 0.1.0 (2026-11-16)`. One `## Unreleased` may stand above them; its sections
are `### Added: topic`, or have one of the four kinds or a topic alone. A released version has each
kind once, in the order of KINDS, with topics as `####` headings.

    python tools/check_changelog.py                     # fail unless the versions agree
    python tools/check_changelog.py --arrange 0.2.0 2026-11-30   # turn Unreleased into this version
    python tools/check_changelog.py --release 0.2.0     # fail unless this is ready to be published
    python tools/check_changelog.py --notes 0.2.0       # print the notes of this version
"""

import re
import sys
import tomllib
from datetime import date
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
HEADING = re.compile(r"(?P<version>\d+\.\d+\.\d+\S*) \((?P<date>\d{4}-\d{2}-\d{2})\)")
KINDS = ("Added", "Changed", "Fixed", "Removed")
VERSIONS = {"pyproject.toml": r'^(version = ")[^"]*', "CITATION.cff": r"^(version: ).*"}
FIRST = "0.1.0"  # a list without kinds


def split_versions(changelog: str) -> dict[str, str]:
    """The text of each version by its title, without the title."""
    parts = re.split(r"^## (.*)\n", changelog, flags=re.MULTILINE)
    return {title.strip(): text for title, text in zip(parts[1::2], parts[2::2], strict=True)}


def find_problem(changelog: str, version: str, *, release: bool = False) -> str | None:
    """Say what is wrong with the changelog, or None if nothing is.

    release: whether nothing may be unreleased.
    """
    versions = split_versions(changelog)
    titles = list(versions)
    if release and "Unreleased" in versions and versions["Unreleased"].strip():
        return "CHANGELOG.md has entries under Unreleased; use --arrange to give them a version."
    if titles and titles[0] == "Unreleased":
        titles = titles[1:]
    if not titles:
        return f"CHANGELOG.md has no version heading; expected one for {version}."
    problems = (_find_disorder(title, versions[title]) for title in titles)
    return _check_heading(titles[0], version) or next(filter(None, problems), None)


def _check_heading(title: str, version: str) -> str | None:
    """Say what is wrong with the heading of the newest version."""
    heading = HEADING.fullmatch(title)
    if heading is None:
        return f"CHANGELOG.md has the heading `{title}`; expected `{version} (YYYY-MM-DD)`."
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


def _find_disorder(title: str, text: str) -> str | None:
    """Say which sections of a released version are not in order."""
    kinds = re.findall(r"^### (.*)$", text, flags=re.MULTILINE)
    if title.startswith(f"{FIRST} "):
        return None
    expected = [kind for kind in KINDS if kind in kinds]
    if kinds != expected or not kinds:
        return (
            f"CHANGELOG.md's {title} has the sections {', '.join(kinds) or 'none'}; expected each "
            f"of {', '.join(KINDS)} at most once, in this order."
        )
    return None


def arrange(changelog: str, version: str, day: str) -> str:
    r"""Turn `## Unreleased` into a version with one section of each kind.

    Topics become `####` headings below their kind, those without a kind below Added. Entries that
    occur twice are written once.

    >>> changelog = "## Unreleased\n\n### Fixed: b\n\n- x\n\n### Added\n\n- y\n"
    >>> print(arrange(changelog, "1.0.0", "2026-01-01"))
    ## 1.0.0 (2026-01-01)
    <BLANKLINE>
    ### Added
    <BLANKLINE>
    - y
    <BLANKLINE>
    ### Fixed
    <BLANKLINE>
    #### B
    <BLANKLINE>
    - x
    <BLANKLINE>
    """
    text = split_versions(changelog)["Unreleased"]
    parts = re.split(r"^### (.*)\n", text, flags=re.MULTILINE)
    topics: dict[str, dict[str, list[str]]] = {kind: {} for kind in KINDS}
    written: set[str] = set()
    for title, body in [("Changed", parts[0]), *zip(parts[1::2], parts[2::2], strict=True)]:
        kind, _, topic = title.partition(":")
        if kind.strip() not in KINDS:
            kind, topic = "Added", title
        blocks = topics[kind.strip()].setdefault(topic.strip(), [])
        for block in split_entries(body):
            if " ".join(block.split()) not in written:
                written.add(" ".join(block.split()))
                blocks.append(block)
    lines = [f"## {version} ({day})", ""]
    for kind in KINDS:
        filled = {topic: blocks for topic, blocks in topics[kind].items() if blocks}
        if not filled:
            continue
        lines += [f"### {kind}", ""]
        for topic in sorted(filled, key=bool):  # those without a topic first
            if topic:
                lines += [f"#### {topic[:1].upper()}{topic[1:]}", ""]
            lines += [*filled[topic], ""]
    return changelog.replace(f"## Unreleased\n{text}", "\n".join(lines) + "\n", 1).rstrip() + "\n"


def split_entries(text: str) -> list[str]:
    """The entries of a section, and paragraphs between them, each with its lines."""
    entries: list[str] = []
    for line in text.splitlines():
        if line.startswith("- ") or not entries:
            entries.append(line)
        elif line.strip() and not line.startswith(" ") and entries[-1].endswith("\n"):
            entries.append(line)  # a paragraph after an empty line
        else:
            entries[-1] += f"\n{line}"
    return [entry.strip("\n") for entry in entries if entry.strip()]


def notes(changelog: str, version: str) -> str:
    """The text of a version."""
    for title, text in split_versions(changelog).items():
        if title.startswith(f"{version} "):
            return text.strip()
    raise SystemExit(f"CHANGELOG.md has no {version}.")


def main(arguments: list[str]) -> int:
    """Check this repository, arrange or print its changelog; return the exit status."""
    pyproject = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    path = ROOT / "CHANGELOG.md"
    changelog = path.read_text(encoding="utf-8")
    match arguments:
        case ["--notes", version]:
            print(notes(changelog, version))
            return 0
        case ["--arrange", version, day]:
            path.write_text(arrange(changelog, version, day), encoding="utf-8")
            for name, pattern in VERSIONS.items():
                text = (ROOT / name).read_text(encoding="utf-8")
                text = re.sub(pattern, rf"\g<1>{version}", text, count=1, flags=re.MULTILINE)
                (ROOT / name).write_text(text, encoding="utf-8")
            return 0
        case ["--release", version]:
            problem = find_problem(changelog, version, release=True)
            if problem is None and pyproject["project"]["version"] != version:
                problem = f"pyproject.toml has another version than {version}."
        case []:
            problem = find_problem(changelog, pyproject["project"]["version"])
        case _:
            problem = __doc__
    if problem is not None:
        print(problem, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
