"""Pages that are generated from the code are up to date, and code in the README runs."""

import os
import re
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path

import pytest

import attnflow
from tools.fill_outputs import fill_page
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


def test_the_examples_of_long_inputs_print_what_they_say():
    text = (DOCS / "long-context.md").read_text(encoding="utf-8")
    assert fill_page(text) == text, "run: python -m tools.fill_outputs docs/long-context.md"


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:Recommended:UserWarning")
def test_the_examples_of_answers_print_what_they_say(monkeypatch):
    models = Path(os.environ.get("ATTNFLOW_MODELS", ""))
    pytest.importorskip("sentencepiece")
    if not all((models / name).is_dir() for name in ("smollm2", "opus-mt-en-fr")):
        pytest.skip("set ATTNFLOW_MODELS to a folder that contains smollm2 and opus-mt-en-fr")
    monkeypatch.chdir(models)
    text = (DOCS / "answers.md").read_text(encoding="utf-8")
    assert fill_page(text) == text, "run: python -m tools.fill_outputs docs/answers.md"


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # those of the other packages
def test_the_examples_of_converters_print_what_they_say(monkeypatch):
    models = Path(os.environ.get("ATTNFLOW_MODELS", ""))
    for package in ("inseq", "interpreto", "captum", "bertviz", "polars", "xarray"):
        pytest.importorskip(package)
    if not (models / "smollm2").is_dir():
        pytest.skip("set ATTNFLOW_MODELS to a folder that contains smollm2")
    monkeypatch.chdir(models)
    text = (DOCS / "converters.md").read_text(encoding="utf-8")
    assert fill_page(text) == text, "run: python -m tools.fill_outputs docs/converters.md"


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
