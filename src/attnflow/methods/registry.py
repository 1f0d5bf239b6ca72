"""The registry of methods: functions from an AttentionGraph to an Attribution.

One `register_method` call makes a method known to Python, the command line, corpus runs, the
viewer, figures and the tables in the documentation.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from inspect import signature
from typing import TYPE_CHECKING, Any

from attnflow.registry import Registry, choose_title, resolve_function

if TYPE_CHECKING:  # the command line lists methods without importing NumPy
    from attnflow.attribution import Attribution, Normalize, Row
    from attnflow.graph import AttentionGraph
    from attnflow.progress import Progress
    from attnflow.selection import Layers, Positions
    from attnflow.units import Units


@dataclass(frozen=True)
class Method:
    """A way to attribute positions to input tokens.

    name: as options spell it. title: as figures and pages show it. summary: one sentence.
    function: from a graph, with the keyword arguments `layers` and `positions`, to an Attribution;
    or "package.module:name" of such a function. It may also take `threads` and `progress`; and
    `units` and `rows`, if the scores of a unit are not sums of scores of tokens, and those of a set
    of positions not their mean, as for flow.
    default: whether pages and "all" methods include it; if not, it is computed only by its name.
    """

    name: str
    title: str
    summary: str
    function: Callable[..., Attribution] | str
    default: bool = True

    def attribute(
        self,
        graph: AttentionGraph,
        *,
        layers: Layers = None,
        positions: Positions = None,
        rows: Sequence[Row] = (),
        units: Units | None = None,
        normalize: Normalize = "none",
        threads: int | None = None,
        progress: Progress | None = None,
    ) -> Attribution:
        """Compute the method, and normalize its scores.

        layers, positions: all if not given. normalize: "none", "rows" or "receptive_field".
        rows: sets of positions instead of positions. units: merge the tokens of each unit, such as
        a word; without rows, positions are then indices or texts of units.
        threads, progress: passed on to methods that take them.
        Returns scores [layers, positions or rows, tokens or units].
        """
        from attnflow.attribution import check_normalize, normalize_scores
        from attnflow.units import merge_columns, merge_rows, merge_units

        check_normalize(normalize)
        function = resolve_function(self.function)
        running = {"threads": threads, "progress": progress}
        options = {name: running[name] for name in self._options if name in running}
        selection: dict[str, Any] = {"layers": layers, "positions": positions}
        joins = "units" in self._options  # the function itself computes sets
        if rows:
            members = sorted({position for row in rows for position in row.positions})
            selection |= {"positions": None, "rows": rows} if joins else {"positions": members}
        elif units is not None and not joins:
            selection["positions"] = units.positions(positions)
        if units is not None and joins:
            selection["units"] = units
        result: Attribution = function(graph, **selection, **options)
        result = normalize_scores(result, normalize, lambda: function(graph.uniform(), **selection))
        if joins or (not rows and units is None):
            return result
        if not rows and units is not None:
            return merge_units(result, units)
        result = merge_rows(result, rows)
        return result if units is None else merge_columns(result, units)

    @cached_property
    def _options(self) -> tuple[str, ...]:
        """The optional arguments that the function takes."""
        accepted = signature(resolve_function(self.function)).parameters
        return tuple(name for name in ("threads", "progress", "units") if name in accepted)


METHODS: Registry[Method] = Registry("method")


def register_method(
    name: str,
    function: Callable[..., Attribution] | str,
    *,
    title: str = "",
    summary: str,
    default: bool = True,
) -> Method:
    """Make a method known to Python, the command line, corpus runs, viewer and figures.

    The arguments are those of `Method`; the title is made from the name if it is not given.
    Raises InputError if the name is taken.
    """
    title = choose_title(name, title)
    return METHODS.register(Method(name, title, summary, function, default))


register_method(
    "raw",
    "attnflow.methods.raw:raw_attention",
    title="Raw attention",
    summary="the attention weights of one layer.",
)
register_method(
    "rollout",
    "attnflow.methods.rollout:rollout",
    title="Attention rollout",
    summary="the product of the layers, with residual connections.",
)
register_method(
    "flow",
    "attnflow.methods.flow:flow",
    title="Attention flow",
    summary="the exact maximum flow through the layers.",
)
register_method(
    "joint_flow",
    "attnflow.methods.joint_flow:joint_flow",
    title="Joint flow",
    summary="one maximum flow to all tokens at once; scores add up to its total.",
    default=False,
)


def default_methods() -> tuple[str, ...]:
    """The names of the methods that pages and "all" include.

    >>> default_methods()[:3]
    ('raw', 'rollout', 'flow')
    """
    return tuple(method.name for method in METHODS if method.default)


def method_title(name: str) -> str:
    """The title of a method for figures and tables, also of one that is not registered.

    >>> method_title("rollout"), method_title("input_gradients")
    ('Attention rollout', 'Input gradients')
    """
    if name in METHODS.names:
        return METHODS[name].title
    return name.replace("_", " ").capitalize()
