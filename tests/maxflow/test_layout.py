"""The memory of the kernels: fields fill a block without gaps, and kernels find them."""

import math

import numpy as np
import pytest

from attnflow.maxflow.jit import kernel, pointer
from attnflow.maxflow.layout import (
    CELLS_PER_LINE,
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
def test_fields_follow_each_other_at_new_cache_lines(layout, n, depth):
    sizes = sizes_of(n, depth)
    block = layout.allocate(n, depth)
    end = len(sizes) + len(layout.fields)
    offsets = block.view(np.int64)[len(sizes) : end].tolist()
    for field, offset in zip(layout.fields, offsets, strict=True):
        array = layout.array(block, field.name)
        shape = [getattr(sizes, size) if isinstance(size, str) else size for size in field.shape]
        assert end <= offset < end + CELLS_PER_LINE
        assert offset % CELLS_PER_LINE == 0
        assert array.dtype == field.dtype
        assert array.size == math.prod(shape)
        assert np.shares_memory(array, block[offset : offset + 1])
        end = offset + array.size
    assert end == block.size


def test_workspaces_begin_at_a_cache_line():
    for n in range(1, 20):
        assert WORKSPACE.allocate(n, 3).ctypes.data % (8 * CELLS_PER_LINE) == 0


@kernel
def write_through_pointers(memory):
    ws = workspace_of(memory)
    ws.demand[ws.n - 1] = 0.5
    ws.order[0] = ws.n_levels
    ws.unblocked[ws.n_words] = np.uint64(7)
    ws.flow[ws.depth * ws.n * ws.n - 1] = 2.5
    workspace_of(pointer(memory, 0)).changes[0] = ws.changes_size


@pytest.mark.parametrize(("n", "depth"), SIZES)
def test_kernels_find_the_fields(n, depth):
    memory = WORKSPACE.allocate(n, depth)
    write_through_pointers(memory)
    sizes = sizes_of(n, depth)
    assert WORKSPACE.array(memory, "demand")[-1] == 0.5
    assert WORKSPACE.array(memory, "order")[0] == depth + 1
    assert WORKSPACE.array(memory, "unblocked")[sizes.n_words] == 7
    assert WORKSPACE.array(memory, "flow")[-1] == memory[-1] == 2.5
    assert WORKSPACE.array(memory, "changes")[0] == sizes.changes_size


def test_every_field_says_what_it_holds_and_has_known_sizes():
    for field in (*TABLES.fields, *WORKSPACE.fields):
        assert field.content
        assert all(isinstance(size, int) or size in Sizes._fields for size in field.shape)


def test_edges_are_packed_without_loss():
    for edge in ((0, 0, 0), (5, 127, 3), (1000, 2**20 - 1, 2**20 - 1)):
        assert unpack_edge(pack_edge(*edge)) == edge
