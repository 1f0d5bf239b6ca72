"""The memory of the kernels: two tables of fields, and everything that follows from them.

`TABLES` lists what is precomputed from a network's capacities, `WORKSPACE` what one thread needs
to solve pairs. Both are blocks of memory that begin with a header: the sizes of the network, then
the offset of every field. The header is computed from the table and nowhere else; `allocate`
writes it, and kernels read it with `tables_of` and `workspace_of`.

`n` positions form a level. Level 0 holds the tokens, and edge x leads from a position of level
x + 1 to a position of level x. The edges from a position to itself, one below the other, form its
*chain*. Edges into the sink's chain are *entry edges*, edges from level 1 to the sink are *last
edges*, and edges between two other positions are *hops* (see `greedy`).
"""

from __future__ import annotations

import math
from collections import namedtuple
from functools import lru_cache
from typing import Any, NamedTuple

import numba
import numpy as np
from numba.extending import intrinsic
from numpy.typing import NDArray

from attnflow.maxflow.jit import COMPILED, address, kernel, pointer_type

Memory = NDArray[np.float64]  # cells of 8 bytes; what they hold depends on the field
REAL, INTEGER, BITS = np.float64, np.int64, np.uint64
ROUNDS = 16  # of a search, whose nodes are listed one by one
BLOCK = 64  # edges of a row that waves handle together
SHALLOW = 8  # in causal graphs, flows from higher levels use large edges first, and no waves
RINGS = 32  # of nodes at the same distance, in a wave
CELLS_PER_LINE = 8  # a line of the processor's cache has 64 bytes


class Sizes(NamedTuple):
    """The sizes of a network, from which the shapes of all fields are made."""

    n: int  # positions of a level
    depth: int  # layers of edges
    n_levels: int  # levels of positions
    n_words: int  # 64-bit words of a set of positions
    width: int  # positions in these words
    shallow: int  # layers that shallow flows can use
    log_size: int  # pushes that the log of the greedy flow can hold
    changes_size: int  # edges with flow that can be listed, plus a count


