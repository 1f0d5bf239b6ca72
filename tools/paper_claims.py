"""Checks of the statements in docs/paper.md against the results."""

from attnflow.paper.experiments.experiment import Result

Results = dict[str, Result]  # by the name of the experiment


class StaleCommentError(Exception):
    """The numbers no longer support a statement."""


def expect(holds: bool, statement: str) -> None:
    """Raise StaleCommentError unless the numbers support a statement."""
    if not holds:
        raise StaleCommentError(f"the numbers no longer show this, revise the text: {statement}")
