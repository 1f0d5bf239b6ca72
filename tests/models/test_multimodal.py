"""Texts with images: text and patches in one explanation."""

import io
import logging
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
import typer
from PIL import Image
from typer.testing import CliRunner

from attnflow import explain, load_model
from attnflow.arrays import to_numpy
from attnflow.cli.explain import register
from attnflow.errors import FileError, InputError
from attnflow.models.capture.api import capture_contributions
from attnflow.models.multimodal import encode_with_images, find_views
from tests.models.capture.test_contributions import largest_error
from tests.models.checkpoints import make_loaded
from tests.models.vlm import CHAT, DECODERS, KINDS, make_decoder, make_image, make_vlm
from tests.refusal import refusal

SIZES = {"llava": (16, 16), "qwen2.5-vl": (16, 24), "gemma3": (16, 16), "idefics3": (16, 16)}
PATCH = {"llava": 4, "qwen2.5-vl": 8, "gemma3": 8, "idefics3": 8}


@pytest.fixture(autouse=True)
def quiet():
    """Transformers logs that torchvision is missing."""
    logging.getLogger("transformers").setLevel(logging.ERROR)


@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize("edges", ["attention", "alti", "value", "gradient"])
def test_text_and_patches_are_in_one_explanation(name, edges):
    model, processor = make_vlm(name)
    explanation = explain(
        "what is this", model, tokenizer=processor, images=make_image(), edges=edges
    )
    grid = explanation.image
    assert grid is not None
    patches = explanation.tokens[grid.first : grid.first + grid.rows * grid.columns]
    assert patches[0] == "image 1 patch 0,0"
    assert patches[-1] == f"image 1 patch {grid.rows - 1},{grid.columns - 1}"
    assert explanation.tokens[-3:] == ("what", "is", "this")
    assert not any(explanation.special[grid.first : grid.first + len(patches)])
    assert explanation.words.texts[-3:] == ("what", "is", "this")
    assert explanation.position == len(explanation.tokens) - 1
    row = to_numpy(explanation.rollout().row())
    assert row[grid.first : grid.first + len(patches)].sum() > 0


@pytest.mark.parametrize("name", KINDS)
def test_attention_is_that_of_the_decoder(name):
    model, processor = make_vlm(name)
    encoded = encode_with_images(load_model(model, processor), "what is this", make_image())
    explanation = explain(
        "what is this", model, tokenizer=processor, images=make_image(), edges="attention"
    )
    model.set_attn_implementation("eager")
    with torch.no_grad():
        output = model(**encoded.inputs, output_attentions=True)
    expected = torch.stack([layer[0].mean(0) for layer in output.attentions])
    np.testing.assert_allclose(to_numpy(explanation.graph.attention), expected, atol=1e-5)
    assert explanation.prediction is not None
    assert explanation.prediction.index == int(output.logits[0, -1].argmax())


@pytest.mark.parametrize("name", DECODERS)
def test_contributions_in_the_decoder_add_up(name):
    model, inputs = make_decoder(name)
    with torch.no_grad():
        expected = model(**inputs).logits
    layers, output = capture_contributions(model, inputs)
    assert len(layers) == 2
    assert all(layer.call.shape[2] == inputs["input_ids"].shape[1] for layer in layers)
    assert max(map(largest_error, layers)) < 1e-4
    assert torch.allclose(output.logits, expected, atol=1e-4)


def entering(model: Any, inputs: Any) -> torch.Tensor:
    """What enters the first layer of the decoder, [tokens, hidden]."""
    seen: list[torch.Tensor] = []
    layer = model.get_decoder().layers[0]
    hook = layer.register_forward_pre_hook(
        lambda _module, args, kwargs: seen.append(args[0] if args else kwargs["hidden_states"]),
        with_kwargs=True,
    )
    with torch.no_grad():
        model(**inputs)
    hook.remove()
    return seen[0][0]


@pytest.mark.parametrize("name", KINDS)
def test_a_patch_is_where_its_name_says(name):
    model, processor = make_vlm(name)
    processor.image_processor.do_image_splitting = False
    processor.image_processor.do_resize = False
    decoder = {id(module) for module in model.get_decoder().modules()}
    for path, module in model.named_modules():  # patches do not attend to each other
        if id(module) not in decoder and path.endswith(("out_proj", "o_proj", "attn.proj")):
            torch.nn.init.zeros_(module.weight)
            torch.nn.init.zeros_(module.bias)
    loaded = load_model(model, processor)
    image = make_image(*SIZES[name])
    changed, side = image.copy(), PATCH[name]
    changed[side : 2 * side, :side] = 255 - changed[side : 2 * side, :side]
    before, after = (encode_with_images(loaded, "what is this", each) for each in (image, changed))
    rows = (entering(model, before.inputs) - entering(model, after.inputs)).abs().amax(-1)
    moved = {token for token, change in zip(before.tokens, rows, strict=True) if change > 1e-5}
    assert moved == {"image 1 patch 1,0"}


