"""Images without some patches, against pixels that are changed by hand."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from attnflow.errors import InputError
from attnflow.models.vision import load_image_model
from attnflow.study.case import Question
from attnflow.study.image_case import MaskedImage, make_image_case
from attnflow.study.study import evaluate, list_images, open_study
from tests.refusal import refusal
from tests.study.small_images import GRID, PATCH, make_picture, save_vit

OPTIONS: dict[str, Any] = {
    "batch_tokens": 3 * GRID**2,
    "draws": 4,
    "seed": 0,
}  # three images in a batch


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return save_vit(tmp_path_factory.mktemp("vit"))


@pytest.fixture(scope="module")
def case(folder):
    return make_image_case(load_image_model(folder), make_picture(), Question())


@torch.no_grad()
def log_p(case, pixels):
    """Log p of the prediction for pixels [channels, height, width]."""
    logits = case.loaded.model(pixel_values=pixels[None]).logits[0].double()
    return float(logits.log_softmax(-1)[case.steps[0].contrast.target])


def other_pixels(case, replacement):
    """What takes the place of a patch, made by hand: [channels, height, width]."""
    pixels = case.pixels[0]
    if replacement == "mean":
        return pixels.mean((1, 2))[:, None, None].expand_as(pixels)
    squares = pixels.reshape(3, 4, 8, 4, 8).mean((2, 4))
    # A pixel lies between the centers of two squares, in both directions.
    place = ((torch.arange(32) + 0.5) / 8 - 0.5).clamp(0, 3)
    low = place.floor().long()
    high, share = (low + 1).clamp(max=3), place - low
    tall = squares[:, low] * (1 - share)[:, None] + squares[:, high] * share[:, None]
    return tall[:, :, low] * (1 - share) + tall[:, :, high] * share


@torch.no_grad()
def test_the_case_of_an_image(case):
    logits = case.loaded.model(pixel_values=case.pixels).logits[0].softmax(-1)
    best = int(logits.argmax())
    assert case.label == ("cat", "dog")[best]
    assert case.probability == pytest.approx(float(logits[best]), abs=1e-6)
    assert case.shape == (GRID, GRID)
    assert case.units == tuple((i,) for i in range(1, 17))  # after [CLS]
    assert case.labels[0] == "patch 0,0"
    assert case.labels[5] == "patch 1,1"
    assert case.positions == [0]
    assert case.merge(range(17)).tolist() == list(range(1, 17))


def test_the_target_can_be_chosen(case):
    other = {"cat": "dog", "dog": "cat"}[case.label]
    asked = make_image_case(case.loaded, make_picture(), Question(target=other))
    assert asked.label == other
    assert asked.probability == pytest.approx(1 - case.probability, abs=1e-6)


@pytest.mark.parametrize("replacement", ["mean", "blur"])
def test_exactly_the_removed_patches_are_replaced(case, replacement):
    model = MaskedImage(case, replacement, **OPTIONS)
    other = other_pixels(case, replacement)
    chosen = [[], [0], [6], [3, 12, 13], list(range(16))]
    sets = np.zeros((len(chosen), 16), dtype=bool)
    expected = []
    for row, patches in zip(sets, chosen, strict=True):
        row[patches] = True
        pixels = case.pixels[0].clone()
        for patch in patches:
            top, left = patch // GRID * PATCH, patch % GRID * PATCH
            place = (slice(None), slice(top, top + PATCH), slice(left, left + PATCH))
            pixels[place] = other[place]
        expected.append(log_p(case, pixels))
    found = model.log_probability(sets)
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-5)
    assert np.ptp(found) > 1e-3
    assert found[0] == pytest.approx(np.log(case.probability), abs=1e-5)


def test_each_set_runs_once(case):
    model = MaskedImage(case, "mean", **OPTIONS)
    sets = np.eye(16, dtype=bool)[[0, 1, 0, 2]]
    first = model.log_probability(sets)
    assert model.runs == 3
    assert first[0] == first[2] != first[1]
    again = model.log_probability(np.eye(16, dtype=bool)[[2, 3, 0]])
    assert model.runs == 4
    assert again[0] == first[3]
    assert again[2] == first[0]


def test_pixels_are_kept_by_chance(case):
    model = MaskedImage(case, "mean", **OPTIONS)
    half = np.full(16, 0.5)
    none, every, some = model.soft_probability(np.stack([half * 0, half * 2, half]))
    ends = np.exp(model.log_probability(np.asarray([[True] * 16, [False] * 16])))
    np.testing.assert_allclose([none, every], ends, atol=1e-6)
    assert some not in (none, every)
    assert model.soft_probability(half[None])[0] == some  # the same draws


def test_pixels_of_a_patch_are_summed(case):
    two = replace(case, shape=(2, 2))
    values = [[1, 2, 3, 4], [5, 6, 7, 8], [10, 20, 30, 40], [50, 60, 70, 80]]
    assert two.merge_pixels(values).tolist() == [14, 22, 140, 220]
    # The rest of an image that is no multiple of patches belongs to none.
    wide = np.pad(np.asarray(values), ((0, 1), (0, 1)), constant_values=1000)
    assert two.merge_pixels(wide).tolist() == [14, 22, 140, 220]


def test_an_unknown_replacement_is_refused(case):
    with refusal(InputError, "'mask'", "mean", "blur"):
        MaskedImage(case, "mask", **OPTIONS)


def test_a_study_of_a_folder_of_images(folder, tmp_path):
    pictures = tmp_path / "pictures"
    pictures.mkdir()
    for seed in (1, 0):
        make_picture(seed).save(pictures / f"{seed}.png")
    (pictures / "notes.txt").write_text("no image", encoding="utf-8")
    summary = evaluate(
        pictures,
        tmp_path / "out",
        model=folder,
        methods="rollout",
        edges="attention",
        explainers="none",
        metrics="comprehensiveness",
        signs="signed",
        threads=1,
    )
    assert (summary.rows, summary.rejected, summary.complete) == (2, 0, True)
    study = open_study(tmp_path / "out")
    assert study.replacements == ("mean", "blur")
    assert study.explainers == ("rollout/attention", "random", "center", "contrast")
    texts = list(dict.fromkeys(study.columns["text"]))
    assert texts == [str(pictures / "0.png"), str(pictures / "1.png")]
    assert study.columns["tokens"][0].tolist()[4] == "patch 1,0"
    loaded = load_image_model(folder)
    case = make_image_case(loaded, pictures / "0.png", Question())
    model = MaskedImage(case, "blur", **OPTIONS)
    order = np.argsort(-study.columns["scores"][0])  # of rollout
    full, *left = np.exp(
        model.log_probability(np.stack([np.isin(range(16), order[:n]) for n in (0, 1, 1, 2, 4, 8)]))
    )
    value = study.matrix("comprehensiveness", replacement="blur")[0, 0]
    assert value == pytest.approx(full - np.mean(left), abs=1e-6)
    assert np.isfinite(study.matrix("comprehensiveness")).all()


def test_a_folder_without_images_is_refused(tmp_path):
    (tmp_path / "a.txt").write_text("the key", encoding="utf-8")
    with refusal(InputError, tmp_path, ".png"):
        list_images(tmp_path)
