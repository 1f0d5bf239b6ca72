from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from matplotlib.collections import QuadMesh

from attnflow import (
    AttentionGraph,
    Attribution,
    Explanation,
    InputError,
    SelectionError,
    ShapeError,
)
from attnflow.figures import draw_maps, render
from tests.figures.artists import check_text, make_explanation, random_explanation, words_in
from tests.refusal import refusal

pytestmark = pytest.mark.slow

LONG = ["[CLS]", *(f"word{i}" for i in range(40)), "internationalisation", "[SEP]"]
SENTENCE = ["[CLS]", "the", "article", "on", "NNP", "large", "systems"]


def meshes(figure):
    """What was drawn in each panel: shades [layers, tokens]."""
    found = [mesh for axes in figure.figure_.axes for mesh in axes.findobj(QuadMesh)]
    return [np.asarray(mesh.get_array()) for mesh in found]


def test_panels_hold_rows_that_sum_to_1_on_one_scale():
    # Raw attention of "a": layer 1 (0.2, 0.8), layer 2 (0.5, 0.5); augmented (0.6, 0.4) and
    # (0.75, 0.25); that of "b": layer 1 (0, 1).
    # Rollout at layer 2: 0.75 (0.6, 0.4) + 0.25 (0, 1) = (0.45, 0.55).
    explanation = make_explanation(["a", "b"], [[[0.2, 0.8], [0.0, 1.0]], [[0.5, 0.5], [0.0, 1.0]]])
    figure = draw_maps(explanation, methods=["raw", "rollout"], scale="shared")
    raw, rollout = meshes(figure)
    np.testing.assert_allclose(raw * 0.8, [[0.2, 0.8], [0.5, 0.5]])
    np.testing.assert_allclose(rollout * 0.8, [[0.6, 0.4], [0.45, 0.55]])
    assert "0.8" in words_in(figure)


def test_each_panel_on_its_own_scale_says_where_that_ends():
    explanation = make_explanation(["a", "b"], [[[0.2, 0.8], [0.0, 1.0]]])
    figure = draw_maps(explanation, methods=["raw", "rollout"], scale="own")
    raw, rollout = meshes(figure)
    np.testing.assert_allclose(raw, [[0.25, 1.0]])
    np.testing.assert_allclose(rollout, [[1.0, 0.4 / 0.6]])
    assert {"max 0.8", "max 0.6", "maximum of the map"} <= set(words_in(figure))


def test_shades_from_the_minimum_to_the_maximum_of_each_layer():
    scores = np.asarray([[[0.1, 0.2, 0.3]], [[0.4, 0.4, 0.4]]])
    attribution = Attribution(scores, ("a", "b", "c"), "flow", (1, 2), (0,))
    figure = draw_maps(attribution, scale="layer", normalize="none")
    np.testing.assert_allclose(meshes(figure)[0], [[0.0, 0.5, 1.0], [0.0, 0.0, 0.0]])
    assert {"minimum", "maximum of the layer"} <= set(words_in(figure))


def test_flat_scores_have_contrast_by_default_and_the_figure_says_so():
    flat = np.asarray([[[0.6, 0.64, 0.68, 0.0]]] * 2)  # zeros: tokens that are not reached
    steep = np.asarray([[[0.9, 0.1, 0.0, 0.0]]] * 2)
    flow, rollout = (
        Attribution(scores, tuple("abcd"), method, (1, 2), (0,))
        for scores, method in ((flat, "flow"), (steep, "rollout"))
    )
    figure = draw_maps([rollout, flow], normalize="none")
    np.testing.assert_allclose(meshes(figure)[0], [[1.0, 1 / 9, 0.0, 0.0]] * 2)
    np.testing.assert_allclose(meshes(figure)[1], [[0.15, 0.575, 1.0, 0.0]] * 2)
    assert {"max 0.9", "per layer", "0, or minimum", "maximum"} <= set(words_in(figure))
    assert {"0", "0.9"} <= set(words_in(draw_maps(rollout, normalize="none")))


