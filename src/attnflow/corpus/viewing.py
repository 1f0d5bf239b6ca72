"""One example of a corpus as a page: explained anew, with all that the viewer shows."""

from pathlib import Path
from typing import Any

from attnflow.corpus.settings import Settings
from attnflow.explaining import explain
from attnflow.viewer.single_file import to_html


def write_page(settings: Settings, text: str, path: str | Path) -> Path:
    """Explain a text as the corpus did, on the processor, and write it to one HTML file.

    Raises FileError if the file cannot be written, or the model is no longer there.
    """
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
