from typing import Any

import numpy as np
import pytest

from attnflow import InputError, ShapeError
from attnflow.figures import draw_critical_difference, draw_curves
from attnflow.figures.evaluation import connect_ranks
from tests.figures.artists import check_text, words_in
from tests.refusal import refusal

FALLING = {
    "rollout, ALTI": [1, 0.5, 0.2, 0.1],
    "flow $x_1$": [0.9, 0.6, 0.3, 0.1],
    "random": [0.9, 0.8, 0.5, 0.1],
}


def lines_of(figure, panel=0, gid="curves"):
    axes = [axes for axes in figure.figure_.axes if axes.get_gid() == gid][panel]
    return {line.get_gid(): line for line in axes.lines if line.get_gid()}


def test_curves_have_their_values_at_equal_shares():
    staying: dict[str, Any] = {name: 1 - np.asarray(values) for name, values in FALLING.items()}
    figure = draw_curves(FALLING, staying)
    panels: list[Any] = [FALLING, staying]
    for panel, curves in enumerate(panels):
        lines = lines_of(figure, panel)
        assert list(lines) == list(curves)
        for name, values in curves.items():
            np.testing.assert_allclose(lines[name].get_xdata(), [0, 1 / 3, 2 / 3, 1])
            np.testing.assert_allclose(lines[name].get_ydata(), values)


def test_curves_differ_in_more_than_color():
    names = [f"explainer {i}" for i in range(8)]
    lines = lines_of(draw_curves({name: [1, 0] for name in (*names, "random", "position")},
                                 baselines=["random", "position"]))  # fmt: skip
    looks = {(line.get_marker(), line._dash_pattern[1] is not None) for line in lines.values()}
    styles = {
        (line.get_color(), line.get_linestyle(), line.get_marker(), str(line._dash_pattern))
        for line in lines.values()
    }
    assert len(styles) == 10
    assert len(looks) > 4
    assert lines["random"].get_color() == lines["position"].get_color()
    assert lines["random"].get_color() not in {lines[name].get_color() for name in names}


@pytest.mark.parametrize("width", [3.3, 6.9])
@pytest.mark.parametrize("n", [2, 9])
def test_no_text_of_curves_is_cut_or_overlaps(width, n):
    curves = {f"rollout, attention, residual {i}": [0.9, 0.4, 0.1] for i in range(n)}
    figure = draw_curves(curves, curves, width=width, caption="minilm-sst2; removed: [MASK]")
    texts = check_text(figure)
    assert set(curves) <= set(texts)


def test_groups_are_the_largest_runs_within_the_difference():
    ranks = {"d": 4.0, "a": 1.0, "c": 2.4, "b": 1.5}
    assert connect_ranks(ranks, 1.0) == [("a", "b"), ("b", "c")]
    assert connect_ranks(ranks, 5.0) == [("a", "b", "c", "d")]
    assert connect_ranks(ranks, 0.5) == []  # exactly the difference apart: told apart
    assert connect_ranks({"a": 1.0, "b": 3.0, "c": 3.1, "d": 3.2}, 0.5) == [("b", "c", "d")]


def test_ranks_groups_and_ruler_are_to_scale():
    ranks = {"a": 1.0, "b": 1.5, "c": 2.5, "d": 4.0}
    lines = lines_of(draw_critical_difference(ranks, 30, 0.8), gid="ranks")
    places = {name: lines[name].get_xdata()[0] for name in ranks}
    unit = (places["d"] - places["a"]) / 3
    assert places["b"] - places["a"] == pytest.approx(0.5 * unit)
    assert np.ptp(lines["critical difference"].get_xdata()) == pytest.approx(0.8 * unit)
    bar = lines["a b"].get_xdata()
    assert bar[0] < places["a"] < places["b"] < bar[1] < places["c"]
    assert "b c" not in lines


@pytest.mark.parametrize("width", [3.3, 6.9])
@pytest.mark.parametrize("n", [2, 5, 22])
def test_no_text_of_ranks_is_cut_or_overlaps(width, n):
    ranks = {f"rollout, attention {i}": 1 + 0.7 * i for i in range(n)}
    figure = draw_critical_difference(ranks, 30, 2.0, caption="Comprehensiveness.", width=width)
    texts = words_in(figure)
    check_text(figure, inside=texts[:-1])  # names stand beside the axis, inside its panel
    for name, value in ranks.items():
        assert f"{name}  {value:.2f}" in texts
    assert any("30 texts" in text for text in texts)


def test_refusals():
    with refusal(InputError, "no curves"):
        draw_curves({})
    with refusal(ShapeError, "rollout", "[1]"):
        draw_curves({"rollout": [1.0]})
    with refusal(InputError, "1 mean ranks"):
        draw_critical_difference({"a": 1.0}, 3, 1.0)
    with refusal(InputError, "nan"):
        draw_critical_difference({"a": 1.0, "b": 2.0}, 3, float("nan"))
