"""Run the examples of a page of the documentation, and write what they print into the page.

    python -m tools.fill_outputs docs/answers.md --models FOLDER

Models are looked up in the folder, in which the examples run. The examples of a page share their
variables. `tests/test_docs.py` checks that a page is up to date.
"""

import argparse
import os
import re
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any

EXAMPLE = re.compile(r"(```python\n(.*?)```\n\n```text\n)(.*?)(```)", re.DOTALL)


def fill_page(text: str) -> str:
    """Return the page with the outputs of its examples, which run in this order."""
    names: dict[str, Any] = {}

    def run(match: re.Match[str]) -> str:
        printed = StringIO()
        with redirect_stdout(printed):
            exec(compile(match[2], "example", "exec"), names)
        return match[1] + printed.getvalue() + match[4]

    return EXAMPLE.sub(run, text)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("page", type=Path)
    parser.add_argument("--models", type=Path, required=True)
    arguments = parser.parse_args()
    page = arguments.page.resolve()
    os.chdir(arguments.models)
    page.write_text(fill_page(page.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main()