def test_special_tokens_that_dominate_are_hidden_and_named_unless_asked():
    # [CLS] has more than 3 times the highest of the others at layer 2 and 3, not at layer 1.
    weights = np.full((3, 6, 6), 0.0)
    weights[:, :] = [[0.4, 0.2, 0.1, 0.1, 0.1, 0.1]]
    weights[1:, :] = [[0.7, 0.2, 0.1, 0.0, 0.0, 0.0]]
    explanation = make_explanation(["[CLS]", *"abcde"], weights, position=1)
    figure = draw_maps(explanation, methods=["raw"], scale="shared")
    np.testing.assert_allclose(meshes(figure)[0][:, 0] * 0.2, [0.2, 0.2, 0.2])
    text = " ".join(check_text(figure))
    assert "special tokens hidden" in text
    assert "[CLS] would take" in text
    shown = draw_maps(explanation, methods=["raw"], special="show")
    assert meshes(shown)[0].shape == (3, 6)
    assert "hidden" not in " ".join(words_in(shown))
    weights[2] = weights[0]  # now one layer of three
    few = make_explanation(["[CLS]", *"abcde"], weights, position=1)
    assert meshes(draw_maps(few, methods=["raw"]))[0].shape == (3, 6)


def test_a_token_that_dominates_does_not_extend_the_scale():
    rows = [[0.9, 0.05, 0.02, 0.02, 0.01], [0.8, 0.1, 0.05, 0.05, 0.0]]
    attribution = Attribution(np.asarray(rows)[:, None], tuple("abcde"), "raw", (1, 2), (0,))
    figure = draw_maps(attribution, normalize="none")
    np.testing.assert_allclose(meshes(figure)[0][:, :2], [[1.0, 0.5], [1.0, 1.0]])
    assert "0.1 or more" in words_in(figure)
    assert "0.9" in words_in(draw_maps(attribution, normalize="none", scale="shared"))


def test_a_pale_map_has_its_own_scale_by_default():
    strong, pale = (
        Attribution(np.asarray([[[top, top / 4, 0.0]]]), tuple("abc"), method, (1,), (0,))
        for top, method in ((0.8, "raw"), (0.1, "rollout"))
    )
    figure = draw_maps([strong, pale], normalize="none")
    assert {"max 0.8", "max 0.1"} <= set(words_in(figure))
    assert "0.8" in words_in(draw_maps([strong, pale], normalize="none", scale="shared"))


def test_the_caption_names_model_settings_and_notes():
    weights = np.tril(np.ones((6, 8, 8)))
    weights[..., 0] += 40
    weights /= weights.sum(-1, keepdims=True)
    graph = AttentionGraph.from_weights(weights)
    explanation = Explanation.from_graph(graph, model="tiny")
    text = " ".join(check_text(draw_maps(explanation, methods=["rollout"])))
    assert "tiny · edges: attention · residual weight 0.5 · rows normalized." in text
    assert "attention sink" in text
    assert "Try" not in text
    plain = " ".join(words_in(draw_maps(explanation, methods=["rollout"], caption=False)))
    assert "tiny" not in plain
    two = " ".join(words_in(draw_maps([explanation, explanation], methods=["rollout"])))
    assert two.count("tiny") == 1
    assert "sink" not in two


def test_what_is_not_attention_is_not_called_attention():
    explanation = random_explanation(SENTENCE)
    settings = {**explanation.graph.settings, "edges": "alti"}
    explanation = replace(explanation, graph=replace(explanation.graph, settings=settings))
    words = words_in(draw_maps(explanation, methods=["raw"], caption=False))
    assert "Raw edge weights" in words
    assert "share of attention" not in words


def test_scores_are_drawn_as_they_are_if_asked():
    attribution = Attribution(np.asarray([[[1.0, 3.0]]]), ("a", "b"), "flow", (4,), (1,))
    figure = draw_maps(attribution, normalize="none")
    np.testing.assert_allclose(meshes(figure)[0] * 3, [[1.0, 3.0]])
    assert {"score", "3", "4", "Attention flow"} <= set(words_in(figure))


def test_words_specials_layers_and_position_are_chosen_as_in_explanations():
    explanation = random_explanation(["[CLS]", "cabinet", "##s", "key"])
    figure = draw_maps(
        explanation, methods=["raw"], words=True, special="hide", layers=[2, 5], position="key"
    )
    expected = explanation.raw(
        words=True, special="hide", layers=[2, 5], positions="key", normalize="rows"
    ).to_numpy()[:, 0]
    np.testing.assert_allclose(meshes(figure)[0] * expected.max(), expected)
    words = words_in(figure)
    assert "cabinets" in words
    assert "[CLS]" not in words
    assert {"2", "5"} <= set(words)


