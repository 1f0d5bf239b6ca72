"""Figure 3: maps of rollout and flow of [CLS], for the sentences of figure 2."""

from attnflow.paper.experiments.options import Options, Progress
from attnflow.paper.experiments.report import Report
from attnflow.paper.experiments.result import Result
from attnflow.paper.experiments.sentence_maps import draw_sentences, lay_out

NAME = "figure3"
METHODS = ("rollout", "flow")


def run(options: Options, progress: Progress | None) -> Result:
    """Draw rollout and flow of [CLS] over tokens and layers."""
    return draw_sentences(NAME, METHODS, options, progress)


def render(result: Result) -> Report:
    """The picture, and what the model says to the sentences."""
    return lay_out(
        result,
        "Figure 3: rollout and flow of [CLS]",
        "Attention rollout and attention flow of [CLS] over tokens (across) and layers (upward)",
    )
