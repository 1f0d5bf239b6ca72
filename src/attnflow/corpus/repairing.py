"""Computing damaged and missing shards again, from what the manifest names."""

from pathlib import Path

from attnflow.corpus.checking import Check, drop_damaged, input_of
from attnflow.corpus.folder import open_folder
from attnflow.corpus.manifest import read_manifest
from attnflow.corpus.progress import Summary, Watch
from attnflow.corpus.running import run


def repair(
    out: str | Path,
    found: Check,
    *,
    threads: int | None = None,
    accept_versions: bool = False,
    progress: Watch | None = None,
) -> Summary:
    """Take damaged shards out of the journal, and run the corpus again on this machine.

    accept_versions: whether to do so with other versions of libraries.
    Raises FileError if the input cannot be opened by its name, InputError if it or the model is
    not what it was.
    """
    manifest = read_manifest(open_folder(out).manifest)
    drop_damaged(out, found)
    written, settings = manifest.input, manifest.settings
    options = {name: getattr(settings, name) for name in settings.to_json()}
    return run(
        input_of(manifest),
        out,
        text_column=written["text_column"],
        id_column=written["id_column"],
        format=None if written["format"] == "dataset" else written["format"],
        input_id=written["checksum"] if written.get("told_by") == "input_id" else None,
        shard_size=manifest.shard_size,
        accept_versions=accept_versions,
        threads=threads,
        progress=progress,
        **options,
    )
