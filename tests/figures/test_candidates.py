from typing import Any

import numpy as np
import pytest
from matplotlib.colors import to_hex

from attnflow import InputError, SelectionError
from attnflow.figures import CandidateCase, draw_candidates
from attnflow.figures.canvas import LIGHT
from tests.figures.artists import check_text, make_explanation, random_explanation, words_in
from tests.refusal import refusal

TOKENS = ["[CLS]", "Mary", "convinced", "John", "of", "[MASK]", "lo", "##ve", "[SEP]"]


def make_case(n_layers=6, **options):
    explanation = random_explanation(TOKENS, n_layers, position=5)
    settings = {"probabilities": {"his": 0.03, "her": 0.01}, "candidates": ("John", "Mary")}
    return CandidateCase(explanation, **{**settings, **options})


def bars_of(figure, gid):
    return [bar for axes in figure.figure_.axes for bar in axes.patches if bar.get_gid() == gid]


def test_bars_are_relative_probabilities_in_the_colors_of_the_candidates():
    figure = draw_candidates(make_case())
    [axes] = [axes for axes in figure.figure_.axes if axes.get_gid() == "probabilities"]
    drawn: list[Any] = list(axes.patches)
    assert [bar.get_height() for bar in drawn] == pytest.approx([0.75, 0.25])
    colors = [to_hex(bar.get_facecolor()) for bar in drawn]
    assert colors == list(LIGHT.categories[:2])
    assert {"his", "her", "75%", "25%", "John", "Mary"} <= set(words_in(figure))
    for i in range(2):
        assert {to_hex(bar.get_facecolor()) for bar in bars_of(figure, f"candidate {i}")} == {
            LIGHT.categories[i]
        }


def test_lengths_are_the_attention_of_the_mask():
    # The mask, the last of three tokens, attends to John 0.5, Mary 0.3 and itself 0.2.
    rows = [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.5, 0.3, 0.2]]
    explanation = make_explanation(["John", "Mary", "[MASK]"], [rows], position=2)
    case = CandidateCase(explanation, {"his": 1.0, "her": 1.0}, ("John", "Mary"))
    np.testing.assert_allclose(case.attention("raw"), [[0.5, 0.3]])
    np.testing.assert_allclose(case.attention("rollout"), [[0.25, 0.15]])
    figure = draw_candidates(case, methods=["raw", "rollout"])
    widths = [bar.get_width() for bar in bars_of(figure, "candidate 0")]
    assert widths == pytest.approx([0.5, 0.25])
    assert [bar.get_width() for bar in bars_of(figure, "candidate 1")] == pytest.approx([0.3, 0.15])


def test_the_first_candidate_is_above_the_second_and_layers_go_upward():
    figure = draw_candidates(make_case(), methods=["flow"])
    first, second = ([bar.get_y() for bar in bars_of(figure, f"candidate {i}")] for i in range(2))
    np.testing.assert_allclose(np.diff(first), 1)
    assert np.all(np.asarray(first) > second)


def test_subwords_of_a_candidate_are_summed():
    case = make_case(candidates=("love", "Mary"))
    scores = case.explanation.rollout(normalize="rows").to_numpy()[:, 0]
    np.testing.assert_allclose(case.attention("rollout")[:, 0], scores[:, 6] + scores[:, 7])


@pytest.mark.parametrize("width", [3.3, 6.9])
@pytest.mark.parametrize("n_layers", [1, 6, 12])
def test_no_text_is_cut_or_overlaps(width, n_layers):
    long = make_case(
        n_layers,
        probabilities={"internationally": 0.999, "her": 0.001},
        title="(b) a title that is much too long to be written in a single line of a column, see",
    )
    figure = draw_candidates([make_case(n_layers), long], width=width)
    check_text(figure, inside=("75%", "25%", "100%", "0%"))


def test_refusals():
    with refusal(InputError, "2", "1"):
        make_case(candidates=("John",))
    with refusal(SelectionError, "'Sara'"):
        draw_candidates(make_case(candidates=("Sara", "Mary")))
    with refusal(InputError, "CandidateCase"):
        draw_candidates([])
