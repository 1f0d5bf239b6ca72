"""The manifest: what a corpus was computed from. A run that differs from it is refused.

What tells a model from any other: the checksums of its files. And the versions of libraries.
"""

import json
import platform
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from hashlib import file_digest, sha256
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from attnflow.corpus.settings import Settings
from attnflow.errors import FileError, InputError
from attnflow.models.builtin.folders import find_adapter, find_encoder, find_folder
from attnflow.storage import write_json

SCHEMA = 1  # of the manifest, the shards and the journal; see docs/corpus.md
# Where a model or an input lies does not matter, as long as it is the same.
PLACES = ("settings.model", "settings.tokenizer", "input.name")


@dataclass(frozen=True)
class Manifest:
    """What is computed from what.

    input: name, format, checksum, text_column, id_column. model: sha256 and files, by name.
    versions: of the libraries; further ones, if they were accepted later, are in a list.
    """

    settings: Settings
    shard_size: int
    input: Mapping[str, Any]
    model: Mapping[str, Any]
    versions: tuple[Mapping[str, str], ...]
    schema: int = SCHEMA

    def to_json(self) -> dict[str, Any]:
        """As JSON can write it."""
        written = {**asdict(self), "settings": self.settings.to_json()}
        return {"schema": written.pop("schema"), **written, "versions": list(self.versions)}


def write_manifest(path: Path, manifest: Manifest) -> None:
    """Write a manifest, whole or not at all."""
    write_json(path, manifest.to_json())


def read_manifest(path: Path) -> Manifest:
    """Read a manifest. Raises FileError if it is none, or of another version."""
    try:
        written = json.loads(path.read_text(encoding="utf-8"))
        schema = written["schema"]
        if schema == SCHEMA:
            settings = Settings.from_json(written.pop("settings"))
            written["versions"] = tuple(written["versions"])
            return Manifest(settings, **written)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise FileError(
            f"{path} cannot be read ({error})",
            expected="what `attnflow corpus run` wrote",
            fix="Name another folder with --out, or put the file back.",
        ) from error
    raise FileError(
        f"{path} has the schema {schema!r}",
        expected=f"{SCHEMA}",
        fix="Read it with the version of attnflow that wrote it.",
    )


def settle(
    path: Path,
    now: Manifest,
    *,
    accept_versions: bool = False,
    anew: Callable[[], None] | None = None,
) -> Manifest:
    """Write the manifest if there is none; otherwise see that this run is the same.

    accept_versions: whether to go on with other versions of libraries, and to note them.
    anew: removes what a run left that is not the same, if nothing is lost by that.
    Raises InputError, naming what differs. Call it with the guard held.
    """
    if not path.exists():
        write_manifest(path, now)
        return now
    before = read_manifest(path)
    known = before.versions[-1] if before.versions else {}
    now = replace(now, versions=before.versions if known == now.versions[-1] else now.versions)
    differences = list(compare(before, now, versions=not accept_versions))
    if differences and anew is not None:
        warnings.warn(
            f"{path.parent} was begun differently: {'; '.join(differences)}; it has no finished "
            "shard, and is begun anew",
            stacklevel=2,
        )
        anew()
        write_manifest(path, replace(now, versions=now.versions[-1:]))
        return now
    if differences:
        fix = "Run it as before, or name another folder with --out."
        if all(difference.startswith("version of ") for difference in differences):
            fix = "Install the former versions, or go on with these: --accept-versions."
        raise InputError(
            f"{path.parent} was begun differently: {'; '.join(differences)}. Expected the same, to "
            f"go on. {fix}"
        )
    if now.versions != before.versions:
        before = replace(before, versions=(*before.versions, *now.versions))
        write_manifest(path, before)
    return before


def compare(before: Manifest, now: Manifest, *, versions: bool = True) -> Iterator[str]:
    """What differs between two manifests, in words."""
    old, new = (dict(_flat(one.to_json())) for one in (before, now))
    for name in (*old, *(name for name in new if name not in old)):
        was, is_now = old.get(name), new.get(name)
        if was == is_now or name in PLACES or name.startswith(("versions", "model.files")):
            continue
        if name == "model.sha256":
            files = [one.model.get("files", {}) for one in (before, now)]
            yield f"the model has other files: {changed_files(*files) or 'unnamed'}"
        elif name == "input.checksum":
            names = [f"{m.input['name']} ({_short(m.input['checksum'])})" for m in (before, now)]
            yield f"the input was {names[0]} and is {names[1]}"
        else:
            yield f"{name.split('.')[-1]} was {json.dumps(was)} and is {json.dumps(is_now)}"
    if versions and before.versions and now.versions:
        was_all, all_now = before.versions[-1], now.versions[-1]
        for name in sorted({*was_all, *all_now}):
            if was_all.get(name) != all_now.get(name):
                yield f"version of {name} was {was_all.get(name)} and is {all_now.get(name)}"


def changed_files(old: Mapping[str, str], new: Mapping[str, str]) -> str:
    """The names of the files whose checksums differ, with commas between them.

    >>> changed_files({"a": "0", "b": "1"}, {"a": "0", "c": "2"})
    'b, c'
    """
    return ", ".join(n for n in sorted({*old, *new}) if old.get(n) != new.get(n))


def _short(checksum: Any) -> str:
    return f"{str(checksum)[:12]}..." if len(str(checksum)) > 15 else str(checksum)


def _flat(written: Mapping[str, Any], above: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in written.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{above}{name}.")
        else:
            yield f"{above}{name}", value


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
            f"there is no model {settings.model}",
            expected="a folder with config.json and safetensors weights, or a name on the hub",
            fix="Name one with --model (model=...).",
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
