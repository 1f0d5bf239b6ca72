import re
import subprocess
import sys

import matplotlib as mpl
import pytest

from attnflow import FileError, InputError, MissingDependencyError
from attnflow.figures import draw_maps, render, save
from attnflow.figures.display import import_matplotlib
from tests.figures.artists import random_explanation
from tests.refusal import refusal

TOKENS = ["[CLS]", "the", "keys", "$x$", "a<b>&c"]


@pytest.fixture
def figure():
    return draw_maps(random_explanation(TOKENS), methods=["raw"])


@pytest.mark.parametrize(
    ("name", "start"), [("a.svg", b"<?xml"), ("a.PDF", b"%PDF"), ("a.png", b"\x89PNG")]
)
def test_the_ending_says_what_is_written(figure, tmp_path, name, start):
    save(figure, tmp_path / name)
    assert (tmp_path / name).read_bytes().startswith(start)


def test_text_stays_text_in_svg_and_is_escaped(figure):
    svg = render(figure, "svg").decode()
    for text in ("[CLS]", "$x$", "a&lt;b&gt;&amp;c", "share of attention"):
        assert f">{text}</text>" in svg
    assert "<b>" not in svg


def test_svg_names_fonts_for_where_the_first_is_not_installed(figure):
    svg = render(figure, "svg").decode()
    families = set(re.findall(r"font-family: ([^;]*);", svg))
    assert families
    for family in families:
        assert family.startswith("'DejaVu Sans', ")
        assert family.endswith(", sans-serif")


def test_pdf_has_true_fonts(figure):
    pdf = render(figure, "pdf")
    assert b"FontFile2" in pdf
    assert b"/Type3" not in pdf


@pytest.mark.parametrize("kind", ["svg", "pdf", "png"])
def test_the_same_figure_gives_the_same_file(kind):
    made = [render(draw_maps(random_explanation(TOKENS), methods=["raw"]), kind) for _ in range(2)]
    assert made[0] == made[1]
    assert b"date" not in made[0].lower() or kind == "png"


def test_dots_per_inch_decide_the_size_of_a_png(figure):
    import struct

    width, _ = struct.unpack(">II", render(figure, "png", dpi=50)[16:24])
    assert width == round(6.9 * 50)


def test_settings_of_matplotlib_stay_as_they_are():
    with mpl.rc_context({"svg.fonttype": "path", "font.size": 23.0}):
        before = dict(mpl.rcParams)
        render(draw_maps(random_explanation(TOKENS)), "svg")
        assert dict(mpl.rcParams) == before


def test_drawing_and_saving_need_no_pyplot():
    code = (
        "import sys, numpy as np, attnflow\n"
        "from attnflow.figures import draw_maps, render\n"
        "assert 'matplotlib' not in sys.modules\n"
        "scores = np.ones((1, 1, 2))\n"
        "render(draw_maps(attnflow.Attribution(scores, ('a', 'b'), 'flow', (1,), (0,))), 'svg')\n"
        "assert 'matplotlib.pyplot' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_missing_glyphs_give_one_warning():
    figure = draw_maps(random_explanation(["[CLS]", "\U000f1234", "\U000f1235"]))
    with pytest.warns(UserWarning, match="font") as caught:
        render(figure, "png")
    assert len(caught) == 1
    assert "\U000f1234 \U000f1235" in str(caught[0].message)


def test_refusals(figure, tmp_path, monkeypatch):
    with refusal(InputError, "plot.jpg"):
        save(figure, tmp_path / "plot.jpg")
    with refusal(InputError, "'gif'", "'svg'", "'pdf'", "'png'"):
        render(figure, "gif")
    with refusal(FileError, "none/a.svg"):
        save(figure, tmp_path / "none" / "a.svg")
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with refusal(MissingDependencyError, "attnflow[figures]"):
        import_matplotlib()
