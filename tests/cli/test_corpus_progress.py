"""How far a corpus is: a bar on a terminal, a log elsewhere, and nothing if it is to be quiet."""

import io
import re
import sys

import pytest

from attnflow.cli.progress import shown_progress
from attnflow.corpus.progress import Progress


def at(seconds, done=1500, total=6000, pairs=20_000):
    return Progress(done, total, 500, 2, pairs, seconds)


def test_lines_come_every_ten_seconds(capsys):
    with shown_progress(quiet=False) as report:
        assert report is not None
        for seconds in (1.0, 10.0, 12.0, 19.0, 21.0):
            report(at(seconds))
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 2
    assert lines[0] == (
        "attnflow: 1,500 of 6,000 rows (25.0 %), 50 examples/s, 1:30 left, 2 refused, "
        "2,000 flow pairs/s"
    )


def test_without_a_total_or_flow_there_is_less_to_say(capsys):
    with shown_progress(quiet=False) as report:
        assert report is not None
        report(at(100.0, total=None, pairs=0))
    assert capsys.readouterr().err == "attnflow: 1,500 rows, 5.0 examples/s, 2 refused\n"


def test_quiet_is_quiet():
    with shown_progress(quiet=True) as report:
        assert report is None


@pytest.mark.parametrize(
    ("columns", "wording"),
    [
        (120, "1,500/6,000 50 examples/s · 1:30 left · 2 refused · 2,000 flow pairs/s"),
        (70, "1,500/6,000 50 ex/s · 1:30 left · 2 refused · 2,000 pairs/s"),
        (60, "1,500/6,000 50 ex/s · 1:30 left · 2 refused"),
        (40, "1,500/6,000 50 ex/s · 1:30 left"),
    ],
)
def test_a_terminal_gets_a_bar(monkeypatch, columns, wording):
    class Terminal(io.StringIO):
        def isatty(self):
            return True

    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setenv("COLUMNS", str(columns))
    monkeypatch.setenv("TERM", "xterm-256color")
    with shown_progress(quiet=False) as report:
        assert report is not None
        report(at(10.0))
    shown = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", terminal.getvalue())
    line = next(line for line in re.split(r"[\r\n]", shown) if "1,500" in line)
    assert wording in line
    assert set(line[:4]) <= set("━╸╺")
    assert len(line.rstrip()) <= columns