def test_the_image_is_drawn_as_the_model_sees_it():
    model, processor = make_vlm("llava")
    image = make_image(16, 16)
    grid = encode_with_images(load_model(model, processor), "what is this", image).image
    assert grid is not None
    assert np.abs(np.asarray(Image.open(io.BytesIO(grid.png))).astype(int) - image).max() <= 1


def test_several_images():
    model, processor = make_vlm("qwen2.5-vl")
    images = [make_image(16, 24), make_image(24, 16)]
    text = "what <|image_pad|> is <|image_pad|> this"
    encoded = encode_with_images(load_model(model, processor), text, images)
    assert [(grid.rows, grid.columns) for grid in encoded.grids] == [(2, 3), (3, 2)]
    for i, grid in enumerate(encoded.grids):
        assert encoded.tokens[grid.first] == f"image {i + 1} patch 0,0"
    explanation = explain(text, model, tokenizer=processor, images=images)
    assert explanation.image == encoded.grids[0]
    with refusal(InputError, 1, 2, "<|image_pad|>"):
        explain(text, model, tokenizer=processor, images=images[0])


def test_tiles_of_an_image_have_names():
    model, processor = make_vlm("idefics3")
    encoded = encode_with_images(load_model(model, processor), "what is this", make_image())
    assert "image 1 tile 4 patch 1,1" in encoded.tokens
    [grid] = encoded.grids
    assert encoded.tokens[grid.first] == "image 1 patch 0,0"


def views(ids: list[int], n_images: int, config: dict[str, Any], **processor: Any) -> list[Any]:
    """The views of images whose tokens have the id 9: names of first and last token, and grid."""
    sizes = {"vision_config": None, **config}
    loaded: Any = SimpleNamespace(model=SimpleNamespace(config=SimpleNamespace(**sizes)))
    found = find_views(loaded, SimpleNamespace(**processor), {}, ids, 9, n_images)
    return [(view.first, view.names()[0], view.names()[-1], view.is_whole) for view in found]


def test_tiles_before_the_whole_image():  # as in InternVL
    assert views([1, *[9] * 12, 2], 1, {"image_seq_length": 4}) == [
        (1, "image 1 tile 1 patch 0,0", "image 1 tile 1 patch 1,1", False),
        (5, "image 1 tile 2 patch 0,0", "image 1 tile 2 patch 1,1", False),
        (9, "image 1 patch 0,0", "image 1 patch 1,1", True),
    ]


def test_details_after_the_whole_image():  # as in LLaVA-NeXT
    vision = SimpleNamespace(image_size=8, patch_size=4)
    assert views([1, *[9] * 11, 2], 1, {"vision_config": vision}) == [
        (1, "image 1 patch 0,0", "image 1 patch 1,1", True),
        (5, "image 1 tile 1 patch 0", "image 1 tile 1 patch 6", False),
    ]


def test_lines_of_patches():  # as in Pixtral
    ids = [9, 9, 7, 9, 9, 8, 1, 1, 9, 9, 9, 8]
    assert views(ids, 2, {}, image_break_token="[IMG_BREAK]") == [
        (0, "image 1 patch 0,0", "image 1 patch 0,1", False),
        (3, "image 1 patch 1,0", "image 1 patch 1,1", False),
        (8, "image 2 patch 0,0", "image 2 patch 0,2", False),
    ]


def test_an_unknown_division_has_no_grid():
    assert [view[3] for view in views([9, 9, 1, 9, 9, 1, 9], 2, {})] == [False] * 3


@pytest.mark.parametrize(
    "chat",
    [
        "what is this",
        [{"role": "user", "content": "what is this"}],
        [
            {
                "role": "user",
                "content": [{"type": "image"}, {"type": "text", "text": "what is this"}],
            }
        ],
    ],
)
def test_chats_are_written_by_the_template(chat):
    model, processor = make_vlm("llava")
    processor.chat_template = CHAT
    explanation = explain(chat, model, tokenizer=processor, images=make_image())
    assert explanation.tokens[:2] == ("<s>", "user")
    assert explanation.tokens[2] == "image 1 patch 0,0"
    assert explanation.tokens[-4:] == ("what", "is", "this", "assistant")


def test_a_chat_about_an_image_that_ends_with_an_answer():
    model, processor = make_vlm("llava")
    processor.chat_template = CHAT
    user = {"role": "user", "content": "what is this"}
    chat = [user, {"role": "assistant", "content": "this cat"}]
    options: Any = {"tokenizer": processor, "images": make_image()}
    explanation = explain(messages=chat, model=model, **options)
    expected = explain([user], model, continuation="this cat", **options)
    assert explanation.tokens == expected.tokens
    assert explanation.tokens[-2:] == ("this", "cat")
    assert explanation.answer is not None
    assert explanation.answer.text.strip() == "this cat"
    for odd in (
        [{"role": "user"}],
        [{"role": "user", "content": 5}],
        [{"content": "what"}],
        [3],
        3,
    ):
        try:
            explain(odd, model, **options)
        except InputError:
            continue
        assert odd == [{"role": "user"}]  # an image without words


