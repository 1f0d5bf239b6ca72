"""The verb-number model of the paper (section 2): GPT-2 blocks that see all tokens.

It predicts from a text whether the verb that follows is singular or plural. [CLS] comes before the
text, and the classifier reads its embedding in the last layer. The causal twin has GPT-2's mask,
and its classifier reads the last token.

The file contains the model, its tokenizer (one token per word), and how both are saved to and
loaded from a folder. `attnflow train verb-number` trains it.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save
from tokenizers import (
    AddedToken,
    Regex,
    Tokenizer,
    models,
    normalizers,
    pre_tokenizers,
    processors,
)
from torch import Tensor, nn
from transformers import GPT2Config, GPT2ForSequenceClassification, PreTrainedTokenizerFast
from transformers.modeling_outputs import SequenceClassifierOutput

from attnflow.errors import FileError, first_line
from attnflow.models.builtin import NUMBERS, VERB_NUMBER_TYPE

MAX_TOKENS = 64  # with [CLS]; sentences of the data have at most 50

PADDING, UNKNOWN, FIRST = "[PAD]", "[UNK]", "[CLS]"
SPECIAL = (PADDING, UNKNOWN, FIRST)
# Part-of-speech tags of the Penn Treebank. In the data of Linzen et al., they replace rare words.
TAGS = (
    *("CC", "CD", "DT", "EX", "FW", "IN", "JJ", "JJR", "JJS", "LS", "MD", "NN", "NNP", "NNPS"),
    *("NNS", "PDT", "POS", "PRP", "PRP$", "RB", "RBR", "RBS", "RP", "SYM", "UH", "VB", "VBD"),
    *("VBG", "VBN", "VBP", "VBZ", "WDT", "WP", "WRB"),
)
# The data splits tokens at spaces, and also before a comma or a closing bracket at the end of a
# word, after an opening bracket at its start, and before 's and n't.
SPLITS = (
    r"[,;)\]](?=[,;)\]]*$)",
    r"^[(\[]+(?=\w)",
    r"(?<=\w)('s|'re|'ve|'ll|'d|'m)$",
    r"(?<=\w)n't$",
)

WEIGHTS_FILE = "weights.safetensors"
SCALES = ".scale"  # suffix of the name of a matrix's scales


class VerbNumberConfig(GPT2Config):  # type: ignore[no-untyped-call]
    """Configuration with the sizes of the paper: 6 layers, 8 heads, 128 dimensions.

    is_decoder: whether the model is the causal twin. Other options are those of GPT2Config.
    """

    model_type = VERB_NUMBER_TYPE

    def __init__(self, **options: Any) -> None:
        sizes = {"n_layer": 6, "n_head": 8, "n_embd": 128, "n_positions": MAX_TOKENS}
        labels = {
            "id2label": dict(enumerate(NUMBERS)),
            "label2id": {number: i for i, number in enumerate(NUMBERS)},
        }
        tokens = {"pad_token_id": 0, "bos_token_id": None, "eos_token_id": None}
        super().__init__(**{**sizes, **labels, **tokens, "use_cache": False, **options})
        self.is_decoder = bool(options.get("is_decoder", False))


class VerbNumberModel(GPT2ForSequenceClassification):  # type: ignore[no-untyped-call]
    """Predicts whether the verb after a text is singular or plural."""

    config_class = VerbNumberConfig
    # These kernels need another form of mask.
    _supports_flash_attn = False
    _supports_flex_attn = False

    def __init__(self, config: VerbNumberConfig) -> None:
        super().__init__(config)  # type: ignore[no-untyped-call]
        self.causal = bool(config.is_decoder)
        blocks: Any = self.transformer.h
        for block in blocks:
            block.attn.is_causal = self.causal  # kernels use it where there is no mask

    def get_input_embeddings(self) -> nn.Module:
        """Return the layer that embeds token ids."""
        embeddings: nn.Module = self.transformer.wte
        return embeddings

    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        inputs_embeds: Tensor | None = None,
        labels: Tensor | None = None,
        output_attentions: bool | None = None,
        output_hidden_states: bool | None = None,
        return_dict: bool | None = None,  # noqa: ARG002 - part of the interface
    ) -> SequenceClassifierOutput:
        """Classify texts [batch, tokens]. Returns logits [batch, 2]: singular, plural.

        attention_mask: [batch, tokens], 1 for tokens and 0 for padding, which must be on the right.
        inputs_embeds: [batch, tokens, width], instead of input_ids.
        output_attentions: whether to return attention weights; only "eager" attention has them.
        """
        if attention_mask is None and input_ids is not None:
            attention_mask = input_ids.ne(self.config.pad_token_id or 0)
        if inputs_embeds is None:
            inputs_embeds = self.get_input_embeddings()(input_ids)
        layers, weights = self.encode(inputs_embeds, attention_mask)
        logits = self.score(self.pool(layers[-1], attention_mask))
        loss = None if labels is None else nn.functional.cross_entropy(logits, labels)
        if output_attentions is None:
            output_attentions = self.config.output_attentions
        make_output: Any = SequenceClassifierOutput
        output: SequenceClassifierOutput = make_output(
            loss=loss,
            logits=logits,
            hidden_states=tuple(layers) if output_hidden_states else None,
            attentions=tuple(weights) if output_attentions and weights[0] is not None else None,
        )
        return output

    def encode(
        self, embeddings: Tensor, attention_mask: Tensor | None
    ) -> tuple[list[Tensor], list[Any]]:
        """Return the hidden states before, between and after the blocks, and attention weights.

        embeddings and hidden states: [batch, tokens, width]. Weights: [batch, heads, queries, keys]
        of each block, or None.
        """
        parts: Any = self.transformer
        positions = torch.arange(embeddings.shape[1], device=embeddings.device)
        hidden = parts.drop(embeddings + parts.wpe(positions))
        mask = self._mask(hidden, attention_mask)
        layers, weights = [hidden], []
        for block in parts.h:  # pre-norm, as in GPT-2
            attended, block_weights = block.attn(block.ln_1(hidden), attention_mask=mask)
            hidden = hidden + attended
            hidden = hidden + block.mlp(block.ln_2(hidden))
            layers.append(hidden)
            weights.append(block_weights)
        layers[-1] = parts.ln_f(hidden)
        return layers, weights

    def _mask(self, hidden: Tensor, attention_mask: Tensor | None) -> Tensor | None:
        """Return the mask to add to scores [batch, heads, queries, keys]; None if it is all 0."""
        n = hidden.shape[1]
        visible = torch.ones(1, 1, 1, n, dtype=torch.bool, device=hidden.device)
        if attention_mask is not None:
            visible = visible & attention_mask.bool()[:, None, None, :]
        if self.causal:
            visible = visible & torch.ones(n, n, dtype=torch.bool, device=hidden.device).tril()
        elif attention_mask is None:
            return None
        lowest = torch.finfo(hidden.dtype).min
        return torch.zeros_like(visible, dtype=hidden.dtype).masked_fill(~visible, lowest)

    def pool(self, hidden: Tensor, attention_mask: Tensor | None) -> Tensor:
        """Return the embedding to classify, [batch, width]: that of [CLS], or of the last token."""
        if not self.causal:
            return hidden[:, 0]
        if attention_mask is None:
            return hidden[:, -1]
        last = attention_mask.long().sum(-1) - 1
        return hidden[torch.arange(len(hidden), device=hidden.device), last]


def to_ids(tokens: Sequence[str], vocabulary: Mapping[str, int]) -> list[int]:
    """Return the ids of [CLS] and of the tokens, without a tokenizer."""
    unknown = vocabulary[UNKNOWN]
    return [vocabulary[FIRST], *(vocabulary.get(token, unknown) for token in tokens)]


def make_tokenizer(vocabulary: Mapping[str, int], *, max_length: int, causal: bool = False) -> Any:
    """Make a tokenizer of transformers with one token per word.

    Text becomes lower case, except for the tags in TAGS, which can be written in capitals. Unknown
    words become [UNK].
    max_length: the maximum number of tokens, with [CLS].
    causal: whether the model reads the last token. [CLS] is then the token that begins a text.
    """
    words = Tokenizer(models.WordLevel(dict(vocabulary), unk_token=UNKNOWN))
    words.normalizer = normalizers.Lowercase()
    words.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.WhitespaceSplit(),
            *(pre_tokenizers.Split(Regex(split), "isolated") for split in SPLITS),
        ]
    )
    words.post_processor = processors.TemplateProcessing(
        single=f"{FIRST} $A", special_tokens=[(FIRST, vocabulary[FIRST])]
    )
    words.add_tokens([AddedToken(tag, single_word=True, normalized=False) for tag in TAGS])
    names = {"unk_token": UNKNOWN, "pad_token": PADDING, "padding_side": "right"}
    names["bos_token" if causal else "cls_token"] = FIRST
    make: Any = PreTrainedTokenizerFast
    return make(tokenizer_object=words, model_max_length=max_length, **names)


def save_verb_number(
    model: VerbNumberModel, vocabulary: Mapping[str, int], folder: str | Path
) -> None:
    """Save a model and its tokenizer to a folder, for `attnflow.load_model`."""
    from attnflow.storage import write_atomic

    root = Path(folder)
    root.mkdir(parents=True, exist_ok=True)
    config = model.config
    config.architectures = [type(model).__name__]
    config.save_pretrained(root)
    tokenizer = make_tokenizer(
        vocabulary, max_length=config.n_positions, causal=bool(config.is_decoder)
    )
    tokenizer.save_pretrained(root)
    file = root / "tokenizer.json"  # without the spaces that make up a third of it
    values = json.loads(file.read_text(encoding="utf-8"))
    file.write_text(json.dumps(values, ensure_ascii=False, separators=(",", ":")), encoding="utf-8")
    contents = save(quantize(model.state_dict()))
    write_atomic(root / WEIGHTS_FILE, lambda file: file.write(contents))


def load_verb_number(folder: str | Path) -> VerbNumberModel:
    """Load a model in evaluation mode and float32.

    Raises FileError if a file is missing or broken.
    """
    root = Path(folder)
    try:
        config = VerbNumberConfig.from_pretrained(root)
        weights = dequantize(load_file(root / WEIGHTS_FILE))
        with torch.device("meta"):  # draws no random numbers
            model = VerbNumberModel(config)
        model.load_state_dict(weights, assign=True)
    except (KeyError, OSError, RuntimeError, SafetensorError, TypeError, ValueError) as error:
        raise FileError(
            f"no verb-number model can be read from {root} ({first_line(error)})",
            expected=f"config.json and {WEIGHTS_FILE}",
            fix="Train it again, or install attnflow again.",
        ) from error
    model.name_or_path = str(root)
    model.train(False)
    return model


def quantize(weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Store vectors as float16, and matrices as int8 from -127 to 127 with scales [rows, 1].

    A weight of a matrix changes by at most 1/254 of the largest weight in its row.
    """
    small = {}
    for name, part in weights.items():
        if part.dim() < 2:
            small[name] = part.half()
            continue
        matrix = part.float()
        scales = (matrix.abs().amax(-1, keepdim=True) / 127).clamp(min=2**-24)
        small[name] = (matrix / scales).round().to(torch.int8)
        small[name + SCALES] = scales
    return small


def dequantize(small: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the weights as float32."""
    weights = {name: part.float() for name, part in small.items() if not name.endswith(SCALES)}
    for name in [name for name, part in weights.items() if part.dim() > 1]:
        weights[name] *= small[name + SCALES]
    return weights
