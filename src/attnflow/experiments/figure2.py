"""Figure 2: maps of raw attention of [CLS], for three sentences."""

from attnflow.experiments.options import Options, Progress
from attnflow.experiments.report import Report
from attnflow.experiments.result import Result
from attnflow.experiments.sentence_maps import draw_sentences, lay_out

NAME = "figure2"
METHODS = ("raw",)


def run(options: Options, progress: Progress | None) -> Result:
    """Draw raw attention of [CLS] over tokens and layers."""
    return draw_sentences(NAME, METHODS, options, progress)


def render(result: Result) -> Report:
    """The picture, and what the model says to the sentences."""
    return lay_out(
        result,
        "Figure 2: raw attention of [CLS]",
        "Raw attention of [CLS] over tokens (across) and layers (upward)",
    )