@pytest.mark.parametrize("text", ["what is this", "<image> what <image> is this"])
def test_several_images_are_told_apart(text):
    model, processor = make_vlm("llava")
    images = [make_image(), make_image(30, 20)]
    encoded = encode_with_images(load_model(model, processor), text, images)
    for number in (1, 2):
        names = [f"image {number} patch {i // 4},{i % 4}" for i in range(16)]
        first = encoded.tokens.index(names[0])
        assert list(encoded.tokens[first : first + 16]) == names
    assert [grid.first for grid in encoded.grids] == [0, 16 + ("what <" in text)]


def test_a_model_and_its_processor_in_a_folder(tmp_path):
    model, processor = make_vlm("llava")
    model.save_pretrained(tmp_path)
    processor.save_pretrained(tmp_path)
    explanation = explain("what is this", str(tmp_path), images=make_image())
    expected = explain("what is this", model, tokenizer=processor, images=make_image())
    np.testing.assert_allclose(
        to_numpy(explanation.graph.weights), to_numpy(expected.graph.weights), atol=1e-6
    )
    text = explain("what is this", str(tmp_path))  # without an image
    assert text.tokens == ("what", "is", "this")
    assert text.graph.settings["edges"] == "alti"


@pytest.mark.parametrize("name", KINDS)
def test_answers_about_images(name):
    model, processor = make_vlm(name)
    image = make_image()
    encoded = encode_with_images(load_model(model, processor), "what is this", image)
    expected = model.generate(**encoded.inputs, max_new_tokens=3, do_sample=False)[0].tolist()
    found = explain("what is this", model, tokenizer=processor, images=image, generate=3)
    assert found.image is not None
    assert found.answer is not None
    n = len(encoded.tokens)
    assert [step.target.index for step in found.answer.steps] == expected[n:]
    assert found.tokens[:n] == encoded.tokens
    # The first token is explained as without an answer.
    alone = explain("what is this", model, tokenizer=processor, images=image)
    np.testing.assert_allclose(
        to_numpy(found.graph.weights)[:, :n, :n], to_numpy(alone.graph.weights), atol=1e-4
    )


@pytest.mark.parametrize("options", [(), ("--words",)])
def test_the_command_prints_patches_and_words(tmp_path, options):
    model, processor = make_vlm("llava")
    model.save_pretrained(tmp_path / "model")
    processor.save_pretrained(tmp_path / "model")
    picture, overlay = tmp_path / "image.png", tmp_path / "overlay.png"
    Image.fromarray(make_image()).save(picture)
    app = typer.Typer(pretty_exceptions_enable=False)
    app.callback()(lambda: None)
    register(app)
    arguments = ["explain", "what is this", "--model", str(tmp_path / "model")]
    arguments += ["--image", str(picture), "--overlay", str(overlay), *options]
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 0, result.output
    explanation = explain("what is this", model, tokenizer=processor, images=make_image())
    row = to_numpy(explanation.rollout(words=bool(options)).row())
    assert f"all patches {row[:16].sum():.3f}" in result.output
    assert f"other tokens: this {row[-1]:.3f}" in result.output.replace("\n", " ")
    assert overlay.stat().st_size > 1000


def test_the_check_of_an_explanation_is_refused():
    model, processor = make_vlm("llava")
    explanation = explain("what is this", model, tokenizer=processor, images=make_image())
    with refusal(InputError, "images"):
        explanation.faithfulness()


def test_half_precision():
    model, processor = make_vlm("gemma3")
    image = make_image()
    expected = explain("what is this", model, tokenizer=processor, images=image)
    found = explain("what is this", model.to(torch.bfloat16), tokenizer=processor, images=image)
    np.testing.assert_allclose(
        to_numpy(found.graph.weights), to_numpy(expected.graph.weights), atol=0.05
    )


def test_what_cannot_be_explained_is_refused():
    model, processor = make_vlm("llava")
    with refusal(InputError, "explain_image"):
        explain("the key", make_loaded("GPT2LMHeadModel"), images=make_image())
    with refusal(InputError, "images"):
        explain("what is this", model, tokenizer=processor, images=[])
    with refusal(InputError, "chat template"):
        explain(
            [{"role": "user", "content": "what"}], model, tokenizer=processor, images=make_image()
        )
    with refusal(InputError, "messages"):
        explain([[3, 4]], model, tokenizer=processor, images=make_image())
    with refusal(FileError, "LlavaForConditionalGeneration"):
        explain("what", model, tokenizer=processor.tokenizer, images=make_image())
    model.config.text_config.max_position_embeddings = 10
    with refusal(InputError, 19, 10):
        explain("what is this", model, tokenizer=processor, images=make_image())
