"""Registries: named methods and edge weightings, known everywhere once they are registered.

`attnflow.methods.registry` and `attnflow.edges.registry` each hold one. The Python API, the
command line, corpus runs, the viewer and the tables in the documentation all read them.
"""

import warnings
from collections.abc import Iterator
from functools import cache
from importlib import import_module
from importlib.metadata import entry_points
from typing import Any, Generic, Protocol, TypeVar

from attnflow.errors import InputError, SelectionError, check_text, quote

# Packages can register methods and edges: they name a module of theirs in this entry point group.
PLUGIN_GROUP = "attnflow.plugins"


class Named(Protocol):
    """What a registry holds: anything with a name and a summary."""

    @property
    def name(self) -> str:
        """The name, as options spell it."""

    @property
    def summary(self) -> str:
        """What it computes, in one sentence."""


EntryT = TypeVar("EntryT", bound=Named)


class Registry(Generic[EntryT]):
    """Entries by name, in the order in which they were registered.

    kind: what the entries are, for error messages: "method" or "edges".
    """

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self._entries: dict[str, EntryT] = {}

    def register(self, entry: EntryT) -> EntryT:
        """Add an entry.

        Raises InputError if its name is taken or is not lowercase with underscores.
        """
        name: object = entry.name  # users pass anything
        if not isinstance(name, str) or not name.isidentifier() or name != name.lower():
            raise InputError(
                f"the name of the {self.kind} is {quote(name)}",
                expected="lowercase letters, digits and underscores",
                fix="Choose a name such as 'my_method'.",
            )
        if entry.name in self._entries:
            raise InputError(
                f"{self.kind} {entry.name!r} is registered already",
                expected="a new name",
                fix=f"Choose another name, or call unregister({entry.name!r}) first.",
            )
        function = getattr(entry, "function", None)
        if not isinstance(function, str) and not callable(function):
            raise InputError(
                f"the function of {self.kind} {entry.name!r} is {quote(function)}",
                expected="a function, or 'package.module:name'",
                fix="Pass the function that computes it.",
            )
        check_text("summary", entry.summary)
        self._entries[entry.name] = entry
        return entry

    def unregister(self, name: str) -> None:
        """Remove an entry. Raises SelectionError if there is none."""
        self[name]
        del self._entries[name]

    def __getitem__(self, name: str) -> EntryT:
        """The entry of a name. Raises SelectionError, listing all names, if there is none."""
        given: object = name  # users pass anything
        if isinstance(given, str) and given not in self._entries:
            load_plugins()
        if not isinstance(given, str) or given not in self._entries:
            raise SelectionError(
                f"{self.kind} is {quote(name)}",
                expected=f"one of {', '.join(self._entries)}",
                fix="docs/extending.md shows how to register another.",
            )
        return self._entries[name]

    def __iter__(self) -> Iterator[EntryT]:
        load_plugins()
        return iter(self._entries.values())

    @property
    def names(self) -> tuple[str, ...]:
        """All names, in the order of registration."""
        return tuple(entry.name for entry in self)

    def help(self) -> str:
        """Names and summaries, for the help text of an option."""
        return " ".join(f"{entry.name}: {entry.summary}" for entry in self)


def choose_title(name: object, title: str) -> str:
    """The title of an entry, made from its name if it is empty. Raises InputError for no text.

    >>> choose_title("my_method", ""), choose_title("my_method", "Mine")
    ('My method', 'Mine')
    """
    check_text("title", title)
    return title or (name.replace("_", " ").capitalize() if isinstance(name, str) else "")


def resolve_function(function: Any) -> Any:
    """A function, or the one that "package.module:name" refers to.

    Built-in entries are such references, so that listing them imports neither torch nor Numba.

    >>> resolve_function("math:sqrt")(4.0)
    2.0
    """
    if not isinstance(function, str):
        return function
    module, _, name = function.partition(":")
    return getattr(import_module(module), name)


@cache
def load_plugins() -> None:
    """Import the modules that installed packages name in PLUGIN_GROUP, once."""
    for plugin in entry_points(group=PLUGIN_GROUP):
        try:
            plugin.load()
        except Exception as error:
            warnings.warn(
                f"the attnflow plugin {plugin.name} ({plugin.value}) failed to load: {error}",
                stacklevel=2,
            )
