"""Tiny models of texts and images with random weights, and their processors."""

from typing import Any

import numpy as np
import torch
import transformers
from tokenizers import Tokenizer, models, pre_tokenizers
from torch import Tensor

TEXT: dict[str, Any] = {
    "vocab_size": 40,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "intermediate_size": 32,
    "head_dim": 8,
    "max_position_embeddings": 256,
    "pad_token_id": 0,
    "bos_token_id": None,
    "eos_token_id": None,
}
VISION: dict[str, Any] = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 32,
    "image_size": 16,
    "patch_size": 4,
}
WORDS = ["[PAD]", "[UNK]", "<s>", "what", "is", "this", "cat", "dog", "user", "assistant"]
IMAGE = len(WORDS)  # the id of the first added token, which stands for patches
SQUARE = {"height": 16, "width": 16}
CHAT = (
    "{% for m in messages %}<s> {{ m.role }} {% for part in m.content %}"
    "{% if part.type == 'image' %}<image> {% else %}{{ part.text }} {% endif %}{% endfor %}"
    "{% endfor %}{% if add_generation_prompt %}assistant{% endif %}"
)


def make_tokenizer(**added: str) -> Any:
    """One token a word, and added tokens by name, such as image_token="<image>"."""
    words = Tokenizer(
        models.WordLevel({word: i for i, word in enumerate(WORDS)}, unk_token="[UNK]")
    )
    words.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=words,
        unk_token="[UNK]",
        pad_token="[PAD]",
        bos_token="<s>",
        extra_special_tokens=added,
    )


def make_image(height: int = 20, width: int = 30) -> np.ndarray[Any, Any]:
    """An image of random colors."""
    return np.random.default_rng(0).integers(0, 256, (height, width, 3), dtype=np.uint8)


class QwenProcessor:
    """The processor of Qwen-VL, without videos, for which transformers needs torchvision."""

    image_token = "<|image_pad|>"
    chat_template = None

    def __init__(self) -> None:
        self.image_processor = transformers.Qwen2VLImageProcessor(
            patch_size=4, merge_size=2, min_pixels=64, max_pixels=1024
        )
        self.tokenizer = make_tokenizer(image_token=self.image_token)

    def __call__(self, text: list[str], images: list[Any], **_: Any) -> dict[str, Tensor]:
        found = dict(self.image_processor(images=images, return_tensors="pt"))
        for grid in found["image_grid_thw"]:
            n = int(grid.prod()) // 4
            text = [text[0].replace(self.image_token, " ".join(["<p>"] * n), 1)]
        written = text[0].replace("<p>", self.image_token)
        found.update(self.tokenizer([written], return_tensors="pt"))
        found["mm_token_type_ids"] = (found["input_ids"] == IMAGE).int()
        found.pop("token_type_ids", None)
        return found


def _llava() -> tuple[Any, Any]:
    config = transformers.LlavaConfig(
        vision_config=transformers.CLIPVisionConfig(**VISION),
        text_config=transformers.LlamaConfig(**TEXT),
        image_token_index=IMAGE,
        vision_feature_layer=-1,
    )
    processor = transformers.LlavaProcessor(
        transformers.CLIPImageProcessor(size={"shortest_edge": 16}, crop_size=SQUARE),
        make_tokenizer(image_token="<image>"),
        patch_size=4,
        vision_feature_select_strategy="default",
        num_additional_image_tokens=1,
    )
    return transformers.LlavaForConditionalGeneration(config), processor


def _qwen() -> tuple[Any, Any]:
    rope = {"rope_type": "default", "rope_theta": 1e4, "mrope_section": [1, 1, 2]}
    config = transformers.Qwen2_5_VLConfig(
        vision_config={
            "depth": 2,
            "hidden_size": 32,
            "num_heads": 4,
            "intermediate_size": 32,
            "patch_size": 4,
            "spatial_merge_size": 2,
            "out_hidden_size": 32,
            "window_size": 16,
            "fullatt_block_indexes": [1],
        },
        text_config={**TEXT, "rope_parameters": rope},
        image_token_id=IMAGE,
        vision_start_token_id=36,
        vision_end_token_id=37,
        video_token_id=38,
    )
    return transformers.Qwen2_5_VLForConditionalGeneration(config), QwenProcessor()


