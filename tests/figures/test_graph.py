from typing import Any

import numpy as np
import pytest
from matplotlib.collections import LineCollection
from matplotlib.colors import to_rgb

from attnflow import Attribution, InputError, SelectionError
from attnflow.figures import draw_graph
from attnflow.figures.canvas import LIGHT
from tests.figures.artists import check_text, make_explanation, random_explanation, words_in
from tests.refusal import refusal

SENTENCE = ["[CLS]", "the", "keys", "to", "the", "cabinet"]
TWO = make_explanation(["a", "b"], [[[0.2, 0.8], [0.0, 1.0]], [[0.5, 0.5], [0.0, 1.0]]])


def collection_of(figure) -> Any:
    [lines] = figure.figure_.axes[0].findobj(LineCollection)
    return lines


def lines_of(figure):
    """For each panel the widths of lines, by their ends: (layer, token), (layer + 1, position)."""
    found = []
    for axes in figure.figure_.axes:
        for lines in axes.findobj(LineCollection):
            ends = [tuple(map(tuple, one)) for one in lines.get_segments()]
            found.append(dict(zip(ends, lines.get_linewidths(), strict=True)))
    return found


def test_widths_are_weights_between_consecutive_layers():
    figure = draw_graph(TWO, methods=["raw"])
    [lines] = lines_of(figure)
    assert set(lines) == {
        ((0, 0), (1, 0)),  # a to itself 0.2; b has nothing to give to a
        ((0, 1), (1, 0)),  # a to b 0.8
        ((0, 1), (1, 1)),  # b to itself 1
        ((1, 0), (2, 0)),
        ((1, 1), (2, 0)),
        ((1, 1), (2, 1)),
    }
    full = lines[((0, 1), (1, 1))]
    assert lines[((0, 0), (1, 0))] == pytest.approx(0.2 * full)
    assert lines[((0, 1), (1, 0))] == pytest.approx(0.8 * full)
    assert lines[((1, 0), (2, 0))] == pytest.approx(0.5 * full)


def test_lines_of_rollout_and_flow_go_back_to_the_input():
    # Rollout of a at layer 2: (0.45, 0.55); its flow: min(0.75, 0.6) = 0.6 to a, and to b
    # min(0.75, 0.4) + min(0.25, 1) = 0.65, which is (0.48, 0.52) of 1.25.
    rollout, flow = lines_of(draw_graph(TWO, methods=["rollout", "flow"]))
    full = rollout[((1, 1), (2, 1))]  # b has all of itself
    assert rollout[((1, 0), (2, 0))] == pytest.approx(0.45 * full)
    assert rollout[((1, 1), (2, 0))] == pytest.approx(0.55 * full)
    assert flow[((1, 0), (2, 0))] == pytest.approx(0.48 * full)
    assert flow[((1, 1), (2, 0))] == pytest.approx(0.52 * full)
    assert rollout[((0, 0), (1, 0))] == flow[((0, 0), (1, 0))]  # the same at layer 1


def test_stronger_lines_are_drawn_later_and_less_transparent():
    figure = draw_graph(random_explanation(SENTENCE), methods=["raw"])
    lines = collection_of(figure)
    assert np.all(np.diff(lines.get_linewidths()) >= 0)
    assert np.all(np.diff(lines.get_colors()[:, 3]) >= 0)


def test_weak_lines_are_left_out():
    [all_lines] = lines_of(draw_graph(TWO, methods=["raw"], threshold=0.0))
    [strong] = lines_of(draw_graph(TWO, methods=["raw"], threshold=0.6))
    assert len(all_lines) == 6
    assert set(strong) == {((0, 1), (1, 0)), ((0, 1), (1, 1)), ((1, 1), (2, 1))}


