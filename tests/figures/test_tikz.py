import re
import shutil
import subprocess

import pytest

from attnflow import InputError
from attnflow.figures import draw_maps, draw_paths, render, save
from attnflow.figures.overlay import draw_overlay
from attnflow.figures.tikz import to_tikz
from tests.figures.artists import make_explanation, random_explanation
from tests.figures.test_overlay import make
from tests.refusal import refusal

HOSTILE = ["[CLS]", "$x_1$", "a&b%", "\\frac{1}{2}", "~^#", "<s>", "`q'", '"', "--", "}{", "\u2423"]


def test_text_is_escaped_and_bound_to_its_end():
    source = render(draw_maps(random_explanation(HOSTILE), special="show"), "tex").decode()
    nodes = re.findall(r"\\node\[anchor=([a-z ]+), .*?\] at \(.*?\) \{(.*)\};", source)
    texts = dict(reversed(pair) for pair in nodes)
    assert texts["\\$x\\_1\\$"] == texts["a\\&b\\%"]
    assert "\\textbackslash{}frac\\{1\\}\\{2\\}" in texts
    assert texts["Raw attention"] == "base west"


def test_areas_have_the_place_the_size_and_the_color_of_the_figure():
    # One token at one layer, with all of the score: one dark cell.
    explanation = make_explanation(["a", "b"], [[[1.0, 0.0], [0.0, 1.0]]])
    display = draw_maps(explanation, methods=["raw"], width=3.3, scale="shared", caption=False)
    source = render(display, "tex").decode()
    box = display.axes_[0].get_position()
    width, height = (72 * inches for inches in display.figure_.get_size_inches())
    assert f"(0,0) rectangle ({width:.1f}," in source
    dark = re.search(
        r"\\path\[[^]]*fill=\{rgb,255:red,6;green,47;blue,87\}\] \((.*?),(.*?)\)", source
    )
    assert dark
    assert float(dark[1]) == pytest.approx(box.x0 * width, abs=0.1)
    assert float(dark[2]) == pytest.approx(box.y0 * height, abs=0.1)


def test_equal_figures_give_equal_files_and_keep_their_resolution():
    display = draw_paths(random_explanation([*"abc"]))
    before = display.figure_.get_dpi()
    assert render(display, "tex") == render(display, "tex")
    assert display.figure_.get_dpi() == before


def test_photographs_are_files_beside_it(tmp_path):
    display = draw_overlay(make(), methods=["raw"], layers=1)
    save(display, tmp_path / "figure 1.tex")
    files = sorted(path.name for path in tmp_path.iterdir())
    assert files[0] == "figure 1-1.png"
    assert all(f"{{{name}}}" in (tmp_path / "figure 1.tex").read_text() for name in files[:-1])
    with refusal(InputError, "photographs", "save"):
        render(display, "tex")


def test_photographs_are_the_right_way_up():
    import io

    import numpy as np
    from matplotlib.image import imread

    display = draw_overlay(make(), methods=["raw"], layers=1)
    shot = imread(io.BytesIO(render(display, "png", dpi=72)))
    [photograph] = [
        imread(io.BytesIO(data))
        for name, data in to_tikz(display.figure_).images.items()
        if name.endswith("-1.png")
    ]
    box = display.axes_[0].get_window_extent()
    assert photograph.shape[1] == pytest.approx(4 * box.width * 72 / display.figure_.dpi, abs=8)
    upper, lower = np.array_split(photograph[..., :3], 2)
    place = display.axes_[0].get_position()
    rows, columns = shot.shape[:2]
    cut = shot[
        int((1 - place.y1) * rows) + 1 : int((1 - place.y0) * rows) - 1,
        int(place.x0 * columns) + 1 : int(place.x1 * columns) - 1,
        :3,
    ]
    above, below = np.array_split(cut, 2)
    assert (upper.mean() > lower.mean()) == (above.mean() > below.mean())


def has_latex():
    """Whether there is pdflatex, with TikZ and the fonts of the test."""
    if not (shutil.which("pdflatex") and shutil.which("kpsewhich")):
        return False
    found = subprocess.run(
        ["kpsewhich", "tikz.sty", "lmodern.sty"], capture_output=True, text=True, check=False
    )
    return len(found.stdout.splitlines()) == 2


@pytest.mark.slow
@pytest.mark.skipif(not has_latex(), reason="needs pdflatex with TikZ and Latin Modern")
def test_latex_compiles_it(tmp_path):
    save(draw_maps(random_explanation(HOSTILE), special="show"), tmp_path / "maps.tex")
    save(draw_paths(random_explanation(HOSTILE, n_layers=3)), tmp_path / "paths.tex")
    save(draw_overlay(make(), methods=["raw"]), tmp_path / "overlay.tex")
    (tmp_path / "all.tex").write_text(
        "\\documentclass{article}\n\\usepackage[T1]{fontenc}\n\\usepackage{lmodern,tikz}\n"
        "\\begin{document}\n\\input{maps}\n\\input{paths}\n\\input{overlay}\n\\end{document}\n"
    )
    command = ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "all.tex"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-2000:]
    assert (tmp_path / "all.pdf").read_bytes().startswith(b"%PDF")
