"""The errors that attnflow raises.

AttnflowError
├── InputError (also a ValueError)     an argument, option or file is invalid
│   ├── ShapeError                     an array has the wrong axes or sizes
│   ├── AttentionError                 attention weights are missing or invalid
│   ├── SelectionError                 no such layer, head, position or token
│   └── FileError                      a file cannot be read or written
└── MissingDependencyError             an optional package is not installed (also an ImportError)

Every error carries its parts: what was given, what was expected, and how to fix it.
"""

from math import inf
from numbers import Real
from operator import index
from os import PathLike, fsencode

MAX_COUNT = 2**31  # of threads and the like
MAX_QUOTED = 80  # characters of a value in a message
MAX_PART = 1000  # characters of a part of a message, such as a path


class AttnflowError(Exception):
    """Base class of all errors raised by attnflow.

    given: what was wrong. expected: what would be valid. fix: what to do, as a full sentence.
    The last two may be empty. The message joins the parts.

    >>> str(AttnflowError("layer is 7", expected="1 to 6", fix="Layers count from 1."))
    'layer is 7; expected 1 to 6. Layers count from 1.'
    """

    # Positional, because exceptions are pickled as their class and `args`.
    def __init__(self, given: str, expected: str = "", fix: str = "") -> None:
        self.given, self.expected, self.fix = map(_cut, (given, expected, fix))
        super().__init__(self.given, self.expected, self.fix)

    def __str__(self) -> str:
        text = f"{self.given}; expected {self.expected}." if self.expected else self.given
        return f"{text} {self.fix}".rstrip()

    def within(self, place: str) -> "AttnflowError":
        """A copy of this error that says where it happened, such as "example 3".

        >>> str(InputError("text is empty").within("example 3"))
        'example 3: text is empty'
        """
        return type(self)(f"{place}: {self.given}", self.expected, self.fix)


def _cut(part: str) -> str:
    """Leave out the middle of a long part, such as a path of thousands of characters."""
    if len(part) <= MAX_PART:
        return part
    half = MAX_PART // 2
    return f"{part[:half]} ... ({len(part) - MAX_PART} characters left out) ... {part[-half:]}"


class InputError(AttnflowError, ValueError):
    """An argument, option or file is invalid."""


class ShapeError(InputError):
    """An array has the wrong number of axes, or axes of the wrong size."""


class AttentionError(InputError):
    """Attention weights are missing or invalid."""


class SelectionError(InputError):
    """There is no such layer, head, position or token."""


class FileError(InputError):
    """A file cannot be read or written."""


class MissingDependencyError(AttnflowError, ImportError):
    """An optional package is needed and not installed."""


def check_type(value: object, expected: type, fix: str) -> None:
    """Raise InputError unless the value is an instance of the expected class."""
    if not isinstance(value, expected):
        raise InputError(f"got a {type(value).__name__}", expected=expected.__name__, fix=fix)


def check_choice(name: str, value: object, choices: "tuple[object, ...]") -> None:
    """Raise InputError unless the value of an option is one of its choices.

    >>> check_choice("special", "shown", ("show", "hide"))
    Traceback (most recent call last):
    attnflow.errors.InputError: special is 'shown'; expected 'show' or 'hide'. ...
    """
    if not _is_one_of(value, choices):
        raise InputError(
            f"{name} is {quote(value)}",
            expected=join_choices(choices),
            fix=f"Use {name}={choices[0]!r}, the default, or one of the others.",
        )


def _is_one_of(value: object, choices: "tuple[object, ...]") -> bool:
    try:
        return hash(value) is not None and value in choices
    except Exception:  # arrays have neither a hash nor a truth value
        return False


def check_count(name: str, value: object, *, first: int = 1) -> None:
    """Raise InputError unless the value is None or a whole number from `first`.

    >>> check_count("threads", 0)
    Traceback (most recent call last):
    attnflow.errors.InputError: threads is 0; expected a whole number from 1. ...
    """
    if value is not None:
        check_whole(name, value, first=first)


