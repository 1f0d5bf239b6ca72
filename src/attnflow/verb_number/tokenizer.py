"""The tokenizer of the verb-number model: one token for each word.

Text is put into lower case, except for the tags that stand for rare words in the data; they can be
written in a text as they are, in capitals. Words that are not known become [UNK].
"""

from collections.abc import Mapping
from typing import Any

from attnflow.verb_number.vocabulary import FIRST, PADDING, TAGS, UNKNOWN

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
