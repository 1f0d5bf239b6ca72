"""Figure 2: maps of raw attention of [CLS], for three sentences."""

from attnflow.paper.experiments.options import Options, Progress
from attnflow.paper.experiments.report import Report
from attnflow.paper.experiments.result import Result
from attnflow.paper.experiments.sentence_maps import draw_sentences, lay_out

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
