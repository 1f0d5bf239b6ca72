"""Figure 1: the attention graph of a sentence, by raw attention, rollout and flow."""

from attnflow.paper.experiments.layout import provenance
from attnflow.paper.experiments.options import Options, Progress
from attnflow.paper.experiments.report import Picture, Report
from attnflow.paper.experiments.result import Result
from attnflow.paper.experiments.three_sentences import (
    CORRECT,
    MODEL,
    chosen_sentences,
    describe_decisions,
    explain_sentences,
    scores_of,
)

NAME = "figure1"
METHODS = ("raw", "rollout", "flow")

MEANING = (
    "Lines that end at a position of a layer say what it attends to: for raw attention positions "
    "of the layer below, for rollout and flow the tokens of the input, whatever the layer, which "
    "is how the authors of the paper drew them. At the first layer rollout and flow are the same, "
    "and differ from raw attention by the residual connection, the level lines; with depth these "
    "fade. The lines of [CLS], from which the model classifies, are drawn in orange."
)


def run(options: Options, progress: Progress | None) -> Result:
    """Draw the graph of one sentence."""
    from attnflow.figures import draw_graph, save

    sentences = chosen_sentences(options, [CORRECT])[:1]
    [explanation], told = explain_sentences(options, sentences)
    if progress:
        progress(1, 2)
    file = f"paper-{NAME}.{options.picture_format}"
    figure = draw_graph(explanation, highlight=explanation.position, **options.look)
    save(figure, options.pictures_folder / file)
    if progress:
        progress(2, 2)
    numbers = {"sentences": told, "scores": scores_of(explanation, METHODS)}
    settings = {"model": options.model or MODEL, "data": "one sentence"}
    return Result(NAME, numbers, settings, (file,))


def render(result: Result) -> Report:
    """The picture, and what the model says to the sentence."""
    told = result.numbers["sentences"]
    caption = (
        "Raw attention, attention rollout and attention flow across layers for "
        f'"{told[0]["text"]}"; wider lines are more attention.'
    )
    return Report(
        "Figure 1: the attention graph",
        (
            provenance(result),
            describe_decisions(told),
            Picture(result.pictures[0], caption),
            MEANING,
        ),
    )
