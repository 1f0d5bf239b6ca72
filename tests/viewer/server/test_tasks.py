"""Loading and describing models in a worker; tasks themselves are tested through the app."""

import json

import pytest

from attnflow import InputError, load_model
from attnflow.viewer.server.security import Limits
from attnflow.viewer.server.tasks import (
    ExplainTask,
    ImageTask,
    Question,
    describe_model,
    load_models,
)
from tests.models.checkpoints import make_loaded
from tests.refusal import refusal
from tests.test_images import make, make_picture, make_processor


def silent(*_):
    """A report that nobody reads."""


@pytest.fixture(scope="module")
def vision_models(tmp_path_factory):
    """A vision model and a text model, as a worker loads them."""
    folder = tmp_path_factory.mktemp("vit")
    make().save_pretrained(folder)
    make_processor().save_pretrained(folder)
    return [*load_models([str(folder)], silent), make_loaded()]


def test_an_image_is_explained_under_its_own_name(vision_models, tmp_path):
    path = tmp_path / "secret.img"
    make_picture().save(path, "PNG")
    task = ImageTask(str(path), "cat.png", 0, {"heads": "max"})
    header = task.run(vision_models, Limits(), silent).header()
    [example] = header["examples"]
    assert header["title"] == "cat.png"
    assert (example["image"]["rows"], example["image"]["columns"]) == (4, 4)
    assert example["heads"] == "max"
    assert "secret" not in json.dumps(header)


def test_a_file_that_is_no_image_is_an_error_without_its_path(vision_models, tmp_path):
    path = tmp_path / "secret.img"
    path.write_bytes(b"no image")
    with pytest.raises(InputError) as caught:
        ImageTask(str(path), "cat.png", 0, {}).run(vision_models, Limits(), silent)
    assert "the image" in str(caught.value)
    assert "secret" not in str(caught.value)


def test_texts_and_images_need_models_of_their_kind(vision_models, tmp_path):
    path = tmp_path / "cat.img"
    make_picture().save(path, "PNG")
    with refusal(InputError, "vision", "text"):
        ExplainTask((Question("the key", 0, {}),)).run(vision_models, Limits(), silent)
    with refusal(InputError, "vision", "text"):
        ImageTask(str(path), "cat.png", 1, {}).run(vision_models, Limits(), silent)


def test_models_are_described_for_the_page(vision_models):
    vision, text = (describe_model(model) for model in vision_models)
    assert (vision.task, vision.classes) == ("image", ("LABEL_0", "LABEL_1"))
    assert (text.task, len(text.classes)) == ("classifier", 2)


@pytest.mark.parametrize(
    ("model", "fragment"),
    [
        (load_model(), "the author of the books on the old table"),
        (make_loaded("BertForMaskedLM"), "[MASK]"),
        (make_loaded(), "the film is short"),
    ],
    ids=["verb-number", "masked", "other"],
)
def test_the_example_text_suits_the_model(model, fragment):
    assert fragment in describe_model(model).example
