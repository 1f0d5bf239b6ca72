"""The errors that attnflow raises.

AttnflowError
├── InputError (also a ValueError)     what the caller gave is wrong
│   ├── ShapeError                     an array has the wrong axes or sizes
│   ├── AttentionError                 weights are missing or are no attention
│   ├── SelectionError                 no such layer, head, position or token
│   └── FileError                      a file is not what it should be
└── MissingDependencyError             an optional package is not installed (also an ImportError)

Every message says what was given, what was expected and how to fix it.
"""


class AttnflowError(Exception):
    """Anything attnflow refuses to do; catch this to catch them all."""


class InputError(AttnflowError, ValueError):
    """What the caller gave is wrong."""


class ShapeError(InputError):
    """An array has the wrong number of axes, or axes of the wrong size."""


class AttentionError(InputError):
    """Attention weights are missing, or their values are no attention."""


class SelectionError(InputError):
    """There is no such layer, head, position or token."""


class FileError(InputError):
    """A file cannot be read as what it should be, or cannot be written."""


class MissingDependencyError(AttnflowError, ImportError):
    """An optional package is needed and not installed."""


def expect_kind(value: object, kind: type, fix: str) -> None:
    """Raise InputError, ending in `fix`, if the value is not of the kind."""
    if not isinstance(value, kind):
        raise InputError(f"{type(value).__name__} was given; expected {kind.__name__}. {fix}")
