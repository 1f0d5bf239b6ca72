"""What the adapters are trained on: reviews with their sentiment, and plain sentences."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

from attnflow.data.example import open_lines
from attnflow.data.sst2 import read_sst2
from attnflow.data.table import Columns
from attnflow.minilm.building import LABELS

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

    from attnflow.minilm.stories import tell_stories

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
