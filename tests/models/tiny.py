"""Tiny models with random weights, one for each architecture that is tested."""

import warnings
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

SIZES: dict[str, Any] = {
    "vocab_size": 99,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 37,
    "max_position_embeddings": 64,
    "pad_token_id": 0,
}
GROUPED: dict[str, Any] = {**SIZES, "num_key_value_heads": 2, "head_dim": 8}
NO_TOKENS: dict[str, Any] = {"bos_token_id": None, "eos_token_id": None}
IMAGES: dict[str, Any] = {"image_size": 12, "patch_size": 4}
VISION: dict[str, Any] = {
    name: SIZES[name]
    for name in ("hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size")
} | IMAGES


@dataclass(frozen=True)
class Tiny:
    """A model and its inputs; `model` and `config` are the names of classes of transformers."""

    model: str
    config: str
    sizes: dict[str, Any]
    kind: str = "text"  # or "image", "pair"
    # Whether the model numbers positions from the first column, including padding on the left.
    counts_columns: bool = False

    def make(self, implementation: str = "sdpa", model: str | None = None) -> Any:
        """Make the model in evaluation mode, always with the same weights."""
        import transformers

        with warnings.catch_warnings():  # DeBERTa-v2 calls torch.jit.script when it is imported
            warnings.simplefilter("ignore", DeprecationWarning)
            model_class = getattr(transformers, model or self.model)
        torch.manual_seed(0)
        config = getattr(transformers, self.config)(**self.sizes)
        config._attn_implementation = implementation
        tiny = model_class(config).eval()
        with torch.no_grad():  # larger than by default, so that attention is not uniform
            for parameter in tiny.parameters():
                if parameter.dim() > 1:
                    parameter.mul_(4)
        return tiny

    def inputs(self, lengths: tuple[int, ...] = (7,), side: str = "right") -> dict[str, Tensor]:
        """Make a batch with these numbers of tokens, padded on one side."""
        if self.kind == "image":
            torch.manual_seed(1)
            return {"pixel_values": torch.randn(len(lengths), 3, 12, 12)}
        ids, mask = _text(lengths, side, seed=1)
        inputs = {"input_ids": ids, "attention_mask": mask}
        if self.counts_columns and side == "left":
            inputs["position_ids"] = (mask.cumsum(-1) - 1).clamp_min(0)
        if self.kind == "pair":
            shorter = tuple(length - 2 for length in lengths)
            ids, mask = _text(shorter, "right", seed=2)
            inputs |= {"decoder_input_ids": ids, "decoder_attention_mask": mask}
        return inputs


def _text(lengths: tuple[int, ...], side: str, seed: int) -> tuple[Tensor, Tensor]:
    longest = max(lengths)
    ids = torch.zeros(len(lengths), longest, dtype=torch.long)
    mask = torch.zeros_like(ids)
    for row, length in enumerate(lengths):
        generator = torch.Generator().manual_seed(100 * seed + row)
        place = slice(0, length) if side == "right" else slice(longest - length, longest)
        ids[row, place] = torch.randint(5, 99, (length,), generator=generator)
        mask[row, place] = 1
    return ids, mask


MODERNBERT = {
    **SIZES,
    **NO_TOKENS,
    "cls_token_id": None,
    "sep_token_id": None,
    "local_attention": 4,
    "global_attn_every_n_layers": 2,
}
T5 = {"vocab_size": 99, "d_model": 32, "d_kv": 8, "d_ff": 37, "num_layers": 2, "num_heads": 4}
BART = {
    "vocab_size": 99,
    "d_model": 32,
    "encoder_layers": 2,
    "decoder_layers": 2,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 4,
    "encoder_ffn_dim": 37,
    "decoder_ffn_dim": 37,
    "max_position_embeddings": 64,
    "forced_eos_token_id": None,
}
CLIP_TEXT = {**SIZES, "bos_token_id": 1, "eos_token_id": 2}
GPT2 = {"n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 64, "vocab_size": 99, **NO_TOKENS}
DISTILBERT = {"vocab_size": 99, "dim": 32, "n_layers": 2, "n_heads": 4, "hidden_dim": 37}
DEBERTA = {**SIZES, "relative_attention": True, "pos_att_type": ["p2c", "c2p"]}
GEMMA = {**GROUPED, "sliding_window": 3}
GPT_OSS = {
    **GROUPED,
    "intermediate_size": 32,
    "sliding_window": 3,
    "num_local_experts": 2,
    "num_experts_per_tok": 1,
}

TINY: dict[str, Tiny] = {
    "bert": Tiny("BertModel", "BertConfig", SIZES, counts_columns=True),
    "roberta": Tiny("RobertaModel", "RobertaConfig", SIZES),
    "albert": Tiny(
        "AlbertModel", "AlbertConfig", {**SIZES, "embedding_size": 16}, counts_columns=True
    ),
    "electra": Tiny(
        "ElectraModel", "ElectraConfig", {**SIZES, "embedding_size": 16}, counts_columns=True
    ),
    "distilbert": Tiny("DistilBertModel", "DistilBertConfig", DISTILBERT, counts_columns=True),
    "deberta-v2": Tiny("DebertaV2Model", "DebertaV2Config", DEBERTA, counts_columns=True),
    "modernbert": Tiny("ModernBertModel", "ModernBertConfig", MODERNBERT),
    "vit": Tiny("ViTModel", "ViTConfig", VISION, kind="image"),
    "deit": Tiny("DeiTModel", "DeiTConfig", VISION, kind="image"),
    # Without [CLS]; its attention pooling is not captured as a layer.
    "siglip": Tiny("SiglipVisionModel", "SiglipVisionConfig", VISION, kind="image"),
    "gpt2": Tiny("GPT2Model", "GPT2Config", GPT2, counts_columns=True),
    "gpt-neox": Tiny("GPTNeoXModel", "GPTNeoXConfig", SIZES),
    "llama": Tiny("LlamaForCausalLM", "LlamaConfig", GROUPED),
    "mistral": Tiny("MistralModel", "MistralConfig", {**GROUPED, "sliding_window": 3}),
    "qwen3": Tiny("Qwen3Model", "Qwen3Config", GROUPED),
    "gemma2": Tiny("Gemma2Model", "Gemma2Config", GEMMA),  # has a softcap
    "gemma3": Tiny("Gemma3TextModel", "Gemma3TextConfig", {**GEMMA, "sliding_window_pattern": 2}),
    "gpt-oss": Tiny("GptOssModel", "GptOssConfig", GPT_OSS),  # has sinks
    "t5": Tiny("T5Model", "T5Config", T5, kind="pair"),
    "bart": Tiny("BartModel", "BartConfig", BART, kind="pair"),
    "clip-text": Tiny("CLIPTextModel", "CLIPTextConfig", CLIP_TEXT, counts_columns=True),
    "clip-vision": Tiny("CLIPVisionModel", "CLIPVisionConfig", VISION, kind="image"),
}
STACKS = [name for name, tiny in TINY.items() if tiny.kind != "pair"]
PAIRS = [name for name, tiny in TINY.items() if tiny.kind == "pair"]
TEXTS = [name for name, tiny in TINY.items() if tiny.kind == "text"]
