"""Which rows of flow the viewer is given: all of them, or those of the explained position."""

from attnflow.attribution import Attribution
from attnflow.explanation import Explanation, Progress

# Flow from all positions at all layers is computed up to this many pairs: 12 layers of 128 tokens,
# which take two seconds or so. Beyond, it is that of the explained position.
FLOW_PAIRS = 12 * 128 * 128


def flow_rows(explanation: Explanation) -> list[int] | None:
    """The positions whose flow is given; None for all of them."""
    n = len(explanation.tokens)
    return None if explanation.graph.n_layers * n * n <= FLOW_PAIRS else [explanation.position]


def flow_of(explanation: Explanation, progress: Progress | None = None) -> Attribution:
    """The flow from those positions at all layers; computed once."""
    rows = flow_rows(explanation)
    positions = range(len(explanation.tokens)) if rows is None else rows
    return explanation.flow(positions=positions, progress=progress)


def n_pairs(explanation: Explanation) -> int:
    """How many flows those are."""
    n, rows = len(explanation.tokens), flow_rows(explanation)
    return explanation.graph.n_layers * n * (n if rows is None else len(rows))
