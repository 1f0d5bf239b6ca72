"""Make notebooks of the tutorials, which are kept as text, and execute them.

python -m tools.notebooks [NAME ...] [--out build/notebooks] [--run]

A tutorial is a Markdown file with `{code-cell}` blocks (MyST, as Jupytext reads it), so that
changes can be read and no output is committed. `--run` executes the notebooks, so that they contain
their outputs. `tests/test_tutorials.py` executes them too, and `make docs` shows them as pages.
"""

import argparse
import tempfile
from pathlib import Path
from typing import Any

import jupytext  # type: ignore[import-untyped]
from nbclient import NotebookClient

TUTORIALS = Path(__file__).parents[1] / "docs" / "tutorials"
CELL_SECONDS = 600


def names() -> list[str]:
    """The names of the tutorials, in their order."""
    return sorted(path.stem for path in TUTORIALS.glob("[0-9]*.md"))


def read(name: str) -> Any:
    """The notebook of a tutorial, without outputs."""
    notebook = jupytext.read(TUTORIALS / f"{name}.md", fmt="md:myst")
    notebook.metadata = {"kernelspec": {"name": "python3", "display_name": "Python 3"}}
    for number, cell in enumerate(notebook.cells):  # the same file for the same text
        cell["id"] = f"cell-{number}"
    return notebook


def run(notebook: Any) -> Any:
    """Execute a notebook in an empty folder; return it with its outputs.

    Raises nbclient.exceptions.CellExecutionError if a cell fails.
    """
    with tempfile.TemporaryDirectory() as folder:
        client = NotebookClient(
            notebook, timeout=CELL_SECONDS, resources={"metadata": {"path": folder}}
        )
        return client.execute()


def read_output(cell: Any, stream: str = "stdout") -> str:
    """What an executed cell printed to a stream; for stdout also what it returned, as text."""
    texts = []
    for output in cell.get("outputs", ()):
        if output.output_type == "stream" and output.name == stream:
            texts.append(output.text)
        elif output.output_type == "execute_result" and stream == "stdout":
            texts.append(output.data.get("text/plain", ""))
    return "".join(texts)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help="all tutorials by default")
    parser.add_argument("--out", type=Path, default=Path("build/notebooks"))
    parser.add_argument("--run", action="store_true", help="execute the notebooks")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    for name in options.names or names():
        notebook = run(read(name)) if options.run else read(name)
        path = options.out / f"{name}.ipynb"
        path.write_text(jupytext.writes(notebook, fmt="ipynb"), encoding="utf-8")
        print(f"wrote {path}")


if __name__ == "__main__":
    main()