def test_lines_of_many_other_positions_fade_beside_those_of_one():
    many = random_explanation([f"w{i}" for i in range(24)])
    alone, beside = (
        collection_of(
            draw_graph(many, methods=["raw"], highlight=place, threshold=0.0, lines="all")
        )
        for place in (None, 0)
    )
    strengths = {
        tuple(map(tuple, ends)): (color[3], width)
        for ends, color, width in zip(
            alone.get_segments(), alone.get_colors(), alone.get_linewidths(), strict=True
        )
    }
    for ends, color, width in zip(
        beside.get_segments(), beside.get_colors(), beside.get_linewidths(), strict=True
    ):
        before, same = strengths[tuple(map(tuple, ends))]
        assert width == same  # widths are weights, whoever they belong to
        expected = before**0.5 if ends[1][1] == 0 else before / 2  # 12 of 24 tokens
        assert color[3] == pytest.approx(expected)


def test_lines_of_one_position_can_be_told_apart():
    figure = draw_graph(random_explanation(SENTENCE), methods=["raw"], highlight="[CLS]")
    lines = collection_of(figure)
    orange = [tuple(color[:3]) == to_rgb(LIGHT.highlight) for color in lines.get_colors()]
    assert orange == [tuple(segment[1])[1] == 0 for segment in lines.get_segments()]
    assert sum(orange) > 6


def test_hidden_tokens_are_no_nodes():
    figure = draw_graph(random_explanation(SENTENCE), special="hide")
    assert "[CLS]" not in words_in(figure)
    nodes = {end for lines in lines_of(figure) for line in lines for end in line}
    assert max(y for _, y in nodes) == 4


def test_panels_go_below_each_other_in_a_column():
    explanation = random_explanation(SENTENCE)
    for width, n_rows in ((6.9, 1), (3.3, 3)):
        figure = draw_graph(explanation, width=width)
        panels = [axes for axes in figure.figure_.axes if str(axes.get_gid()).startswith("graph")]
        assert len({round(axes.get_position().y0, 6) for axes in panels}) == n_rows
        assert figure.figure_.get_size_inches()[0] == pytest.approx(width)


@pytest.mark.parametrize("width", [3.3, 6.9])
@pytest.mark.parametrize(
    ("tokens", "n_layers"),
    [(SENTENCE, 6), (SENTENCE, 12), ([f"word{i}" for i in range(60)], 2), (["x" * 90, "b"], 24)],
)
def test_no_text_is_cut_or_overlaps(width, tokens, n_layers):
    attributions = []
    random = np.random.default_rng(0)
    for method in ("raw", "rollout", "flow"):
        n = len(tokens)
        scores = random.dirichlet(np.ones(n), size=(n_layers, n))
        layers = tuple(range(1, n_layers + 1))
        attributions.append(Attribution(scores, tuple(tokens), method, layers, tuple(range(n))))
    for scale in ("shared", "own"):
        figure = draw_graph(attributions, width=width, scale=scale, threshold=0.3)
        assert set(tokens) <= set(check_text(figure))


def test_refusals():
    one = Attribution(np.ones((1, 1, 2)), ("a", "b"), "flow", (1,), (0,))
    with refusal(InputError, "1", "2", "positions=range(n)"):
        draw_graph(one)
    with refusal(SelectionError, "'c'"):
        draw_graph(TWO, highlight="c")
    wrong: Any = "layer"
    with refusal(InputError, "'layer'"):
        draw_graph(TWO, scale=wrong)


def test_the_caption_names_settings_and_notes_of_the_highlighted_position():
    explanation = random_explanation([*"abcdefgh"], n_layers=12)
    text = " ".join(check_text(draw_graph(explanation, lines="all")))
    assert "residual weight 0.5 · rows normalized." in text
    assert "layer 12:" not in text
    noted = " ".join(check_text(draw_graph(explanation, highlight="a", lines="all")))
    assert "Attention flow, layer 12:" in noted


def test_lines_that_would_be_invisible_have_their_own_scale():
    strong, pale = (
        Attribution(np.asarray([[[top, 0.0], [0.0, top]]]), ("a", "b"), method, (1,), (0, 1))
        for top, method in ((1.0, "raw"), (0.1, "rollout"))
    )
    figure = draw_graph([strong, pale], normalize="none")
    assert {"max 1", "max 0.1"} <= set(words_in(figure))
    assert "max 1" not in words_in(draw_graph([strong, pale], normalize="none", scale="shared"))
