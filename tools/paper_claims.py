"""Statements in docs/paper.md that are checked against the results."""

from attnflow.paper.experiments.result import Result

Results = dict[str, Result]


class StaleCommentError(Exception):
    """The numbers no longer show what a comment says."""


def expect(holds: bool, what: str) -> None:
    """Stop unless the numbers still show what the text says."""
    if not holds:
        raise StaleCommentError(f"the numbers no longer show that {what}: revise this comment")
