"""The queries in the guide, run as they are written there."""

import re
from pathlib import Path

import duckdb
import pytest

from tests.corpus.fakes import run

GUIDE = Path(__file__).parents[2] / "docs" / "corpus.md"


def blocks(language):
    return re.findall(rf"```{language}\n(.*?)```", GUIDE.read_text(encoding="utf-8"), re.DOTALL)


@pytest.fixture
def scores(tmp_path, monkeypatch):
    if not GUIDE.exists():
        pytest.skip("the guide is not with the tests")
    (tmp_path / "texts.txt").write_text("the key\n\nto the cabinets\nthe key\n")
    run(tmp_path / "texts.txt", tmp_path / "scores")
    monkeypatch.chdir(tmp_path)


@pytest.mark.usefixtures("scores")
def test_queries_of_the_guide_run():
    best, words, rejected = (duckdb.execute(query).fetchall() for query in blocks("sql"))
    assert [row[0] for row in best] == ["0", "2", "3"]
    assert sorted((token, n) for token, _, n in words) == [
        ("cabinets", 1),
        ("key", 2),
        ("the", 3),
        ("to", 1),
    ]
    assert rejected == [("empty", 1)]


@pytest.mark.usefixtures("scores")
def test_examples_of_reading_run():
    frames, own = (code for code in blocks("python") if "scores/" in code or "examples()" in code)
    names: dict[str, object] = {}
    exec(frames, names)
    assert len(names["frame"]) == 3 * 2  # type: ignore[arg-type]
    exec(own, names)
    assert len(names["best"]) == 3  # type: ignore[arg-type]
