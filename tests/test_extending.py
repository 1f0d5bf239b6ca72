"""docs/extending.md, executed: a method and an edge weighting, known everywhere once registered."""

import re
import shlex
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path

import pytest
from typer.testing import CliRunner

from attnflow.cli.main import app
from attnflow.edges.registry import EDGES
from attnflow.methods.registry import METHODS

PAGE = Path(__file__).parent.parent / "docs" / "extending.md"
BLOCK = re.compile(r"```(python|console|text)\n(.*?)```", re.DOTALL)


@pytest.fixture
def registered():
    """Remove what the page registers."""
    yield
    METHODS.unregister("best_path")
    EDGES.unregister("squared")


def run_command(command):
    """Run an attnflow command in this process, where the toy method is registered."""
    result = CliRunner().invoke(app, shlex.split(command)[1:])
    assert result.exit_code == 0, result.output
    return result.stdout


@pytest.mark.slow
@pytest.mark.usefixtures("registered")
def test_the_page_works_from_top_to_bottom(tmp_path):
    namespace = {"folder": tmp_path}
    printed = ""
    for kind, content in BLOCK.findall(PAGE.read_text(encoding="utf-8")):
        if kind == "python":
            output = StringIO()
            with redirect_stdout(output):
                exec(compile(content, str(PAGE), "exec"), namespace)
            printed = output.getvalue()
        elif kind == "text":
            assert printed == content
        else:
            command, _, expected = content.removeprefix("$ ").partition("\n")
            assert run_command(command).startswith(expected)
    check_everywhere(tmp_path)


def check_everywhere(folder):
    """What the page claims, and its code does not show."""
    help_text = CliRunner().invoke(app, ["explain", "--help"]).output
    assert "best_path" in help_text
    assert "squared" in help_text
    assert '"best_path"' in (folder / "keys.html").read_text(encoding="utf-8")
    assert "best_path" in run_command("attnflow corpus run --help")
    assert "Best path" in (folder / "keys.svg").read_text(encoding="utf-8")
