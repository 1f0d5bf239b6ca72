"""Pictures explained by tiny random vision models of 32 x 32 pixels."""

import io
import json
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from PIL import Image
from typer.testing import CliRunner

import attnflow
from attnflow import AttentionGraph, Attentions, FileError, InputError, SelectionError
from attnflow.cli.main import app
from attnflow.graph import add_mean
from attnflow.models.vision import load_image_model
from tests.refusal import refusal

SIZES = {
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 16,
    "image_size": 32,
    "patch_size": 8,
    "initializer_range": 0.3,
}
# The class, its configuration, further sizes, and the tokens that are no patches.
KINDS = {
    "vit": ("ViTForImageClassification", "ViTConfig", {}, ["[CLS]"]),
    "deit": ("DeiTForImageClassificationWithTeacher", "DeiTConfig", {}, ["[CLS]", "[DIST]"]),
    "dinov2": (
        "Dinov2WithRegistersModel",
        "Dinov2WithRegistersConfig",
        {"num_register_tokens": 2},
        ["[CLS]", "[REG 1]", "[REG 2]"],
    ),
    "clip": ("CLIPVisionModel", "CLIPVisionConfig", {}, ["[CLS]"]),
}


def explain(picture, model, **options) -> Any:
    return attnflow.explain_image(picture, model, **options)


def make(name="ViTForImageClassification", config="ViTConfig", **sizes):
    torch.manual_seed(0)
    known = {**SIZES, **sizes}
    if config == "SiglipVisionConfig":
        known.pop("initializer_range")
    return getattr(transformers, name)(getattr(transformers, config)(**known)).eval()


def make_processor(**options):
    module = transformers.models.vit.image_processing_pil_vit
    return module.ViTImageProcessorPil(size={"height": 32, "width": 32}, **options)


def make_picture(size=(50, 40), mode="RGB"):
    shape = (size[1], size[0]) + ((len(mode),) if len(mode) > 1 else ())
    pixels = np.random.default_rng(0).integers(0, 256, shape, dtype=np.uint8)
    return Image.fromarray(pixels).convert(mode)


