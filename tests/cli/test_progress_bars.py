"""Progress of corpus runs: a bar on a terminal, log lines elsewhere, nothing if quiet."""

import io
import re
import sys

import pytest

from attnflow.cli.progress_bars import show_status
from attnflow.corpus.status import Status


def at(seconds, done=1500, total=6000, pairs=20_000):
    return Status(done, total, 500, 2, pairs, seconds)


def test_lines_come_every_ten_seconds(capsys):
    with show_status(quiet=False) as on_status:
        assert on_status is not None
        for seconds in (1.0, 10.0, 12.0, 19.0, 21.0):
            on_status(at(seconds))
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 2
    assert lines[0] == (
        "attnflow: 1,500 of 6,000 rows (25.0 %), 50 examples/s, 1:30 left, 2 rejected, "
        "2,000 flow pairs/s"
    )


def test_unknown_totals_and_missing_flow_are_left_out(capsys):
    with show_status(quiet=False) as on_status:
        assert on_status is not None
        on_status(at(100.0, total=None, pairs=0))
    assert capsys.readouterr().err == "attnflow: 1,500 rows, 5.0 examples/s, 2 rejected\n"


def test_quiet_shows_nothing():
    with show_status(quiet=True) as on_status:
        assert on_status is None


@pytest.mark.parametrize(
    ("columns", "wording"),
    [
        (120, "1,500/6,000 50 examples/s · 1:30 left · 2 rejected · 2,000 flow pairs/s"),
        (70, "1,500/6,000 50 ex/s · 1:30 left · 2 rejected · 2,000 pairs/s"),
        (60, "1,500/6,000 50 ex/s · 1:30 left · 2 rejected"),
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
    with show_status(quiet=False) as on_status:
        assert on_status is not None
        on_status(at(10.0))
    shown = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", terminal.getvalue())
    line = next(line for line in re.split(r"[\r\n]", shown) if "1,500" in line)
    assert wording in line
    assert set(line[:4]) <= set("━╸╺")
    assert len(line.rstrip()) <= columns