def sizes_of(n: int, depth: int) -> Sizes:
    """Return the sizes of networks with `n` positions and `depth` layers."""
    # Through few layers of long texts, a position pushes over a share of its hops.
    log_size = max(16, n // 8) * n * depth + 1024
    n_words = (n + BLOCK - 1) // BLOCK
    shallow = min(depth, SHALLOW)
    return Sizes(n, depth, depth + 1, n_words, n_words * BLOCK, shallow, log_size, 2 * log_size)


class Field(NamedTuple):
    """An array in a block: its name, type of number, shape (sizes or numbers) and content."""

    name: str
    dtype: type[np.generic]
    shape: tuple[str | int, ...]
    content: str


class Plan(NamedTuple):
    """Where the fields of a block lie, for one size of network."""

    header: Memory  # integers: the sizes, then the first cell of each field
    cells: dict[str, slice]
    n_cells: int


class Layout:
    """Where the fields of a table lie in a block of memory.

    aligned: whether blocks begin at a new line of the processor's cache, as fields do in a block.
    zeros: whether they hold zeros at first. Large blocks of zeros cost nothing until they are used.
    record: what kernels see of a block: a named tuple of its sizes and a pointer to each field.
    """

    def __init__(self, name: str, fields: tuple[Field, ...], *, aligned: bool, zeros: bool) -> None:
        self.fields = fields
        self.aligned = aligned
        self.zeros = zeros
        self.dtypes = {field.name: field.dtype for field in fields}
        names = (*Sizes._fields, *(field.name for field in fields))
        self.record: Any = namedtuple(name, names, module=__name__)  # type: ignore[misc]
        self.plan = lru_cache(maxsize=16)(self._plan)

    def _plan(self, n: int, depth: int) -> Plan:
        """Arrange the fields one behind the other."""
        sizes = sizes_of(n, depth)
        end = len(sizes) + len(self.fields)
        cells = {}
        for field in self.fields:
            start = -(-end // CELLS_PER_LINE) * CELLS_PER_LINE  # the next multiple
            end = start + math.prod(_shape(field, sizes))
            cells[field.name] = slice(start, end)
        header = [*sizes, *(part.start for part in cells.values())]
        return Plan(np.asarray(header, np.int64).view(np.float64), cells, end)

    def allocate(self, n: int, depth: int) -> Memory:
        """Return a new block for networks of this size, with its header."""
        header, _, n_cells = self.plan(n, depth)
        size = n_cells + self.aligned * CELLS_PER_LINE
        block: Memory = np.zeros(size) if self.zeros else np.empty(size)
        if self.aligned:
            start = -(block.ctypes.data // block.itemsize) % CELLS_PER_LINE
            block = block[start : start + n_cells]
        block[: header.size] = header
        return block

    def array(self, block: Memory, name: str) -> NDArray[Any]:
        """Return a field as a flat array, which shares memory with the block."""
        n, depth = block[:2].view(np.int64).tolist()  # the first two of the sizes
        cells: NDArray[Any] = block[self.plan(n, depth).cells[name]]
        return cells.view(self.dtypes[name])

    def reader(self) -> Any:
        """Return the function that kernels call to get the record of a block."""
        return intrinsic(self._read) if COMPILED else self._read_in_python

    def _read(self, _typing_context: Any, block: Any) -> Any:
        """Generate code that reads the header of a block, an array or a pointer."""
        cell, n_sizes = numba.types.int64, len(Sizes._fields)
        sizes = [cell] * n_sizes
        pointers = [pointer_type(numba.from_dtype(np.dtype(field.dtype))) for field in self.fields]
        kinds = [*sizes, *pointers]
        result: Any = numba.types.NamedTuple(kinds, self.record)  # type: ignore[no-untyped-call]

        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            start = address(context, builder, signature.args[0], arguments[0])
            start = builder.bitcast(start, context.get_value_type(pointer_type(cell)))
            values = []
            for i, kind in enumerate(kinds):
                index = context.get_constant(numba.types.intp, i)
                value = builder.load(builder.gep(start, [index]))
                if i >= n_sizes:
                    place = builder.gep(start, [value])
                    value = builder.bitcast(place, context.get_value_type(kind))
                values.append(value)
            return context.make_tuple(builder, signature.return_type, values)

        return result(block), generate

    def _read_in_python(self, block: Memory) -> Any:
        """Replace the generated code when Numba's compiler is switched off."""
        sizes = block.view(np.int64)[: len(Sizes._fields)].tolist()
        fields = [self.array(block, field.name) for field in self.fields]
        return self.record(*sizes, *fields)


def _shape(field: Field, sizes: Sizes) -> tuple[int, ...]:
    return tuple(getattr(sizes, size) if isinstance(size, str) else size for size in field.shape)


TABLES_FIELDS = (
    Field("column", REAL, ("depth", "n", "n"), "[x, q, u]: capacity of edge x from u to q"),
    Field("chain", REAL, ("n", "depth"), "[u, x]: capacity of edge x from u to u"),
    # For a source at each level, over the edges between its own and the last edges:
    Field("chain_least", REAL, ("n_levels", "n"), "smallest capacity in each chain"),
    Field("off_chain", REAL, ("n_levels", "n"), "sum of the capacities that leave each chain"),
    Field("large", BITS, ("depth", "n", "n_words"), "[x, u]: where large edges lead, if causal"),
)

WORKSPACE_FIELDS = (
    # The greedy flow
    Field("demand", REAL, ("n",), "residual capacity of each last edge"),
    Field("source_flow", REAL, ("n",), "flow on each edge out of the source"),
    Field("chain_free", REAL, ("n",), "lower bound of each chain's residual capacity"),
    Field("entry", REAL, ("depth", "n"), "[x, u]: residual capacity of the entry edge x of u"),
    Field("chain_steps", REAL, ("depth", "n"), "[x, u]: flow on edge x of u's chain, less x + 1's"),
    Field("cursor_flow", REAL, ("n", "depth"), "flow on the edge at each cursor"),
    Field("stack_amounts", REAL, ("n_levels", 2), "per node on the stack: left, received"),
    Field("row_flow", REAL, ("depth", "n"), "[x, q]: flow from the source's own position by rows"),
    Field("entry_part", REAL, ("n",), "temporary: what each position sends over entry edges"),
    Field("last_part", REAL, ("n",), "temporary: what each position sends over its last edge"),
    Field("used_up", INTEGER, (2, "n"), "[:, u]: entry edges below this, and hops to levels below"),
    Field("order", INTEGER, ("n",), "positions in the order in which the source sends to them"),
    Field("cursor", INTEGER, ("n", "depth"), "[u, x]: which hop x of u may have capacity"),
    Field("stack", INTEGER, ("n_levels", 3), "per node on the stack: level, position, hop level"),
    Field("unblocked", BITS, ("n_levels", "n_words"), "positions that may still reach the sink"),
    Field("log_edge", INTEGER, ("log_size",), "the hop of each push, from `pack_edge`"),
    Field("log_amount", REAL, ("log_size",), "the amount of each push"),
    # Waves
    Field("trial", REAL, (5,), "whether the next sinks begin with waves, see `pair.solve_next`"),
    Field("surplus", REAL, ("shallow", "width"), "[level, u]: inflow less outflow of each node"),
    Field("nothing", REAL, ("width",), "zeros"),
    Field("room", REAL, (RINGS, "shallow", "width"), "what nodes at each distance can move"),
    Field("ring", BITS, (RINGS, "shallow", "n_words"), "nodes at each distance from a deficit"),
    Field("waiting", BITS, ("shallow", "n_words"), "nodes with surplus"),
    Field("kept", BITS, ("n_words",), "temporary: nodes of a ring that surplus passes"),
    Field("touched", BITS, ("shallow", "n_words"), "[x]: positions whose row_flows are in use"),
    Field("open_edges", BITS, ("shallow", "n", "n_words"), "[x, u]: where edges lead"),
    Field("ways", BITS, ("shallow", "n", "n_words"), "[x, u]: where unsaturated edges lead"),
    Field("carrying", BITS, ("shallow", "n", "n_words"), "[x, u]: where edges with flow lead"),
    Field("row_flows", REAL, ("shallow", "n", "width"), "[x, u, q]: flow on the rows in use"),
    # The search of the residual graph
    Field("unreached", BITS, ("n_levels", "n_words"), "positions the search has not reached"),
    Field("reached", BITS, (ROUNDS, "n_levels", "n_words"), "those of each round, less dead ends"),
    Field("latest", BITS, ("n_levels", "n_words"), "those of the latest round"),
    Field("back_steps", INTEGER, ("n_levels", "n"), "steps up on a shortest path to the sink"),
    Field("current_arc", INTEGER, ("n_levels", "n"), "which edge of each node to try next"),
    Field("path", INTEGER, ("n_levels", "n"), "nodes of the path, the source first"),
    Field("path_edge", INTEGER, ("n_levels", "n"), "edges of the path; ~edge to cancel its flow"),
    Field("left", REAL, ("n_levels", "n"), "what each node of the path can still push"),
    Field("changes", INTEGER, ("changes_size",), "number of changed edges, then which"),
    Field("inflow", BITS, ("depth", "n", "n_words"), "[x, q]: positions that send flow here"),
    Field(
        "unsaturated", BITS, ("depth", "n", "n_words"), "[x, q]: the sources of unsaturated edges"
    ),
    Field(
        "flow", REAL, ("depth", "n", "n"), "[x, u, q]: flow on edge x; zero but on changed edges"
    ),
)

# An aligned workspace saves 5% of the time. Tables are built in each call, where it costs more.
TABLES = Layout("Tables", TABLES_FIELDS, aligned=False, zeros=False)
WORKSPACE = Layout("Workspace", WORKSPACE_FIELDS, aligned=True, zeros=True)
tables_of, workspace_of = TABLES.reader(), WORKSPACE.reader()
Tables, Workspace = TABLES.record, WORKSPACE.record  # Numba's cache finds them by these names


@kernel
def pack_edge(x: int, u: int, q: int) -> int:
    """Return edge x from u to q as a single number, which needs no division to unpack."""
    return (x << 40) | (u << 20) | q


@kernel
def unpack_edge(code: int) -> tuple[int, int, int]:
    """Return x, u and q of a packed edge."""
    return code >> 40, (code >> 20) & 0xFFFFF, code & 0xFFFFF
