"""Loading and describing models in a worker; tasks themselves are tested through the app."""

import pytest

from attnflow import InputError, load_model
from attnflow.viewer.server.tasks import describe_model, load_models
from tests.models.checkpoints import make_loaded
from tests.refusal import refusal


def test_a_vision_model_is_rejected_with_the_command_for_images(tmp_path):
    for name in ("config.json", "preprocessor_config.json"):
        (tmp_path / name).write_text("{}", encoding="ascii")
    with refusal(InputError, str(tmp_path), "vision", "attnflow explain-image", "--html"):
        load_models([str(tmp_path)], lambda *_: None)


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
