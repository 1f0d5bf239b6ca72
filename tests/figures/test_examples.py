"""The examples that draw."""

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

EXAMPLES = Path(__file__).parent.parent.parent / "examples"


def run(name, *arguments):
    command = [sys.executable, str(EXAMPLES / name), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def test_maps_in_a_column_and_on_a_dark_ground(tmp_path):
    run("figure_styles.py", "--out", str(tmp_path))
    column = (tmp_path / "paper-figure-column.svg").read_text(encoding="utf-8")
    dark = (tmp_path / "paper-figure3-dark.svg").read_text(encoding="utf-8")
    assert ">cabinet</text>" in column
    assert "#14171b" in dark
    assert "#14171b" not in column


@pytest.mark.slow
def test_a_vit_is_trained_and_explained(tmp_path):
    pytest.importorskip("sklearn")
    told = run("digits_vit.py", "--out", str(tmp_path), "--epochs", "1")
    assert "accuracy on 297 held-out digits" in told
    for name in ("vit-digits.png", "vit-digits-dark.png", "vit-digits-patch.png"):
        assert (tmp_path / name).read_bytes().startswith(b"\x89PNG")
