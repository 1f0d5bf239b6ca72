"""Pages that are generated from the code are up to date, and code in the README runs."""

import re
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path

import pytest

import attnflow
from tools.write_registry import DOCS, fill

ROOT = Path(__file__).parent.parent
DIRECTIVE = re.compile(r"^\.\. auto(?:function|class|module):: (attnflow[\w.]*)$", re.MULTILINE)


@pytest.mark.parametrize(
    ("page", "names"),
    [("api.md", ["`flow`", "`value`"]), ("evaluation.md", ["`mas`", "`leave_one_out`"])],
)
def test_the_tables_of_registries_are_up_to_date(page, names):
    text = (DOCS / page).read_text(encoding="utf-8")
    for name in names:
        assert name in text
    assert fill(page, text) == text, "run: python -m tools.write_registry"


def test_every_public_name_is_documented():
    documented = set(DIRECTIVE.findall((DOCS / "api.md").read_text(encoding="utf-8")))
    errors = {name for name in attnflow.__all__ if name.endswith("Error")}  # by automodule
    public = {f"attnflow.{name}" for name in attnflow.__all__} - {"attnflow.__version__"}
    assert public - {f"attnflow.{name}" for name in errors} <= documented


@pytest.mark.slow
def test_the_example_of_hybrid_models_prints_what_it_says():
    text = (DOCS / "models.md").read_text(encoding="utf-8")
    examples = re.findall(r"```python\n((?:(?!```).)*?)```\n\n```text\n(.*?)```", text, re.DOTALL)
    assert examples
    for code, expected in examples:
        printed = StringIO()
        with redirect_stdout(printed):
            exec(compile(code, "models.md", "exec"), {})
        assert printed.getvalue() == expected


@pytest.mark.slow
def test_the_first_example_of_the_readme_prints_what_it_says(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    [(code, expected)] = re.findall(r"```python\n(.*?)```\n\n```text\n(.*?)```", text, re.DOTALL)
    printed = StringIO()
    with redirect_stdout(printed):
        exec(compile(code, "README.md", "exec"), {})
    assert printed.getvalue() == expected
    assert (tmp_path / "keys.html").stat().st_size > 10_000
