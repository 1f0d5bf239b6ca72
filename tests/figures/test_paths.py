from typing import Any

import numpy as np
import pytest
from matplotlib.collections import PathCollection
from matplotlib.colors import to_rgb

from attnflow import InputError, SelectionError
from attnflow.figures import draw_graph, draw_paths
from attnflow.figures.canvas import LIGHT
from attnflow.figures.paths import follow, strongest_paths
from tests.figures.artists import check_text, make_explanation, random_explanation, words_in
from tests.refusal import refusal

# Attention of a: layer 1 (0.2, 0.8), layer 2 (0.5, 0.5); with the residual connection (0.6, 0.4)
# and (0.75, 0.25). b attends to itself.
TWO = make_explanation(["a", "b"], [[[0.2, 0.8], [0.0, 1.0]], [[0.5, 0.5], [0.0, 1.0]]])


def curves_of(display):
    """For each panel the widths of curves, by (layer from 0, position, token)."""
    panels = []
    for axes in display.axes_:
        [lines] = [one for one in axes.findobj(PathCollection) if one.get_gid() == "paths"]
        ends = [
            (int(path.vertices[0][0]), int(path.vertices[-1][1]), int(path.vertices[0][1]))
            for path in lines.get_paths()
        ]
        panels.append(dict(zip(ends, lines.get_linewidths(), strict=True)))
    return panels


def test_rollout_and_raw_attention_are_followed_from_the_position_to_the_input():
    rollout = follow(TWO, "rollout", [0], 2, None)
    np.testing.assert_allclose(rollout.edges[1], [[0.75, 0.25], [0.0, 0.0]])
    np.testing.assert_allclose(rollout.edges[0], [[0.45, 0.3], [0.0, 0.25]])
    raw = follow(TWO, "raw", [0], 2, None)
    np.testing.assert_allclose(raw.edges[0], [[0.1, 0.4], [0.0, 0.5]])


def test_what_arrives_is_the_rollout_and_the_flow():
    explanation = random_explanation([*"abcdefg"], n_layers=5)
    rollout = follow(explanation, "rollout", [2, 4], 5, None)
    expected = explanation.rollout(layers=5, positions=[[2, 4]]).to_numpy()[0, 0]
    np.testing.assert_allclose(rollout.edges[0].sum(axis=0), expected)
    flow = follow(explanation, "flow", [2, 4], 5, 1)
    assert flow.total == pytest.approx(
        explanation.flow(layers=5, positions=[[2, 4]]).to_numpy()[0, 0, 1]
    )
    assert flow.edges[0][:, 1].sum() == pytest.approx(flow.total)
    assert {edge[0] for edge in flow.cut} <= set(range(5))


def test_the_widest_paths_come_first():
    # Three paths through two layers: 0.5 by node 0, 0.3 by node 1, 0.2 by node 2.
    edges = np.zeros((2, 3, 3))
    edges[1, 0] = edges[0][[0, 1, 2], [0, 1, 2]] = [0.5, 0.3, 0.2]
    edges[0][[0, 1, 2], [0, 1, 2]] = [0.5, 0.3, 0.2]
    one, n = strongest_paths(edges, most=1)
    assert n == 1
    assert one[0, 0, 0] == one[1, 0, 0] == 0.5
    assert one.sum() == 1.0
    most, n = strongest_paths(edges, enough=0.75)
    assert n == 2
    assert most[0].sum() == pytest.approx(0.8)
    everything, n = strongest_paths(edges, enough=1.0)
    np.testing.assert_allclose(everything, edges)
    assert n == 3


def test_kept_paths_are_whole_and_lie_within_the_edges():
    explanation = random_explanation([*"abcdefghijk"], n_layers=6)
    edges = follow(explanation, "flow", [0], 6, 3).edges
    kept, _ = strongest_paths(edges, most=5)
    assert (kept <= edges + 1e-12).all()
    for layer in range(5):  # what enters a node leaves it
        np.testing.assert_allclose(kept[layer].sum(axis=1), kept[layer + 1].sum(axis=0), atol=1e-12)
    np.testing.assert_allclose(kept.sum(axis=(1, 2)), kept[0].sum())


def test_widths_are_shares_and_the_minimum_cut_has_a_color_of_its_own():
    display = draw_paths(TWO, methods=["rollout", "flow"], position="a", token="b", enough=1.0)
    rollout, flow = curves_of(display)
    assert rollout[(1, 0, 0)] == pytest.approx(0.75 / 0.25 * rollout[(1, 0, 1)])
    # The flow from a to b is 0.25 through b, and 0.4 of what layer 1 lets pass.
    assert flow[(0, 0, 1)] == pytest.approx(0.4 / 0.25 * flow[(0, 1, 1)])
    lines: Any = display.axes_[1].findobj(PathCollection)[0]
    orange = [
        curve
        for curve, color in zip(flow, lines.get_edgecolor(), strict=True)
        if to_rgb(color) == to_rgb(LIGHT.highlight)
    ]
    assert set(orange) == {(1, 0, 1), (0, 0, 1)}
    assert any("to \u201cb\u201d" in text for text in words_in(display))


def test_crowded_graphs_show_paths_by_default_and_small_ones_all_lines():
    many = random_explanation(["[CLS]", *(f"w{i}" for i in range(22))], n_layers=12)
    display = draw_graph(many)
    assert len(curves_of(display)) == 3
    assert sum(map(len, curves_of(display))) < 3 * 24 * 12
    assert any("paths:" in text for text in check_text(display))
    few = draw_graph(random_explanation(["[CLS]", "a", "b"]))
    assert not few.axes_[0].findobj(lambda artist: artist.get_gid() == "paths")
    every = draw_graph(many, lines="all")
    assert not every.axes_[0].findobj(lambda artist: artist.get_gid() == "paths")


def test_the_flow_goes_to_the_best_ordinary_token_unless_told():
    explanation = random_explanation(["[CLS]", "a", "b", "c"], n_layers=2)
    scores = explanation.flow(layers=2).to_numpy()[0, 0]
    best = "abc"[int(scores[1:].argmax())]
    assert f"Attention flow to \u201c{best}\u201d" in words_in(draw_paths(explanation))
    assert "Attention flow to \u201cc\u201d" in words_in(draw_paths(explanation, token="c"))


@pytest.mark.parametrize("width", [3.3, 6.9])
@pytest.mark.parametrize("n", [2, 23, 60])
def test_no_text_is_cut_or_overlaps(n, width):
    explanation = random_explanation(["[CLS]", *(f"word{i}" for i in range(n - 1))], n_layers=12)
    check_text(draw_paths(explanation, width=width))


def test_refusals():
    with refusal(InputError, "'joint_flow'", "raw", "rollout", "flow"):
        draw_paths(TWO, methods=["joint_flow"])
    with refusal(SelectionError, "'c'"):
        draw_paths(TWO, token="c")
    wrong: Any = TWO.raw()
    with refusal(InputError, "Attribution", "Explanation"):
        draw_paths(wrong)
    with refusal(InputError, "'some'", "'all'", "'paths'"):
        draw_graph(TWO, lines="some")  # type: ignore[arg-type]
