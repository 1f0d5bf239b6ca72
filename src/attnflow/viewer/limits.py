"""What the local page allows at most, and how it refuses what goes beyond."""

from dataclasses import dataclass

from attnflow.errors import AttnflowError


@dataclass(frozen=True)
class Limits:
    """How much one request may ask for, and how much is kept.

    text_length: characters of a text. tokens: tokens of a text or of saved attentions.
    upload_bytes: the size of saved attentions. seconds: the time of one computation.
    workers: computations at the same time. waiting: those that wait for their turn.
    results: results that are kept. result_bytes: the memory they may take; the newest is always
    kept.
    """

    text_length: int = 5_000
    tokens: int = 512
    upload_bytes: int = 64_000_000
    seconds: float = 60.0
    workers: int = 1
    waiting: int = 8
    results: int = 16
    result_bytes: int = 512_000_000


class RequestError(AttnflowError):
    """A request that is refused, with the status of its answer."""

    def __init__(self, message: str, status: int) -> None:
        super().__init__(message)
        self.status = status


class TimeOutError(RequestError):
    """A computation that took longer than is allowed, and was ended."""

    def __init__(self, seconds: float) -> None:
        super().__init__(
            f"the computation took longer than the {seconds:g} seconds that are allowed, and was "
            "ended. Give a shorter text, or start the server with a longer --seconds.",
            504,
        )


class CrashError(RequestError):
    """A computation that went wrong in a way nobody planned for."""

    def __init__(self, what: str) -> None:
        super().__init__(
            f"the computation broke down ({what}); the server goes on. Try again, or try another "
            "text or model.",
            500,
        )


class BusyError(RequestError):
    """Too much is waiting already."""

    def __init__(self, waiting: int) -> None:
        super().__init__(
            f"the server is busy: {waiting} computations run or wait already. Try again in a "
            "moment.",
            503,
        )
