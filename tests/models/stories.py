"""The stories260K model, for tests, which are skipped if it is missing."""

from pathlib import Path
from typing import Any

import pytest

from attnflow.paper.minilm import texts as stories

FOLDER = Path(__file__).parents[3] / "shared" / "data" / "stories260K"


def load_stories() -> tuple[Any, Any]:
    """Return the model, in evaluation mode, and its tokenizer."""
    if not (FOLDER / stories.MODEL_FILE).is_file():
        pytest.skip(f"the stories260K model is not in {FOLDER}")
    return stories.load_stories(FOLDER)