PICTURE = make_picture()


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A checkpoint in a folder, with its processor."""
    path = tmp_path_factory.mktemp("vit")
    model = make(id2label={0: "cat", 1: "dog"}, label2id={"cat": 0, "dog": 1})
    model.save_pretrained(path)
    make_processor().save_pretrained(path)
    return path


def eager(model, picture, **settings):
    """The graph of the weights that the model itself returns, and its output."""
    pixels = make_processor()(images=picture, return_tensors="pt")["pixel_values"]
    model.set_attn_implementation("eager")
    with torch.no_grad():
        output = model(pixel_values=pixels, output_attentions=True)
    return AttentionGraph.from_attentions(Attentions(output.attentions), **settings), output


@pytest.mark.parametrize("kind", KINDS)
def test_the_graph_is_that_of_the_weights_that_the_model_returns(kind):
    name, config, sizes, others = KINDS[kind]
    explanation = explain(PICTURE, make(name, config, **sizes), processor=make_processor())
    graph, output = eager(make(name, config, **sizes), PICTURE)
    np.testing.assert_allclose(explanation.graph.weights, graph.weights, atol=1e-5)
    patches = [f"patch {row},{column}" for row in range(4) for column in range(4)]
    assert list(explanation.tokens) == [*others, *patches]
    assert explanation.special == (*[True] * len(others), *[False] * 16)
    assert explanation.position == 0
    image = explanation.image
    assert (image.rows, image.columns, image.first) == (4, 4, len(others))
    assert explanation.heads is not None
    assert explanation.heads.tokens == explanation.tokens
    if hasattr(output, "logits"):
        chances = output.logits[0].softmax(-1)
        assert explanation.prediction.probability == pytest.approx(float(chances.max()), abs=1e-5)
    else:
        assert explanation.prediction is None


def test_without_cls_the_mean_over_patches_is_explained():
    model = make("SiglipVisionModel", "SiglipVisionConfig")
    explanation = explain(PICTURE, model, processor=make_processor())
    assert explanation.tokens[-1] == "[MEAN]"
    assert explanation.tokens[0] == "patch 0,0"
    assert explanation.position == 16
    assert explanation.image.first == 0
    for method in (explanation.raw, explanation.rollout):
        every = method(positions=range(16)).to_numpy()
        np.testing.assert_allclose(method().to_numpy()[:, 0], every.mean(1), atol=1e-6)
    # At layer 1 flow is rollout, and each flow is at least the rollout.
    flow, rollout = explanation.flow().to_numpy()[:, 0], explanation.rollout().to_numpy()[:, 0]
    np.testing.assert_allclose(flow[0], rollout[0], atol=1e-6)
    assert np.all(flow >= rollout - 1e-6)
    assert flow[:, 16].max() == 0  # nothing reaches it, as it is no token
    chosen = explain(PICTURE, model, processor=make_processor(), position="patch 1,2")
    assert chosen.position == 6
    assert len(chosen.tokens) == 16


def test_classifiers_that_pool_patches_are_explained_by_their_mean():
    model = make("BeitForImageClassification", "BeitConfig")
    explanation = explain(PICTURE, model, processor=make_processor())
    assert explanation.tokens[0] == "[CLS]"
    assert explanation.tokens[explanation.position] == "[MEAN]"
    mean = explanation.raw(positions=range(1, 17)).to_numpy().mean(1)
    np.testing.assert_allclose(explanation.raw().to_numpy()[:, 0], mean, atol=1e-6)
    heads = explanation.heads.layers[0]
    np.testing.assert_allclose(heads[:, 17, :17], heads[:, 1:17, :17].mean(1), atol=1e-3)
    by_cls = explain(PICTURE, model, processor=make_processor(), position="[CLS]")
    assert by_cls.position == 0


def test_the_mean_of_two_positions_by_hand():
    graph = AttentionGraph.from_weights([[[1.0, 0.0], [0.5, 0.5]]], tokens=["a", "b"])
    mean = add_mean(graph, range(2))
    # Augmented: a (1, 0), b (0.25, 0.75); their mean is (0.625, 0.375).
    np.testing.assert_allclose(mean.weights[0, 2], [0.625, 0.375, 0])
    np.testing.assert_allclose(mean.attention[0, 2], [0.75, 0.25, 0])
    assert mean.tokens == ("a", "b", "[MEAN]")
    assert mean.widths == (3, 3)


def test_the_picture_is_shown_as_the_model_saw_it():
    odd = make_processor(image_mean=[0.2, 0.5, 0.9], image_std=[0.1, 0.5, 2.0])
    explanation = explain(PICTURE, make(), processor=odd)
    shown = Image.open(io.BytesIO(explanation.image.png))
    expected = PICTURE.resize((32, 32), Image.Resampling.BILINEAR)
    assert shown.size == (explanation.image.width, explanation.image.height) == (32, 32)
    np.testing.assert_allclose(np.asarray(shown, float), np.asarray(expected, float), atol=1.01)


def test_a_path_an_array_and_a_tensor_give_what_a_picture_gives(tmp_path, folder):
    PICTURE.save(tmp_path / "cat.png")
    loaded = load_image_model(folder)
    pixels = np.asarray(PICTURE)
    given = [
        PICTURE,
        tmp_path / "cat.png",
        str(tmp_path / "cat.png"),
        pixels,
        pixels / 255,
        torch.as_tensor(pixels.copy()).permute(2, 0, 1) / 255,
    ]
    results = [explain(one, loaded) for one in given]
    for result in results[1:]:
        np.testing.assert_allclose(result.graph.weights, results[0].graph.weights, atol=1e-5)
    assert [result.text for result in results] == ["image", "cat.png", "cat.png", *["image"] * 3]
    assert {result.model for result in results} == {folder.name}


def test_grey_and_transparent_pictures_become_rgb():
    grey, clear = make_picture(mode="L"), Image.new("RGBA", (32, 32), (255, 0, 0, 0))
    processor = make_processor()
    assert explain(grey, make(), processor=processor).image.rows == 4
    shown = Image.open(io.BytesIO(explain(clear, make(), processor=processor).image.png))
    assert shown.getextrema() == ((255, 255),) * 3  # what is transparent is white


def test_models_of_one_channel_get_one():
    processor = make_processor(image_mean=[0.5], image_std=[0.5])
    explanation = explain(PICTURE, make(num_channels=1), processor=processor)
    assert Image.open(io.BytesIO(explanation.image.png)).mode == "L"


def test_a_picture_that_lies_on_its_side_is_turned():
    side = Image.new("RGB", (32, 32), "black")
    side.paste("white", (0, 0, 16, 32))  # the left half is white
    file = io.BytesIO()
    exif = Image.Exif()
    exif[0x0112] = 6  # to be turned right by a quarter
    side.save(file, format="PNG", exif=exif)
    explanation = explain(Image.open(file), make(), processor=make_processor())
    shown = np.asarray(Image.open(io.BytesIO(explanation.image.png)).convert("L"))
    assert shown[:16].min() == 255
    assert shown[16:].max() == 0


def test_patches_need_not_be_square():
    model = make(image_size=(16, 32), patch_size=(4, 16))
    module = transformers.models.vit.image_processing_pil_vit
    processor = module.ViTImageProcessorPil(size={"height": 16, "width": 32})
    explanation = explain(PICTURE, model, processor=processor)
    assert (explanation.image.rows, explanation.image.columns) == (4, 2)
    assert explanation.tokens[-1] == "patch 3,1"


def test_gradient_edges_are_those_of_the_target(folder):
    of_cat, of_dog = (
        explain(PICTURE, folder, edges="gradient", target=target) for target in ("cat", "dog")
    )
    assert of_cat.prediction.target.label == "cat"
    assert not np.allclose(of_cat.graph.attention, of_dog.graph.attention)


def test_checkpoints_are_loaded_as_safely_as_those_of_texts(folder, tmp_path):
    explanation = explain(PICTURE, str(folder), target="dog")
    assert explanation.prediction.target.label == "dog"
    with refusal(FileError, tmp_path / "none"):
        explain(PICTURE, str(tmp_path / "none"))
    pickled = tmp_path / "pickled"
    pickled.mkdir()
    (pickled / "config.json").write_text((folder / "config.json").read_text())
    (pickled / "pytorch_model.bin").write_bytes(b"")
    with refusal(FileError, "pytorch_model.bin"):
        explain(PICTURE, str(pickled))
    (pickled / "config.json").write_text(
        json.dumps({"auto_map": {"AutoModel": "x.Y"}, "architectures": ["Y"]})
    )
    with refusal(FileError, pickled):
        explain(PICTURE, str(pickled))
    make().save_pretrained(tmp_path / "alone")
    with refusal(FileError, "processor=..."):
        explain(PICTURE, str(tmp_path / "alone"))


def test_refusals(tmp_path):
    model, processor = make(), make_processor()
    with refusal(InputError, "processor=..."):
        explain(PICTURE, model)
    with refusal(InputError, "int"):
        explain(PICTURE, 3, processor=processor)
    with refusal(FileError, "PNG"):
        explain(tmp_path / "none.png", model, processor=processor)
    (tmp_path / "text.png").write_text("no picture")
    with refusal(FileError, tmp_path / "text.png"):
        explain(tmp_path / "text.png", model, processor=processor)
    with refusal(InputError, "[2, 2, 7]", "[height, width, channels]"):
        explain(np.zeros((2, 2, 7)), model, processor=processor)
    with refusal(InputError, "0", "300", "1"):
        explain(np.full((8, 8), 300.0) * np.eye(8), model, processor=processor)
    with refusal(SelectionError, "'patch 9,9'"):
        explain(PICTURE, model, processor=processor, position="patch 9,9")
    with refusal(InputError, "edges='attention'"):
        explain(PICTURE, make("ViTModel"), processor=processor, edges="gradient")
    masked = make("ViTMAEModel", "ViTMAEConfig")
    with refusal(InputError, "5", "4"):
        explain(PICTURE, masked, processor=processor)
    both = transformers.CLIPModel(transformers.CLIPConfig(vision_config=SIZES)).eval()
    with refusal(InputError, "CLIPVisionModel"):
        explain(PICTURE, both, processor=processor)


def test_the_command_draws_writes_and_prints(folder, tmp_path):
    PICTURE.save(tmp_path / "cat.png")
    overlay, page = tmp_path / "overlay.svg", tmp_path / "page.html"
    arguments = ["explain-image", str(tmp_path / "cat.png"), "--model", str(folder)]
    done = CliRunner().invoke(app, [*arguments, "--overlay", str(overlay), "--html", str(page)])
    assert done.exit_code == 0, done.output
    assert "class: " in done.output
    assert "layer 2, all patches" in done.output
    assert overlay.read_text(encoding="utf-8").startswith("<?xml")
    assert "data:image/png" in page.read_text(encoding="utf-8")
    done = CliRunner().invoke(app, [*arguments, "--format", "json", "--method", "rollout"])
    printed = json.loads(done.stdout)
    expected = explain(PICTURE, folder).rollout()
    np.testing.assert_allclose(printed["attributions"][0]["scores"], expected.to_numpy(), atol=1e-5)


def test_picture_and_kind_of_model_are_checked_before_anything_is_loaded(tmp_path):
    with refusal(FileError, "PNG"):
        explain(tmp_path / "none.png", str(tmp_path / "no model"))
    for name in ("minilm-sst2", "minilm-mlm", "verb-number", "verb-number-causal"):
        with refusal(InputError, name):
            explain(PICTURE, name)


def test_the_command_reports_misuse_in_one_line(folder, tmp_path):
    done = CliRunner().invoke(app, ["explain-image", "none.png", "--model", str(folder)])
    assert done.exit_code == 2
    assert "none.png" in done.output
    PICTURE.save(tmp_path / "cat.png")
    done = CliRunner().invoke(
        app, ["explain-image", str(tmp_path / "cat.png"), "--model", str(folder), "--layer", "9"]
    )
    assert done.exit_code == 2
    assert "layer is 9" in done.output


def test_regions_of_an_image_are_units(folder):
    explanation = explain(PICTURE, folder)
    plain = explanation.rollout().to_numpy()[:, 0]
    regions = {"corner": (0, 0, 1, 1), "last row": (3, 0, 3, 3)}
    scores = explanation.rollout(units=regions)
    assert scores.tokens == ("(special tokens)", "corner", "(rest)", "last row")
    corner = [1, 2, 5, 6]  # [CLS] comes first, and a row has 4 patches
    np.testing.assert_allclose(scores.to_numpy()[:, 0, 1], plain[:, corner].sum(-1), atol=1e-6)
    np.testing.assert_allclose(scores.to_numpy()[:, 0, 3], plain[:, 13:17].sum(-1), atol=1e-6)
    flow = explanation.flow(units=regions).to_numpy()[:, 0, 1]
    groups = attnflow.group_flow(explanation.graph, positions=[0], tokens=[corner]).values
    np.testing.assert_allclose(flow, groups[:, 0, 0])
    both = explanation.rollout(positions=[corner, 3], units=regions).to_numpy()
    rows = explanation.rollout(positions=corner, units=regions).to_numpy()
    np.testing.assert_allclose(both[:, 0], rows.mean(axis=1), atol=1e-6)
    out = attnflow.group_flow(explanation.graph, positions=[corner], tokens=[corner]).values
    found = explanation.flow(positions=[corner], units=regions).to_numpy()
    np.testing.assert_allclose(found[:, 0, 1], out[:, 0, 0] / 4)


@pytest.mark.parametrize(
    "regions",
    [{"a": (0, 0, 4, 0)}, {"a": (1, 0, 0, 0)}, {"a": (0, 0)}, {"a": "cat"}, {"a": (0, 0, 0.5, 1)}],
)
def test_regions_outside_of_the_image(folder, regions):
    explanation = explain(PICTURE, folder)
    with refusal(InputError, "'a'", "4 x 4"):
        explanation.rollout(units=regions)
    with refusal(InputError, "'b'", "row 0, column 1"):
        explanation.rollout(units={"a": (0, 0, 0, 1), "b": (0, 1, 1, 1)})
