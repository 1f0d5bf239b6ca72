"""The verb-number model of the paper (section 2): GPT-2 blocks without a causal mask.

[CLS] stands in front of the text, and the classifier reads its embedding in the last layer. The
causal twin has the mask of GPT-2, and its classifier reads the last token.

The words that the verb-number model knows, and texts put into their form.

The form is that of the data of Linzen et al.: lower case, and a tag in capitals for a rare word.

The tokenizer of the verb-number model: one token for each word.

Text is put into lower case, except for the tags that stand for rare words in the data; they can be
written in a text as they are, in capitals. Words that are not known become [UNK].

Verb-number models in folders: written small, and read again.

In a folder are config.json, the tokenizer, and weights.safetensors. Weights are in half precision;
those of matrices, which are nearly all of them, are whole numbers from -127 to 127, with a scale
for each row.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save
from torch import Tensor, nn
from transformers import GPT2Config, GPT2ForSequenceClassification
from transformers.modeling_outputs import SequenceClassifierOutput

from attnflow.errors import FileError
from attnflow.models.builtin.folders import MODEL_TYPE, NUMBERS

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


PADDING, UNKNOWN, FIRST = "[PAD]", "[UNK]", "[CLS]"
SPECIAL = (PADDING, UNKNOWN, FIRST)

# The parts of speech of the Penn Treebank that stand for rare words.
TAGS = (
    *("CC", "CD", "DT", "EX", "FW", "IN", "JJ", "JJR", "JJS", "LS", "MD", "NN", "NNP", "NNPS"),
    *("NNS", "PDT", "POS", "PRP", "PRP$", "RB", "RBR", "RBS", "RP", "SYM", "UH", "VB", "VBD"),
    *("VBG", "VBN", "VBP", "VBZ", "WDT", "WP", "WRB"),
)


def to_ids(tokens: Sequence[str], vocabulary: Mapping[str, int]) -> list[int]:
    """The numbers of [CLS] and of the tokens."""
    unknown = vocabulary[UNKNOWN]
    return [vocabulary[FIRST], *(vocabulary.get(token, unknown) for token in tokens)]


# Where to cut what stands between spaces, as the data is cut: before a comma or a closing bracket
# at the end, after an opening one at the beginning, before 's and n't.
PARTS = (
    r"[,;)\]](?=[,;)\]]*$)",
    r"^[(\[]+(?=\w)",
    r"(?<=\w)('s|'re|'ve|'ll|'d|'m)$",
    r"(?<=\w)n't$",
)


def make_tokenizer(vocabulary: Mapping[str, int], *, max_length: int, causal: bool = False) -> Any:
    """Make a tokenizer of transformers for a vocabulary.

    max_length: the most tokens that the model takes, with [CLS].
    causal: for a model that reads the last token, [CLS] is only the beginning of the text.
    """
    from tokenizers import (
        AddedToken,
        Regex,
        Tokenizer,
        models,
        normalizers,
        pre_tokenizers,
        processors,
    )
    from transformers import PreTrainedTokenizerFast

    words = Tokenizer(models.WordLevel(dict(vocabulary), unk_token=UNKNOWN))
    words.normalizer = normalizers.Lowercase()
    words.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.WhitespaceSplit(),
            *(pre_tokenizers.Split(Regex(part), "isolated") for part in PARTS),
        ]
    )
    words.post_processor = processors.TemplateProcessing(
        single=f"{FIRST} $A", special_tokens=[(FIRST, vocabulary[FIRST])]
    )
    words.add_tokens([AddedToken(tag, single_word=True, normalized=False) for tag in TAGS])
    names = {"unk_token": UNKNOWN, "pad_token": PADDING, "padding_side": "right"}
    names["bos_token" if causal else "cls_token"] = FIRST
    kind: Any = PreTrainedTokenizerFast
    return kind(tokenizer_object=words, model_max_length=max_length, **names)


WEIGHTS = "weights.safetensors"
SCALE = ".scale"  # what the name of a matrix's scales ends in


def save_verb_number(
    model: VerbNumberModel, vocabulary: Mapping[str, int], folder: str | Path
) -> None:
    """Write a model and its tokenizer into a folder, from which `attnflow.load_model` reads it."""
    root = Path(folder)
    root.mkdir(parents=True, exist_ok=True)
    config = model.config
    config.architectures = [type(model).__name__]
    config.save_pretrained(root)
    tokenizer = make_tokenizer(
        vocabulary, max_length=config.n_positions, causal=bool(config.is_decoder)
    )
    tokenizer.save_pretrained(root)
    (root / WEIGHTS).write_bytes(save(shrink(model.state_dict())))


def load_verb_number(folder: str | Path) -> VerbNumberModel:
    """Read a model, in evaluation mode and single precision.

    Raises FileError if a file is missing or broken.
    """
    root = Path(folder)
    try:
        config = VerbNumberConfig.from_pretrained(root)
        weights = restore(load_file(root / WEIGHTS))
        with torch.device("meta"):  # no random numbers are drawn that are not used
            model = VerbNumberModel(config)
        model.load_state_dict(weights, assign=True)
    except (KeyError, OSError, RuntimeError, SafetensorError, TypeError, ValueError) as error:
        raise FileError(
            f"no verb-number model can be read from {root} ({str(error).splitlines()[0]})",
            expected=f"config.json and {WEIGHTS}",
            fix="Train it again, or install attnflow again.",
        ) from error
    model.name_or_path = str(root)
    model.train(False)
    return model


def shrink(weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Weights in half precision, and matrices as whole numbers with scales [rows, 1].

    A weight of a matrix changes by at most 1/254 of the largest in its row.
    """
    small = {}
    for name, part in weights.items():
        if part.dim() < 2:
            small[name] = part.half()
            continue
        matrix = part.float()
        scales = (matrix.abs().amax(-1, keepdim=True) / 127).clamp(min=2**-24)
        small[name] = (matrix / scales).round().to(torch.int8)
        small[name + SCALE] = scales
    return small


def restore(small: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The weights in single precision."""
    weights = {name: part.float() for name, part in small.items() if not name.endswith(SCALE)}
    for name in [name for name, part in weights.items() if part.dim() > 1]:
        weights[name] *= small[name + SCALE]
    return weights
