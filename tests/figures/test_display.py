import struct

import matplotlib as mpl
import numpy as np
import pytest
from matplotlib.figure import Figure
from matplotlib.text import Text

from attnflow import InputError
from attnflow.figures import (
    CandidateCase,
    Display,
    draw_candidates,
    draw_critical_difference,
    draw_curves,
    draw_graph,
    draw_maps,
    draw_paths,
)
from tests.figures.artists import random_explanation
from tests.refusal import refusal

TOKENS = ["[CLS]", "the", "keys", "to", "it"]
EXPLANATION = random_explanation(TOKENS)
CURVES = {"rollout": [1.0, 0.5, 0.1], "random": [1.0, 0.8, 0.1]}
CASE = CandidateCase(EXPLANATION, {"her": 0.7, "his": 0.3}, ("keys", "it"))
DRAWINGS = {
    "maps": lambda **options: draw_maps(EXPLANATION, **options),
    "graph": lambda **options: draw_graph(EXPLANATION, **options),
    "paths": lambda **options: draw_paths(EXPLANATION, **options),
    "curves": lambda **options: draw_curves(CURVES, **options),
    "candidates": lambda **options: draw_candidates(CASE, **options),
    "ranks": lambda **options: draw_critical_difference({"a": 1.2, "b": 2.1}, 30, 0.5, **options),
}


@pytest.mark.parametrize("name", DRAWINGS)
def test_everything_can_be_drawn_into_given_axes(name):
    figure = Figure(figsize=(9, 7))
    before, ax = figure.subplots(1, 2)
    display = DRAWINGS[name](ax=ax)
    assert isinstance(display, Display)
    assert display.figure_ is figure
    assert display.ax_ is ax
    assert display.axes_
    figure.draw_without_rendering()
    room = ax.get_window_extent()
    for panel in display.axes_:
        box = panel.get_window_extent()
        assert box.width > 0
        assert box.height > 0
        assert room.x0 - 1 <= box.x0
        assert box.x1 <= room.x1 + 1
        assert room.y0 - 1 <= box.y0
        assert box.y1 <= room.y1 + 1
    assert before.axison  # other axes stay as they are


def test_what_does_not_fit_is_made_smaller_with_its_text():
    sizes = []
    for height in (8.0, 1.5):
        figure = Figure(figsize=(7, height))
        ax = figure.add_axes((0.0, 0.0, 1.0, 1.0))
        draw_maps(EXPLANATION, ax=ax)
        sizes.append([text.get_fontsize() for text in ax.findobj(Text) if text.get_text()])
    large, small = map(np.asarray, sizes)
    assert small.max() < 0.95 * large.max()
    np.testing.assert_allclose(small / large, small[0] / large[0])


def test_a_figure_of_its_own_is_shown_as_a_picture_of_its_size():
    display = draw_maps(EXPLANATION, methods=["raw"], width=3.3)
    data, metadata = display._repr_mimebundle_()
    width, height = struct.unpack(">II", data["image/png"][16:24])
    size = metadata["image/png"]
    assert width / height == pytest.approx(size["width"] / size["height"], rel=0.02)
    assert width > size["width"]
    assert data["text/plain"] == repr(display)


def test_a_figure_of_the_caller_is_not_shown_twice():
    ax = Figure().subplots()
    assert set(draw_maps(EXPLANATION, ax=ax)._repr_mimebundle_()) == {"text/plain"}


def test_axes_of_pyplot_and_its_settings_stay_usable(tmp_path):
    mpl.use("agg")
    from matplotlib import pyplot as plt

    figure, ax = plt.subplots(layout="constrained")
    try:
        draw_maps(EXPLANATION, methods=["rollout"], ax=ax).save(tmp_path / "map.svg")
        assert "[CLS]" in (tmp_path / "map.svg").read_text(encoding="utf-8")
    finally:
        plt.close(figure)


def test_refusals():
    with refusal(InputError, "int", "Axes"):
        draw_maps(EXPLANATION, ax=3)  # type: ignore[arg-type]
    figure = Figure()
    with refusal(InputError, "larger"):
        draw_maps(EXPLANATION, ax=figure.add_axes((0.5, 0.5, 0.0, 0.5)))
