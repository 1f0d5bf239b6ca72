import io
import re

import numpy as np
import pytest
from matplotlib.patches import Rectangle
from PIL import Image

from attnflow import InputError
from attnflow.explanation import ImageGrid
from attnflow.figures import draw_overlay
from attnflow.figures.overlay import COLOR, DIMMED, patch_scores
from tests.figures.artists import check_text, random_explanation, words_in
from tests.refusal import refusal

pytestmark = pytest.mark.slow

TOKENS = ["[CLS]", *(f"patch {row},{column}" for row in range(2) for column in range(3))]


def make(n_layers=4, **options):
    buffer = io.BytesIO()
    pixels = np.zeros((8, 12, 3), dtype=np.uint8)
    pixels[:4] = 255
    Image.fromarray(pixels).save(buffer, format="PNG")
    image = ImageGrid(buffer.getvalue(), 2, 3, 1, 12, 8)
    return random_explanation(TOKENS, n_layers, image=image, **options)


def patches_of(figure):
    return [
        np.asarray(drawn.get_array())
        for axes in figure.figure_.axes
        for drawn in axes.images
        if drawn.get_gid() == "patches"
    ]


def test_patches_are_cut_out_of_the_tokens():
    image = ImageGrid(b"", 2, 3, 1, 12, 8)
    scores = np.asarray([[9.0, 1, 2, 3, 4, 5, 6, 7]])
    np.testing.assert_array_equal(patch_scores(image, scores), [[[1, 2, 3], [4, 5, 6]]])


def test_opacity_is_the_score_on_the_scale_of_the_picture():
    explanation = make()
    figure = draw_overlay(explanation, methods=["rollout"], opacity=0.5)
    drawn = patches_of(figure)
    scores = explanation.rollout(normalize="rows").to_numpy()[:, 0, 1:].reshape(4, 2, 3)
    assert len(drawn) == 4
    for patches, expected in zip(drawn, scores, strict=True):
        np.testing.assert_allclose(patches[..., 3], 0.5 * expected / expected.max())


def test_flat_scores_have_contrast_by_default_and_the_range_is_above_the_picture():
    explanation = make(n_layers=8)
    scores = explanation.flow(normalize="rows").to_numpy()[-1, 0, 1:]
    assert scores.min() > 0.4 * scores.max()
    figure = draw_overlay(explanation, methods=["flow"], layers=8, opacity=1.0)
    [patches] = patches_of(figure)
    assert patches[..., 3].min() == pytest.approx(0.15)
    assert patches[..., 3].max() == 1.0
    assert f"layer 8, {scores.min():.2g} to {scores.max():.2g}" in words_in(figure)
    [from_0] = patches_of(draw_overlay(explanation, methods=["flow"], layers=8, scale="own"))
    assert from_0[..., 3].min() > 0.3


def test_one_scale_for_all_pictures():
    explanation = make()
    figure = draw_overlay(explanation, methods=["raw", "rollout"], scale="shared", opacity=1.0)
    drawn = np.stack(patches_of(figure))[..., 3]
    both = [explanation.raw(normalize="rows"), explanation.rollout(normalize="rows")]
    scores = np.concatenate([one.to_numpy()[:, 0, 1:] for one in both]).reshape(8, 2, 3)
    np.testing.assert_allclose(drawn, scores / scores.max())


def test_the_picture_is_below_in_grey():
    figure = draw_overlay(make(), methods=["raw"], layers=1)
    picture, patches = figure.figure_.axes[0].images
    grey = np.asarray(picture.get_array())
    np.testing.assert_allclose(grey[:4], DIMMED[1])
    np.testing.assert_allclose(grey[4:], DIMMED[0])
    assert list(picture.get_extent()) == list(patches.get_extent()) == [0, 3, 2, 0]
    assert COLOR == "#ff6a00"


def test_a_patch_that_is_looked_from_has_a_frame():
    explanation = make()
    framed = draw_overlay(explanation, methods=["raw"], position="patch 1,2", layers=2)
    corners = [
        patch.get_xy() for patch in framed.figure_.axes[0].patches if isinstance(patch, Rectangle)
    ]
    assert corners == [(2, 1), (2, 1)]
    assert not draw_overlay(explanation, methods=["raw"], layers=2).axes_[0].patches
    expected = explanation.raw(positions="patch 1,2", layers=2, normalize="rows").to_numpy()
    np.testing.assert_allclose(
        patches_of(framed)[0][..., 3].ravel(), 0.85 * expected[0, 0, 1:] / expected[0, 0, 1:].max()
    )


@pytest.mark.parametrize("width", [3.3, 6.9])
@pytest.mark.parametrize("n_layers", [1, 4, 12])
@pytest.mark.parametrize("scale", ["auto", "shared", "own"])
def test_no_text_is_cut_or_overlaps(width, n_layers, scale):
    figure = draw_overlay(make(n_layers), width=width, scale=scale)
    captions = [text for text in check_text(figure) if re.match(r"layer \d+(,|$)", text)]
    assert len(patches_of(figure)) == 3 * n_layers
    assert len(captions) == 3 * n_layers


def test_refusals():
    with refusal(InputError, "explain_image"):
        draw_overlay(random_explanation(["a", "b"]))
    with refusal(InputError, "2", "0", "1"):
        draw_overlay(make(), opacity=2)
