"""What the adapters are trained on: reviews with their sentiment, and plain sentences.

A causal language model of 260 thousand weights, trained on children's stories; and its stories.

Read from an export of llama2.c (version 0): seven integers, then float32 weights one after another.
Published as stories260K in karpathy/tinyllamas, under the MIT license.
"""

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import torch
import transformers
from tokenizers import Tokenizer, decoders, models, normalizers, processors

from attnflow.errors import FileError
from attnflow.models.builtin.minilm import LABELS
from attnflow.paper.data.readers import Columns, open_lines, read_sst2

N_HELD = 1000  # sentences held out of each kind
MIN_WORDS = 8  # of a review's phrase, to be worth reading as text
N_STORIES = 20_000
SEED = 2020  # of the split


@dataclass(frozen=True)
class Reviews:
    """Texts and labels to train on, and those of the development and test sets by name."""

    texts: list[str]
    labels: list[int]
    held: dict[str, tuple[list[str], list[int]]]


def read_reviews(folder: str | Path) -> Reviews:
    """Read `sst2` in a folder; training texts that occur in the other sets are left out."""
    root = Path(folder) / "sst2"
    sets = {name: list(read_sst2(root / f"{name}.tsv")) for name in ("train", "dev", "test")}
    held = {_plain(one.text) for name in ("dev", "test") for one in sets[name]}
    train = [one for one in sets["train"] if _plain(one.text) not in held]
    return Reviews(
        [one.text for one in train],
        [LABELS.index(one.sentiment) for one in train],
        {
            name: (
                [one.text for one in sets[name]],
                [LABELS.index(one.sentiment) for one in sets[name]],
            )
            for name in ("dev", "test")
        },
    )


@dataclass(frozen=True)
class Texts:
    """Sentences to train on, and held-out ones by name."""

    train: list[str]
    held: dict[str, list[str]]


