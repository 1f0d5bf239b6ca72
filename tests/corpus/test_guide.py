"""The commands, queries and examples in docs/corpus.md, run as they are written there."""

import re
import shlex
from pathlib import Path

import duckdb
import pytest
from typer.testing import CliRunner

from attnflow.cli.main import app, load_command
from tests.corpus.fakes import run
from tests.models.checkpoints import save

GUIDE = Path(__file__).parents[2] / "docs" / "corpus.md"
SENTENCES = ["the key to the cabinets is here", "the cabinets are here"] * 9


def blocks(language):
    return re.findall(rf"```{language}\n(.*?)```", GUIDE.read_text(encoding="utf-8"), re.DOTALL)


def commands():
    """The attnflow commands in console and bash blocks, as lists of arguments."""
    text = "\n".join([*blocks("console"), *blocks("bash")]).replace("\\\n", " ")
    lines = [line.removeprefix("$ ") for line in text.splitlines()]
    return [shlex.split(line, comments=True)[1:] for line in lines if line.startswith("attnflow ")]


@pytest.fixture(autouse=True)
def _in_new_folder(tmp_path, monkeypatch):
    if not GUIDE.exists():
        pytest.skip("the guide is not installed with the tests")
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def _scores(tmp_path):
    (tmp_path / "texts.txt").write_text("the key\n\nto the cabinets\nthe key\n")
    run(tmp_path / "texts.txt", tmp_path / "scores")


def write_reviews():
    Path("reviews.tsv").write_text("\n".join(["sentence\tlabel", *(f"{s}\t1" for s in SENTENCES)]))


def test_all_commands_have_valid_options():
    group = load_command("corpus")
    parsed = [
        (name, group.commands[name].make_context(name, rest)) for _, name, *rest in commands()
    ]
    assert [name for name, _ in parsed] == [
        *("run", "table", "table", "show", "show", "check", "run", "run")
    ]


@pytest.mark.slow
def test_commands_for_one_machine_run():
    write_reviews()
    local = [arguments for arguments in commands() if "/shared/scores" not in arguments]
    for arguments in [*local, ["corpus", "errors", "scores", "--counts"]]:
        result = CliRunner().invoke(app, arguments)
        assert result.exit_code == 0, result.output
    assert len(local) == 6
    assert "here" in Path("17.html").read_text(encoding="utf-8")


@pytest.mark.slow
def test_the_example_of_a_run_in_python(tmp_path):
    write_reviews()
    save(tmp_path / "my-model")
    names: dict[str, object] = {}
    exec(blocks("python")[0], names)
    assert names["summary"].rows == len(SENTENCES)  # type: ignore[attr-defined]


@pytest.mark.usefixtures("_scores")
def test_queries_run():
    best, words, rejected = (duckdb.execute(query).fetchall() for query in blocks("sql"))
    assert [row[0] for row in best] == ["0", "2", "3"]
    assert sorted((token, n) for token, _, n in words) == [
        ("cabinets", 1),
        ("key", 2),
        ("the", 3),
        ("to", 1),
    ]
    assert rejected == [("empty", 1)]


@pytest.mark.usefixtures("_scores")
def test_examples_of_reading_run():
    _, frames, examples = blocks("python")
    names: dict[str, object] = {}
    exec(frames, names)
    assert len(names["frame"]) == 3 * 2  # type: ignore[arg-type]
    exec(examples, names)
    assert len(names["best"]) == 3  # type: ignore[arg-type]
