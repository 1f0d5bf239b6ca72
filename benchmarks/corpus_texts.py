"""The sentences of the corpus benchmark."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from attnflow.corpus.example import Example
from attnflow.paper.data.data_sets import read_numpred, read_sst2

DATA = Path(__file__).parents[2] / "shared" / "data"
SHARD = 500


def read_texts(folder: Path, name: str, n: int) -> list[str]:
    """Return n sentences of SST-2, or n prefixes with attractors of the data of Linzen et al."""
    return list(iterate_texts(folder, name, n))


def iterate_texts(folder: Path, name: str, n: int) -> Iterator[str]:
    files: list[Path]
    if name == "SST-2":
        files = [folder / "sst2" / f"{part}.tsv" for part in ("dev", "test", "train")]
        rows: Iterator[Any] = (one for file in files for one in read_sst2(file))
    else:
        files = [folder / "linzen_numpred" / f"numpred.test.{i}" for i in (3, 4, 5, 2, 1)]
        rows = (one for file in files for one in read_numpred(file))
    for _, one in zip(range(n), rows, strict=False):
        yield one.text


def cut(texts: list[str]) -> Iterator[list[Example]]:
    for start in range(0, len(texts), SHARD):
        yield [Example(i, str(i), text) for i, text in enumerate(texts[start : start + SHARD])]