def read_texts(folder: str | Path, stories: Sequence[str] = ()) -> Texts:
    """Read the treebanks and reviews in a folder, with stories beside them if there are any.

    Sentences that are alike but for case and space count once. Whole documents are held out.
    """
    root, random = Path(folder), Random(SEED)
    treebanks = _read_documents(root)
    reviews = [t for t in read_reviews(folder).texts if len(t.split()) >= MIN_WORDS]
    parts = {"treebanks": treebanks, "reviews": [[t] for t in reviews]}
    if stories:
        parts["stories"] = [[one] for one in stories]
    train: list[str] = []
    held: dict[str, list[str]] = {}
    for name, groups in parts.items():
        random.shuffle(groups)
        taken: list[str] = []
        while len(taken) < min(N_HELD, sum(map(len, groups)) // 4):
            taken += groups.pop()
        held[name] = taken
        train += [text for group in groups for text in group]
    seen = {_plain(text) for texts in held.values() for text in texts}
    return Texts([t for t in dict.fromkeys(train) if _plain(t) not in seen], held)


def read_texts_with_stories(folder: str | Path, *, n: int = N_STORIES, device: Any = None) -> Texts:
    """The same, with n stories that the model in `stories260K` tells.

    The caller's random numbers are left as they were.
    """
    import torch

    place = torch.device(device or ("cuda" if torch.cuda.is_available() else "cpu"))
    with torch.random.fork_rng(devices=[place] if place.type == "cuda" else []):
        torch.manual_seed(SEED)
        stories = tell_stories(Path(folder) / "stories260K", n, device=place)
    return read_texts(folder, stories)


def _read_documents(root: Path) -> list[list[str]]:
    """The different sentences of each document of the treebanks."""
    documents: dict[str, dict[str, None]] = {}
    for name in ("amalgum_agreement", "ud_agreement"):
        path = root / name / "agreement.tsv.gz"
        with open_lines(path) as lines:
            columns = Columns.from_header(path, lines, ("doc", "sentence"))
            for i, line in lines:
                row = columns.split(i, line)
                documents.setdefault(row["doc"], {})[row["sentence"]] = None
    return [list(texts) for texts in documents.values()]


def _plain(text: str) -> str:
    return " ".join(text.lower().split())


MODEL, TOKENIZER = "stories260K.bin", "tok512.bin"


def load_stories(folder: str | Path) -> tuple[Any, Any]:
    """The model, in evaluation mode, and its tokenizer, from the folder that holds both files.

    Raises FileError if one is missing.
    """
    root = Path(folder)
    for name in (MODEL, TOKENIZER):
        if not (root / name).is_file():
            raise FileError(
                f"there is no {root / name}",
                expected=f"{MODEL} and {TOKENIZER}, which are published in "
                "karpathy/tinyllamas, folder "
                "stories260K",
                fix="Put both there.",
            )
    return _read_model(root / MODEL), _read_tokenizer(root / TOKENIZER)


def tell_stories(
    folder: str | Path, n: int, *, length: int = 200, batch_size: int = 1000, device: Any = "cpu"
) -> list[str]:
    """Let the model tell n stories of at most `length` tokens, drawn as it finds them probable.

    Random numbers come from torch's generator: seed it before.
    """
    model, tokenizer = load_stories(folder)
    model.to(device)
    stories: list[str] = []
    while len(stories) < n:
        begin = torch.ones(min(batch_size, n - len(stories)), 1, dtype=torch.long, device=device)
        told = model.generate(
            begin,
            attention_mask=torch.ones_like(begin),
            do_sample=True,
            temperature=0.8,
            top_k=0,
            max_new_tokens=length,
            pad_token_id=2,
        )
        stories += [tokenizer.decode(one, skip_special_tokens=True).strip() for one in told]
    return stories


def _make_model(header: tuple[int, ...]) -> Any:
    """A model of the sizes that the header names, with random weights."""
    width, hidden, n_layers, n_heads, n_key_heads, n_words, length = header
    config = transformers.LlamaConfig(
        vocab_size=n_words,
        hidden_size=width,
        intermediate_size=hidden,
        num_hidden_layers=n_layers,
        num_attention_heads=n_heads,
        num_key_value_heads=n_key_heads,
        max_position_embeddings=length,
        rms_norm_eps=1e-5,
        tie_word_embeddings=True,
        bos_token_id=1,
        eos_token_id=2,
    )
    model: Any = transformers.LlamaForCausalLM
    return model(config).eval()


def _read_model(path: Path) -> Any:
    header = struct.unpack("<7i", path.read_bytes()[:28])
    width, hidden, n_layers, n_heads, n_key_heads, n_words, _ = header
    model = _make_model(header)
    numbers = torch.from_numpy(np.fromfile(path, dtype="<f4", offset=28))
    used = 0

    def take(*shape: int) -> torch.Tensor:
        nonlocal used
        size = int(np.prod(shape))
        used += size
        return numbers[used - size : used].reshape(shape)

    keys = n_key_heads * (width // n_heads)
    with torch.no_grad():
        model.model.embed_tokens.weight.copy_(take(n_words, width))
        blocks = model.model.layers
        for name, shape in {
            "input_layernorm": (width,),
            "self_attn.q_proj": (width, width),
            "self_attn.k_proj": (keys, width),
            "self_attn.v_proj": (keys, width),
            "self_attn.o_proj": (width, width),
            "post_attention_layernorm": (width,),
            "mlp.gate_proj": (hidden, width),
            "mlp.down_proj": (width, hidden),
            "mlp.up_proj": (hidden, width),
        }.items():
            for block, weight in zip(blocks, take(n_layers, *shape), strict=True):
                rotary = name.endswith(("q_proj", "k_proj"))
                turned = _split_halves(weight, width // n_heads) if rotary else weight
                block.get_submodule(name).weight.copy_(turned)
        model.model.norm.weight.copy_(take(width))
    return model


def _split_halves(weight: torch.Tensor, head: int) -> torch.Tensor:
    """Rows of each head from pairs (0, 1), (2, 3), ... to two halves, as transformers rotates."""
    pairs = weight.reshape(-1, head // 2, 2, weight.shape[-1])
    return pairs.transpose(1, 2).reshape(weight.shape)


def _read_tokenizer(path: Path) -> Any:
    """Pieces with scores, joined best score first, as byte-pair encoding with merges does."""
    raw = path.read_bytes()
    pieces, at = [], 4
    while at < len(raw):
        score, size = struct.unpack_from("<fi", raw, at)
        piece = raw[at + 8 : at + 8 + size].decode("utf-8").replace(" ", "▁")
        pieces.append((piece, score))
        at += 8 + size
    pieces[:3] = [("<unk>", 0.0), ("<s>", 0.0), ("</s>", 0.0)]
    ids = {piece: i for i, (piece, _) in enumerate(pieces)}
    merges = [
        (piece[:cut], piece[cut:])
        for piece, _ in sorted(pieces[3:], key=lambda p: -p[1])
        for cut in range(1, len(piece))
        if piece[:cut] in ids and piece[cut:] in ids
    ]
    words = Tokenizer(models.BPE(ids, merges, unk_token="<unk>", byte_fallback=True))
    words.normalizer = normalizers.Sequence(
        [normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")]
    )
    words.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
    )
    words.post_processor = processors.TemplateProcessing(
        single="<s> $A", special_tokens=[("<s>", 1)]
    )
    tokenizer: Any = transformers.PreTrainedTokenizerFast
    return tokenizer(tokenizer_object=words, unk_token="<unk>", bos_token="<s>", eos_token="</s>")
