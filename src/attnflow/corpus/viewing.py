"""One example of a corpus as a page: explained anew, with all that the viewer shows."""

from pathlib import Path
from typing import Any

from attnflow.corpus.identity import checksums
from attnflow.corpus.manifest import Manifest, changed_files
from attnflow.errors import InputError
from attnflow.explaining import explain
from attnflow.viewer.single_file import to_html


def write_page(manifest: Manifest, text: str, path: str | Path) -> Path:
    """Explain a text as the corpus did, on the processor, and write it to one HTML file.

    Raises FileError if the file cannot be written, or the model is no longer there; InputError if
    it is another model by now.
    """
    settings = manifest.settings
    changed = changed_files(manifest.model["files"], checksums(settings))
    if changed:
        raise InputError(
            f"the model {settings.model} has other files than the corpus was computed with: "
            f"{changed}; expected the same. Put them back, or look at the scores that are stored, "
            "without --html."
        )
    heads: Any = settings.heads
    edges: Any = settings.edges
    explanation = explain(
        text,
        settings.model,
        tokenizer=settings.tokenizer,
        target=settings.target,
        residual_weight=settings.residual_weight,
        heads=heads,
        edges=edges,
        truncate=settings.truncate,
    )
    return to_html(path, explanation)
