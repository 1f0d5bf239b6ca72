"""The manifest: settings, input, model and library versions of a corpus.

A run resumes only if all of these are the same. The model is identified by the checksums of its
files. Which shards are finished is in the journal, see `store`.
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

from attnflow.corpus.journal import check_record, read_json, write_record
from attnflow.corpus.settings import RunSettings, Settings
from attnflow.errors import AttnflowError, FileError, InputError
from attnflow.models.builtin import find_adapter, find_encoder, find_verb_number
from attnflow.models.hub import hub_access

SCHEMA = 2  # of the manifest, the shards and the journal; see docs/corpus.md
# The location of a model or an input may change as long as its content is the same.
LOCATIONS = ("settings.model", "settings.tokenizer", "input.name")
INPUT_NAMES = {"name", "format", "checksum", "text_column", "id_column"}
# The files of a checkpoint that affect its results. Every checkpoint has the first.
MODEL_FILES = (
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
# The libraries that affect the last bit of a result, or the bytes of a file.
LIBRARIES = ("attnflow", "numba", "numpy", "pyarrow", "tokenizers", "torch", "transformers")


@dataclass(frozen=True)
class Manifest:
    """What a corpus was computed from.

    settings: a RunSettings.
    input: name, format, checksum, text_column, id_column. model: sha256, and files by name.
    versions: of the libraries; versions accepted by later runs are appended.
    """

    settings: Any
    shard_size: int
    input: Mapping[str, Any]
    model: Mapping[str, Any]
    versions: tuple[Mapping[str, str], ...]
    schema: int = SCHEMA

    def to_json(self) -> dict[str, Any]:
        """Return the manifest with types that JSON has."""
        values = {**asdict(self), "settings": self.settings.to_json()}
        first = {"schema": values.pop("schema"), "kind": self.settings.kind}
        return {**first, **values, "versions": list(self.versions)}


@dataclass(frozen=True)
class Difference:
    """A difference between two manifests.

    is_version: whether only the version of a library differs, which the user can accept.
    """

    description: str
    is_version: bool = False

    def __str__(self) -> str:
        return self.description


def write_manifest(path: Path, manifest: Manifest) -> None:
    """Write a manifest atomically."""
    write_record(path, manifest.to_json())


def read_manifest(path: Path, settings_class: type[RunSettings] = Settings) -> Manifest:
    """Read a manifest.

    settings_class: the settings of the kind of run that is expected.
    Raises FileError if it is invalid, of another kind, or has another schema.
    """
    values = read_json(path)
    if values.get("schema") != SCHEMA:
        raise FileError(
            f"{path} has the schema {values.get('schema')!r:.40}",
            expected=str(SCHEMA),
            fix="Read it with the version of attnflow that wrote it, or use another folder with "
            "--out.",
        )
    try:
        values = check_record(path, values)
        _check_kind(path, values.pop("kind", None), settings_class)
        return _parse(values, settings_class)
    except FileError:
        raise
    except AttnflowError as error:  # such as a method that is no longer registered
        raise error.within(str(path)) from error
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise FileError(
            f"{path} cannot be read ({error})",
            expected="a manifest of `attnflow corpus run`",
            fix="Use another folder with --out, or restore the file.",
        ) from error


def _parse(values: dict[str, Any], settings_class: type[RunSettings]) -> Manifest:
    """Return the manifest with these values. Raises errors of many kinds if they are invalid."""
    settings = settings_class.from_json(values.pop("settings"))
    manifest = Manifest(settings, **{**values, "versions": tuple(values["versions"])})
    if type(manifest.shard_size) is not int or manifest.shard_size < 1:
        raise ValueError(f"shard_size is {manifest.shard_size!r}")
    if not isinstance(manifest.input, dict) or not INPUT_NAMES.issubset(manifest.input):
        raise ValueError("input is incomplete")
    if not isinstance(manifest.model, dict) or not isinstance(manifest.model["files"], dict):
        raise ValueError("model is incomplete")
    if not all(isinstance(versions, dict) for versions in manifest.versions):
        raise ValueError("versions are no names and numbers")
    return manifest


def _check_kind(path: Path, kind: Any, settings_class: type[RunSettings]) -> None:
    """Raise FileError if a folder was written by another kind of run."""
    if kind != settings_class.kind:
        commands = {"scores": "attnflow corpus", "evaluation": "attnflow evaluate"}
        raise FileError(
            f"{path.parent} holds {kind!r:.40}",
            expected=repr(settings_class.kind),
            fix=f"Use `{commands.get(str(kind), 'the command that wrote it')}`, or another folder.",
        )


def ensure_manifest(
    path: Path,
    manifest: Manifest,
    *,
    accept_versions: bool = False,
    restart: Callable[[], None] | None = None,
) -> Manifest:
    """Write the manifest if there is none; otherwise check that this run has the same.

    accept_versions: whether to accept other library versions, and append them to the manifest.
    restart: removes an existing corpus with another manifest; None if it must be kept.
    Raises InputError, with the differences. Call it with the global lock held.
    """
    if not path.exists():
        write_manifest(path, manifest)
        return manifest
    stored = read_manifest(path, type(manifest.settings))
    last = stored.versions[-1] if stored.versions else {}
    known = last == manifest.versions[-1]
    manifest = replace(manifest, versions=stored.versions if known else manifest.versions)
    differences = list(compare(stored, manifest, versions=not accept_versions))
    if differences and restart is None:
        raise _different(path, differences)
    if differences and restart is not None:
        warnings.warn(
            f"{path.parent} was created with different settings and has no finished shard: it is "
            f"started again ({'; '.join(map(str, differences))})",
            stacklevel=2,
        )
        restart()
        write_manifest(path, replace(manifest, versions=manifest.versions[-1:]))
        return manifest
    if manifest.versions != stored.versions:
        stored = replace(stored, versions=(*stored.versions, *manifest.versions))
        write_manifest(path, stored)
    return stored


def _different(path: Path, differences: list[Difference]) -> InputError:
    fix = "Run it with the same settings, or use another folder with --out."
    if all(difference.is_version for difference in differences):
        fix = "Install these versions, or accept the current ones with --accept-versions."
    return InputError(
        f"{path.parent} was created with different settings: {'; '.join(map(str, differences))}",
        expected="the same settings, model, input and versions",
        fix=fix,
    )


def compare(before: Manifest, now: Manifest, *, versions: bool = True) -> Iterator[Difference]:
    """Yield the differences between two manifests. versions: whether to compare versions, too."""
    old, new = (dict(_flatten(manifest.to_json())) for manifest in (before, now))
    for name in (*old, *(name for name in new if name not in old)):
        was, is_now = old.get(name), new.get(name)
        if was == is_now or name in LOCATIONS or name.startswith(("versions", "model.files")):
            continue
        if name == "model.sha256":
            files = [manifest.model.get("files", {}) for manifest in (before, now)]
            text = f"the model has different files: {changed_files(*files) or 'unnamed'}"
        elif name == "input.checksum":
            names = [f"{m.input['name']} ({_short(m.input['checksum'])})" for m in (before, now)]
            text = f"the input was {names[0]} and is {names[1]}"
        else:
            text = f"{name.split('.')[-1]} was {json.dumps(was)} and is {json.dumps(is_now)}"
        yield Difference(text)
    if versions and before.versions and now.versions:
        yield from _compare_versions(before.versions[-1], now.versions[-1])


def _compare_versions(before: Mapping[str, str], now: Mapping[str, str]) -> Iterator[Difference]:
    for name in sorted({*before, *now}):
        if before.get(name) != now.get(name):
            text = f"version of {name} was {before.get(name)} and is {now.get(name)}"
            yield Difference(text, is_version=True)


def changed_files(old: Mapping[str, str], new: Mapping[str, str]) -> str:
    """Return the names of the files whose checksums differ, separated by commas.

    >>> changed_files({"a": "0", "b": "1"}, {"a": "0", "c": "2"})
    'b, c'
    """
    return ", ".join(n for n in sorted({*old, *new}) if old.get(n) != new.get(n))


def _short(checksum: Any) -> str:
    return f"{str(checksum)[:12]}..." if len(str(checksum)) > 15 else str(checksum)


def _flatten(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in values.items():
        if isinstance(value, Mapping):
            yield from _flatten(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value


def checksum_model(settings: Any) -> dict[str, str]:
    """Return the SHA-256 of each file of the model and of its tokenizer, by name.

    settings: with a model and a tokenizer.

    Raises FileError if the model does not exist.
    """
    checksums = {name: _checksum(path) for name, path in _find_files(settings.model)}
    if not checksums:
        raise FileError(
            f"there is no model {settings.model}",
            expected="a folder with config.json and safetensors weights, or a name on the Hugging "
            "Face hub",
            fix="Choose one with --model (model=...).",
        )
    if settings.tokenizer is not None:
        files = [f for f in _find_files(settings.tokenizer) if not f[0].endswith(".safetensors")]
        if not files:
            raise FileError(
                f"there is no tokenizer {settings.tokenizer}",
                expected="a folder with tokenizer.json, or a name on the Hugging Face hub",
                fix="Choose one with --tokenizer (tokenizer=...).",
            )
        checksums |= {f"tokenizer/{name}": _checksum(path) for name, path in files}
    return dict(sorted(checksums.items()))


def join_checksums(files: dict[str, str]) -> str:
    """Return one SHA-256 for all files of a model: its fingerprint."""
    return sha256(json.dumps(files, sort_keys=True).encode()).hexdigest()


def installed_versions() -> dict[str, str]:
    """Return the versions of Python and of the libraries that results depend on."""
    versions = {"python": ".".join(platform.python_version_tuple()[:2])}
    for name in LIBRARIES:
        try:
            versions[name] = version(name)
        except PackageNotFoundError:
            continue
    return versions


def _find_files(name: str) -> Iterator[tuple[str, Path]]:
    """Yield the files of a model that affect its results, with their names."""
    adapter = find_adapter(name)
    if adapter is not None:
        yield from ((f"encoder/{path.name}", path) for path in _model_files(find_encoder()))
    folder = adapter or find_verb_number(name) or Path(name)
    if folder.is_dir():
        yield from ((path.name, path) for path in _model_files(folder))
        return
    if _find_on_hub(name, MODEL_FILES[0]) is None:
        return  # without a network, each further file would take half a minute
    files = {file: path for file in MODEL_FILES if (path := _find_on_hub(name, file)) is not None}
    yield from files.items()
    index = files.get("model.safetensors.index.json")
    if index is not None:
        parts = json.loads(index.read_text(encoding="utf-8"))["weight_map"].values()
        for part in sorted(set(parts)):
            path = _find_on_hub(name, part)
            if path is not None:
                yield part, path


def _model_files(folder: Path) -> list[Path]:
    suffixes = (".safetensors", ".model")
    paths = sorted(folder.iterdir())
    return [path for path in paths if path.name in MODEL_FILES or path.name.endswith(suffixes)]


def _find_on_hub(name: str, file: str) -> Path | None:
    """Return a file of a model on the hub, downloaded to the cache; None if there is none."""
    try:
        from transformers.utils.hub import cached_file
    except ImportError:
        return None
    try:
        with hub_access(name):
            path = cached_file(name, file)
    except (OSError, ValueError):
        return None
    return None if path is None else Path(path)


def _checksum(path: Path) -> str:
    with path.open("rb") as file:
        return file_digest(file, "sha256").hexdigest()
