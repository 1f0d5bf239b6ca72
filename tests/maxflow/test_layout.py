"""The memory of the kernels: fields fill a block without gaps, and kernels find them."""

import math

import numpy as np
import pytest

from attnflow.maxflow.jit import kernel
from attnflow.maxflow.layout import (
    TABLES,
    WORKSPACE,
    Sizes,
    pack_edge,
    sizes_of,
    unpack_edge,
    workspace_of,
)

SIZES = [(1, 1), (5, 3), (64, 6), (65, 2)]


@pytest.mark.parametrize("layout", [TABLES, WORKSPACE])
@pytest.mark.parametrize(("n", "depth"), SIZES)
def test_fields_fill_a_block_without_gaps(layout, n, depth):
    sizes = sizes_of(n, depth)
    block = layout.allocate(n, depth)
    next_cell = len(sizes) + len(layout.fields)
    for field, offset in zip(
        layout.fields, layout.plan(n, depth).header[len(sizes) :], strict=True
    ):
        array = layout.array(block, field.name)
        shape = [getattr(sizes, size) if isinstance(size, str) else size for size in field.shape]
        assert offset == next_cell
        assert array.dtype == field.dtype
        assert array.size == math.prod(shape)
        assert np.shares_memory(array, block[offset : offset + 1])
        next_cell += array.size
    assert next_cell == block.size


@kernel
def write_through_pointers(memory):
    ws = workspace_of(memory)
    ws.demand[ws.n - 1] = 0.5
    ws.order[0] = ws.n_levels
    ws.unblocked[ws.n_words] = np.uint64(7)
    ws.residual[ws.depth * ws.n * ws.n - 1] = 2.5
    workspace_of(ws.block).changes[0] = ws.changes_size  # a block from a pointer to it


@pytest.mark.parametrize(("n", "depth"), SIZES)
def test_kernels_find_the_fields(n, depth):
    memory = WORKSPACE.allocate(n, depth)
    write_through_pointers(memory)
    sizes = sizes_of(n, depth)
    assert WORKSPACE.array(memory, "demand")[-1] == 0.5
    assert WORKSPACE.array(memory, "order")[0] == depth + 1
    assert WORKSPACE.array(memory, "unblocked")[sizes.n_words] == 7
    assert WORKSPACE.array(memory, "residual")[-1] == memory[-1] == 2.5
    assert WORKSPACE.array(memory, "changes")[0] == sizes.changes_size
    assert np.count_nonzero(memory) == np.count_nonzero(WORKSPACE.plan(n, depth).header) + 5


def test_every_field_says_what_it_holds_and_has_known_sizes():
    for field in (*TABLES.fields, *WORKSPACE.fields):
        assert field.content
        assert all(isinstance(size, int) or size in Sizes._fields for size in field.shape)


def test_edges_are_packed_without_loss():
    for edge in ((0, 0, 0), (5, 127, 3), (1000, 2**20 - 1, 2**20 - 1)):
        assert unpack_edge(pack_edge(*edge)) == edge