def _gemma3() -> tuple[Any, Any]:
    layers = ["full_attention", "sliding_attention"]
    config = transformers.Gemma3Config(
        vision_config={**VISION},
        text_config={**TEXT, "sliding_window": 8, "layer_types": layers},
        mm_tokens_per_image=4,
        image_token_index=IMAGE,
        boi_token_index=IMAGE + 1,
        eoi_token_index=IMAGE + 2,
    )
    processor = transformers.Gemma3Processor(
        transformers.Gemma3ImageProcessor(size=SQUARE),
        make_tokenizer(image_token="<image_soft_token>", boi_token="<boi>", eoi_token="<eoi>"),
        image_seq_length=4,
    )
    return transformers.Gemma3ForConditionalGeneration(config), processor


def _idefics3() -> tuple[Any, Any]:
    config = transformers.Idefics3Config(
        vision_config=VISION,
        text_config=transformers.LlamaConfig(**TEXT),
        image_token_id=IMAGE,
        scale_factor=2,
    )
    processor = transformers.Idefics3Processor(
        transformers.Idefics3ImageProcessor(
            size={"longest_edge": 32}, max_image_size={"longest_edge": 16}
        ),
        make_tokenizer(image_token="<image>"),
        image_seq_len=4,
    )
    return transformers.Idefics3ForConditionalGeneration(config), processor


def _decoders() -> dict[str, tuple[Any, int, dict[str, Tensor]]]:
    """Further configurations, the number of image tokens, and inputs of the image encoder."""
    pixels = torch.randn(1, 3, 16, 16)
    rope = {"rope_type": "default", "rope_theta": 1e4, "mrope_section": [1, 1, 2]}
    siglip = {name: VISION[name] for name in VISION if name != "image_size"}
    return {
        "internvl": (
            transformers.InternVLConfig(
                vision_config={**VISION, "image_size": [16, 16], "patch_size": [4, 4]},
                text_config=transformers.Qwen2Config(**TEXT),
                image_token_id=IMAGE,
                image_seq_length=4,
            ),
            4,
            {"pixel_values": pixels},
        ),
        "qwen3-vl": (  # adds features of the image to several layers
            transformers.Qwen3VLConfig(
                vision_config={
                    "depth": 2,
                    "hidden_size": 32,
                    "num_heads": 4,
                    "intermediate_size": 32,
                    "patch_size": 4,
                    "out_hidden_size": 32,
                    "deepstack_visual_indexes": [0],
                    "num_position_embeddings": 16,
                },
                text_config={**TEXT, "rope_parameters": {**rope, "mrope_interleaved": True}},
                image_token_id=IMAGE,
                vision_start_token_id=36,
                vision_end_token_id=37,
                video_token_id=38,
            ),
            4,
            {
                "pixel_values": torch.randn(16, 96),
                "image_grid_thw": torch.tensor([[1, 4, 4]]),
            },
        ),
        "lfm2-vl": (  # a hybrid decoder
            transformers.Lfm2VlConfig(
                vision_config={
                    "model_type": "siglip2_vision_model",
                    **siglip,
                    "num_patches": 16,
                },
                text_config={
                    "model_type": "lfm2",
                    **TEXT,
                    "layer_types": ["conv", "full_attention"],
                    "block_auto_adjust_ff_dim": False,
                },
                image_token_id=IMAGE,
                downsample_factor=2,
            ),
            4,
            {
                "pixel_values": torch.randn(1, 16, 48),
                "spatial_shapes": torch.tensor([[4, 4]]),
                "pixel_attention_mask": torch.ones(1, 16, dtype=torch.long),
            },
        ),
    }


DECODERS = ("internvl", "qwen3-vl", "lfm2-vl")


def make_decoder(name: str) -> tuple[Any, dict[str, Tensor]]:
    """A model whose processor needs torchvision, and inputs with an image."""
    torch.manual_seed(0)
    config, n, inputs = _decoders()[name]
    ids = torch.tensor([[3, 4, *[IMAGE] * n, 5, 6]])
    inputs = {"input_ids": ids, "attention_mask": torch.ones_like(ids), **inputs}
    if "image_grid_thw" in inputs:
        inputs["mm_token_type_ids"] = (ids == IMAGE).int()
    return transformers.AutoModelForImageTextToText.from_config(config).eval(), inputs


KINDS = {"llava": _llava, "qwen2.5-vl": _qwen, "gemma3": _gemma3, "idefics3": _idefics3}


def make_vlm(name: str) -> tuple[Any, Any]:
    """A model and its processor, always with the same weights."""
    torch.manual_seed(0)
    model, processor = KINDS[name]()
    with torch.no_grad():  # larger than by default, so that attention is not uniform
        for parameter in model.parameters():
            if parameter.dim() > 1 and not parameter.any():  # the projector of Gemma 3
                parameter.normal_(std=0.1)
            elif parameter.dim() > 1:
                parameter.mul_(4)
    return model.eval(), processor