def test_several_explanations_make_rows_or_one_row_if_there_is_one_method():
    several = [random_explanation(SENTENCE, seed=i) for i in range(3)]
    grid = draw_maps(several, titles=["(a) one", "(b) two", "(c) three"])
    across = draw_maps(several, methods=["raw"], titles=["(a) one", "(b) two", "(c) three"])
    assert len(meshes(grid)) == 9
    assert len(meshes(across)) == 3
    tops = {round(axes.get_position().y1, 6) for axes in across.figure_.axes if not axes.get_gid()}
    assert len(tops) == 1
    assert {"(a) one", "(b) two", "(c) three"} <= set(words_in(across))


def test_layers_go_upward():
    figure = draw_maps(random_explanation(SENTENCE), methods=["raw"])
    ticks = figure.figure_.axes[0].yaxis.get_ticklabels()
    assert [tick.get_text() for tick in ticks] == ["1", "2", "3", "4", "5", "6"]
    assert figure.figure_.axes[0].get_ylim() == (0.0, 6.0)


@pytest.mark.parametrize("width", [3.3, 6.9])
@pytest.mark.parametrize("tokens", [SENTENCE, LONG, ["[CLS]", "a"], ["x" * 70, "b"]])
@pytest.mark.parametrize("scale", ["auto", "shared", "own", "layer"])
def test_no_text_is_cut_or_overlaps(width, tokens, scale):
    explanation = random_explanation(tokens, n_layers=12 if tokens is LONG else 6)
    figure = draw_maps(
        [explanation, explanation],
        width=width,
        scale=scale,
        titles=["(a) a title that is so long that it does not fit into one line of a column", ""],
    )
    check_text(figure)


@pytest.mark.parametrize("dark", [False, True])
def test_every_token_is_written_in_full(dark):
    figure = draw_maps(
        random_explanation(LONG), methods=["flow"], special="show", width=3.3, dark=dark
    )
    assert set(LONG) <= set(check_text(figure))


def test_hostile_and_foreign_tokens_are_written_as_text():
    tokens = ["[CLS]", "$\\frac{1}{2}$", "<script>", "a\x00b", "\u05e9\u05dc\u05d5\u05dd", "\u202e"]
    figure = draw_maps(random_explanation(tokens), methods=["raw"])
    words = check_text(figure)
    assert {"$\\frac{1}{2}$", "<script>", "a\\x00b", "\\u202e"} <= set(words)


def test_a_long_first_token_is_slanted_into_the_margin():
    tokens = ["internationalises", *(f"word{i}" for i in range(14))]
    figure = draw_maps(random_explanation(tokens), methods=["raw"])
    assert {tick.get_rotation() for tick in figure.figure_.axes[0].get_xticklabels()} == {45}
    assert set(tokens) <= set(check_text(figure))


def test_titles_are_no_formulas():
    svg = render(draw_maps(random_explanation(SENTENCE), titles=["$x$ or $y$"]), "svg").decode()
    assert ">$x$ or $y$</text>" in svg


def test_500_tokens_widen_the_figure_rather_than_overlap():
    tokens = [f"t{i}" for i in range(500)]
    scores = np.random.default_rng(0).random((4, 1, 500))
    figure = draw_maps(Attribution(scores, tuple(tokens), "rollout", (1, 2, 3, 4), (0,)))
    assert figure.figure_.get_size_inches()[0] > 6.9
    assert set(tokens) <= set(words_in(figure))


def test_refusals():
    explanation: Any = random_explanation(["a", "b"])
    wrong: Any = "wrong"
    two = Attribution(np.ones((1, 2, 2)), ("a", "b"), "flow", (1,), (0, 1))
    with refusal(InputError, "'wrong'", "'shared'", "'own'"):
        draw_maps(explanation, scale=wrong)
    with refusal(InputError, "'wrong'"):
        draw_maps(explanation, normalize=wrong)
    with refusal(SelectionError, "'saliency'", "rollout"):
        draw_maps(explanation, methods=["saliency"])
    with refusal(InputError, "2", "1"):
        draw_maps(explanation, titles=["a", "b"])
    with refusal(InputError, "2", "position=..."):
        draw_maps(two)
    with refusal(InputError, "words"):
        draw_maps(two, position=0, words=True)
    with refusal(InputError, "str", "Attribution"):
        draw_maps([wrong], position=0)
    with refusal(ShapeError, "attribution.example(i)"):
        draw_maps(Attribution(np.ones((3, 1, 1, 2)), ("a", "b"), "flow", (1,), (0,)))
