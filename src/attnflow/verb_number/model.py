"""The verb-number model of the paper (section 2): GPT-2 blocks without a causal mask.

[CLS] stands in front of the text, and the classifier reads its embedding in the last layer. The
causal twin has the mask of GPT-2, and its classifier reads the last token.
"""

from typing import Any

import torch
from torch import Tensor, nn
from transformers import GPT2Config, GPT2ForSequenceClassification
from transformers.modeling_outputs import SequenceClassifierOutput

from attnflow.data.example import NUMBERS
from attnflow.verb_number.folders import MODEL_TYPE

MAX_TOKENS = 64  # with [CLS]; sentences of the data have at most 50


class VerbNumberConfig(GPT2Config):  # type: ignore[no-untyped-call]
    """The sizes of the paper: 6 layers, 8 heads, 128 wide.

    is_decoder: whether this is the causal twin. pad_token_id: what fills up shorter texts.
    """

    model_type = MODEL_TYPE

    def __init__(self, **options: Any) -> None:
        sizes = {"n_layer": 6, "n_head": 8, "n_embd": 128, "n_positions": MAX_TOKENS}
        labels = {"id2label": dict(enumerate(NUMBERS)), "label2id": _indices()}
        tokens = {"pad_token_id": 0, "bos_token_id": None, "eos_token_id": None}
        super().__init__(**{**sizes, **labels, **tokens, "use_cache": False, **options})
        self.is_decoder = bool(options.get("is_decoder", False))


def _indices() -> dict[str, int]:
    return {number: i for i, number in enumerate(NUMBERS)}


class VerbNumberModel(GPT2ForSequenceClassification):  # type: ignore[no-untyped-call]
    """Predicts whether the verb that follows a text is singular or plural."""

    config_class = VerbNumberConfig
    # Other kernels would need masks of their own kind.
    _supports_flash_attn = False
    _supports_flex_attn = False

    def __init__(self, config: VerbNumberConfig) -> None:
        super().__init__(config)  # type: ignore[no-untyped-call]
        self.causal = bool(config.is_decoder)
        blocks: Any = self.transformer.h
        for block in blocks:
            block.attn.is_causal = self.causal  # where no mask is given, kernels go by this

    def get_input_embeddings(self) -> nn.Module:
        """The embeddings of words, [words, width]."""
        embeddings: nn.Module = self.transformer.wte
        return embeddings

    def forward(  # without caches, for which there is no use here
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        inputs_embeds: Tensor | None = None,
        labels: Tensor | None = None,
        output_attentions: bool | None = None,
        output_hidden_states: bool | None = None,
        return_dict: bool | None = None,  # noqa: ARG002 - callers of transformers' models give it
    ) -> SequenceClassifierOutput:
        """Classify texts [batch, tokens]; the logits are [batch, 2], singular before plural.

        attention_mask: [batch, tokens], 1 for a token and 0 for padding, which is on the right.
        inputs_embeds: [batch, tokens, width], in place of input_ids.
        output_attentions: whether to return weights, which "eager" attention computes.
        """
        if attention_mask is None and input_ids is not None:
            attention_mask = input_ids.ne(self.config.pad_token_id or 0)
        if inputs_embeds is None:
            inputs_embeds = self.get_input_embeddings()(input_ids)
        layers, weights = self.encode(inputs_embeds, attention_mask)
        logits = self.score(self.read(layers[-1], attention_mask))
        loss = None if labels is None else nn.functional.cross_entropy(logits, labels)
        asked = self.config.output_attentions if output_attentions is None else output_attentions
        output: Any = SequenceClassifierOutput
        made: SequenceClassifierOutput = output(
            loss=loss,
            logits=logits,
            hidden_states=tuple(layers) if output_hidden_states else None,
            attentions=None if not asked or weights[0] is None else tuple(weights),
        )
        return made

    def encode(
        self, embeddings: Tensor, attention_mask: Tensor | None
    ) -> tuple[list[Tensor], list[Any]]:
        """Hidden states [batch, tokens, width] before, between and after blocks, and weights."""
        parts: Any = self.transformer
        places = torch.arange(embeddings.shape[1], device=embeddings.device)
        hidden = parts.drop(embeddings + parts.wpe(places))
        mask = self._mask(hidden, attention_mask)
        layers, weights = [hidden], []
        for block in parts.h:  # pre-norm, as in GPT-2
            attended, seen = block.attn(block.ln_1(hidden), attention_mask=mask)
            hidden = hidden + attended
            hidden = hidden + block.mlp(block.ln_2(hidden))
            layers.append(hidden)
            weights.append(seen)
        layers[-1] = parts.ln_f(hidden)
        return layers, weights

    def _mask(self, hidden: Tensor, attention_mask: Tensor | None) -> Tensor | None:
        """Numbers to add to scores [batch, heads, queries, keys]; None if all keys are seen."""
        n = hidden.shape[1]
        seen = torch.ones(1, 1, 1, n, dtype=torch.bool, device=hidden.device)
        if attention_mask is not None:
            seen = seen & attention_mask.bool()[:, None, None, :]
        if self.causal:
            seen = seen & torch.ones(n, n, dtype=torch.bool, device=hidden.device).tril()
        elif attention_mask is None:
            return None
        hidden_keys = torch.finfo(hidden.dtype).min
        return torch.zeros_like(seen, dtype=hidden.dtype).masked_fill(~seen, hidden_keys)

    def read(self, hidden: Tensor, attention_mask: Tensor | None) -> Tensor:
        """The embeddings [batch, width] that are classified: of [CLS], or of the last token."""
        if not self.causal:
            return hidden[:, 0]
        if attention_mask is None:
            return hidden[:, -1]
        last = attention_mask.long().sum(-1) - 1
        return hidden[torch.arange(len(hidden), device=hidden.device), last]
