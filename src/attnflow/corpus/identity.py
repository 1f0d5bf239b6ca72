"""What tells a model from any other: the checksums of its files. And the versions of libraries."""

import json
import platform
from collections.abc import Iterator
from hashlib import file_digest, sha256
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from attnflow.corpus.settings import Settings
from attnflow.errors import FileError
from attnflow.minilm.folders import find_adapter, find_encoder
from attnflow.verb_number.folders import find_folder

# The files of a checkpoint that decide what it computes. Every one has the first.
FILES = (
    "config.json",
    "generation_config.json",
    "model.safetensors",
    "model.safetensors.index.json",
    "weights.safetensors",
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.json",
    "vocab.txt",
    "merges.txt",
    "spiece.model",
    "sentencepiece.bpe.model",
    "tokenizer.model",
)
# Those that decide the last bit of a result, and the bytes of a file.
LIBRARIES = ("attnflow", "numba", "numpy", "pyarrow", "tokenizers", "torch", "transformers")


def checksums(settings: Settings) -> dict[str, str]:
    """The SHA-256 of each file of the model and of its tokenizer.

    Raises FileError if the model is not there.
    """
    found = {name: _checksum(path) for name, path in _files(settings.model)}
    if not found:
        raise FileError(
            f"there is no model {settings.model}; expected a folder with config.json and "
            "safetensors weights, or a name on the hub. Name one with --model (model=...)."
        )
    if settings.tokenizer is not None:
        for name, path in _files(settings.tokenizer):
            if not name.endswith(".safetensors"):
                found[f"tokenizer/{name}"] = _checksum(path)
    return dict(sorted(found.items()))


def join_checksums(files: dict[str, str]) -> str:
    """One SHA-256 for all files of a model."""
    return sha256(json.dumps(files, sort_keys=True).encode()).hexdigest()


def versions() -> dict[str, str]:
    """The versions of Python and of the libraries that results depend on."""
    found = {"python": ".".join(platform.python_version_tuple()[:2])}
    for name in LIBRARIES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


def _files(name: str) -> Iterator[tuple[str, Path]]:
    adapter = find_adapter(name)
    if adapter is not None:
        encoder = find_encoder()
        yield from ((f"encoder/{path.name}", path) for path in _deciding(encoder))
    folder = adapter or find_folder(name) or Path(name)
    if folder.is_dir():
        yield from ((path.name, path) for path in _deciding(folder))
        return
    if _on_hub(name, FILES[0]) is None:
        return  # no model; without a network every further file would be tried for half a minute
    found = {file: path for file in FILES if (path := _on_hub(name, file)) is not None}
    yield from found.items()
    index = found.get("model.safetensors.index.json")
    if index is not None:
        parts = json.loads(index.read_text(encoding="utf-8"))["weight_map"].values()
        for part in sorted(set(parts)):
            path = _on_hub(name, part)
            if path is not None:
                yield part, path


def _deciding(folder: Path) -> list[Path]:
    """The files of a folder that decide what its model computes."""
    ends = (".safetensors", ".model")
    return [p for p in sorted(folder.iterdir()) if p.name in FILES or p.name.endswith(ends)]


def _on_hub(name: str, file: str) -> Path | None:
    """A file of a model on the hub, in the cache after this; None if it has none of that name."""
    try:
        from transformers.utils.hub import cached_file
    except ImportError:
        return None
    try:
        path = cached_file(name, file)
    except OSError:
        return None
    return None if path is None else Path(path)


def _checksum(path: Path) -> str:
    with path.open("rb") as file:
        return file_digest(file, "sha256").hexdigest()