def check_whole(name: str, value: object, *, first: int = 1) -> None:
    """Raise InputError unless the value is a whole number from `first`."""
    try:
        is_valid = not isinstance(value, bool) and first <= index(value) < MAX_COUNT  # type: ignore[arg-type]
    except Exception:  # `__index__` may be code of other packages
        is_valid = False
    if not is_valid:
        raise InputError(
            f"{name} is {quote(value)}",
            expected=f"a whole number from {first}",
            fix=f"Leave {name} out for its default.",
        )


def check_number(
    name: str, value: object, *, above: float = -inf, low: float = -inf, high: float = inf
) -> None:
    """Raise InputError unless the value is a real number above one number, or from low to high.

    >>> check_number("keep", 2, above=0, high=1)
    Traceback (most recent call last):
    attnflow.errors.InputError: keep is 2; expected a number above 0, up to 1. ...
    """
    try:
        is_valid = isinstance(value, Real) and not isinstance(value, bool)
        is_valid = is_valid and value > above and low <= value <= high  # type: ignore[operator]
    except Exception:  # code of other packages
        is_valid = False
    if not is_valid:
        lowest = f"above {above:g}" if above > -inf else f"from {low:g}" if low > -inf else ""
        highest = f"up to {high:g}" if high < inf else ""
        limits = ", ".join(filter(None, (lowest, highest)))
        raise InputError(
            f"{name} is {quote(value)}",
            expected=f"a number {limits}".rstrip(),
            fix=f"Leave {name} out for its default.",
        )


def check_names(name: str, values: object) -> None:
    """Raise InputError unless the values are a list of texts."""
    if not isinstance(values, list | tuple) or not all(isinstance(text, str) for text in values):
        raise InputError(
            f"{name} is {quote(values)}",
            expected="a list of texts",
            fix=f"Pass a list, or leave {name} out for its default.",
        )


def check_switch(name: str, value: object) -> None:
    """Raise InputError unless the value is True or False."""
    if not _is_one_of(value, (True, False)):
        raise InputError(
            f"{name} is {quote(value)}", expected="True or False", fix=f"Pass {name}=True or False."
        )


def check_function(name: str, value: object) -> None:
    """Raise InputError unless the value is None or can be called."""
    if value is not None and not callable(value):
        raise InputError(
            f"{name} is {quote(value)}",
            expected="a function, or None",
            fix=f"Leave {name} out, or pass a function.",
        )


def check_path(value: object, name: str = "path") -> None:
    """Raise InputError unless the value is the path of a file: text or a Path."""
    try:
        is_valid = isinstance(value, str | PathLike) and b"\0" not in (fsencode(value) or b"\0")
    except Exception:  # `__fspath__` is code of other packages, and not all text can be encoded
        is_valid = False
    if not is_valid:
        raise InputError(
            f"{name} is {quote(value)}",
            expected="the path of a file, as text or pathlib.Path",
            fix="Pass such a path.",
        )


def check_text(name: str, value: object) -> None:
    """Raise InputError unless the value is None or a string."""
    if value is not None and not isinstance(value, str):
        raise InputError(f"{name} is {quote(value)}", expected="a string", fix="Pass a string.")


def quote(value: object) -> str:
    """A value as it is quoted in messages: its start, and its type where that says more.

    >>> quote("a"), quote([1, 2]), quote(object)
    ("'a'", '[1, 2]', "<class 'object'>")
    """
    try:
        text = " ".join(repr(value).split())
    except Exception:  # code of other packages
        text = f"a {type(value).__name__}"
    return text if len(text) <= MAX_QUOTED else f"{text[:MAX_QUOTED]}... ({type(value).__name__})"


def join_choices(choices: "tuple[object, ...]") -> str:
    """Choices as they are listed in messages.

    >>> join_choices(("mean", "max", 0))
    "'mean', 'max' or 0"
    """
    *others, last = map(repr, choices)
    return f"{', '.join(others)} or {last}" if others else last


def first_line(error: Exception) -> str:
    """Return the first line of an error's message, to quote it in another message."""
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__
