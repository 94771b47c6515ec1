"""Find the time in which the running kernels have too few thread blocks for the GPU (docs/reference/measures.md,
"Kernels")."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from ..gpus.operations import COMPUTE, KERNELS, Gpu, Operations
from ..ground import intervals
from ..ledger.window import Window
from ..model.operations import Unfilled

Int64s = NDArray[np.int64]
_BLOCK = 1 << 17  # operations processed at a time, so that they fit into the CPU's cache
# Kernels that stay on the GPU until all work is done have one block per multiprocessor, or one per two, by design.
FEW = 0.5
_NAMED = 3


def measure(gpu: Gpu, window: Window) -> Unfilled | None:
    """The time of the window in which all running kernels together have fewer blocks than the share FEW of the GPU's
    multiprocessors. Work of unknown blocks counts as filling the GPU. None if the recording tells the blocks of no
    kernel, or not the number of multiprocessors."""
    most, operations = gpu.multiprocessors, gpu.operations
    if not most or not any(source.blocks_of.any() for source in operations.sources):
        return None
    few = int(np.ceil(FEW * most))  # the least number of blocks that is not too few
    ns_with = np.zeros(most + 1, np.int64)  # by the number of blocks that run at once
    ns_of = np.zeros(len(gpu.names), np.int64)
    for name, blocks, start, end, edges, running in _swept(operations, most):
        lasted = _within(window, edges[:-1], edges[1:])
        ns_with += intervals.summed(lasted, np.minimum(running[:-1], most), most + 1)
        few_ns = np.append(0, np.cumsum(np.where(running[:-1] < few, lasted, 0)))  # up to each edge
        small = blocks < few
        until_start, until_end = (few_ns[np.searchsorted(edges, at[small])] for at in (start, end))
        ns_of += intervals.summed(until_end - until_start, name[small], len(ns_of))
    lost_ns = sum(ns * (most - blocks) for blocks, ns in enumerate(ns_with.tolist()) if 0 < blocks < few) // most
    largest = np.argsort(-ns_of, kind="stable")[:_NAMED].tolist()
    kernels = [str(gpu.names[at]) for at in largest if ns_of[at]]
    return Unfilled(most, int(ns_with[1:few].sum()), lost_ns, kernels)


def _swept(operations: Operations, most: int) -> Iterator[tuple[Int64s, Int64s, Int64s, Int64s, Int64s, Int64s]]:
    """Yields pieces of time, one after another. First the operations that compute in the piece: the index of their
    names, their thread blocks (at most `most`), and their start and end within the piece in ns. Then the sum of the
    thread blocks that run at once: running[i] from edges[i] to edges[i + 1]."""
    rows = np.flatnonzero(operations.kind == COMPUTE)
    open_rows = open_blocks = np.empty(0, np.int64)
    since = int(operations.start_ns[rows[0]]) if len(rows) else 0  # before 0 if another recording began earlier
    for first in range(0, len(rows), _BLOCK):
        mine, following = rows[first : first + _BLOCK], rows[first + _BLOCK :][:1]
        blocks = np.full(len(mine), most)
        kernels = operations.table[mine] == KERNELS
        known = operations.blocks(mine[kernels])
        blocks[kernels] = np.where(known > 0, np.minimum(known, most), most)
        mine, blocks = np.append(open_rows, mine), np.append(open_blocks, blocks)
        start, end = np.maximum(operations.start_ns[mine], since), operations.end_ns[mine]
        since = int(operations.start_ns[following[0]]) if len(following) else int(end.max())
        lasts = end > since
        end = np.minimum(end, since)
        edges = np.append(start, end)
        order = np.argsort(edges, kind="stable")
        running = np.cumsum(np.append(blocks, -blocks)[order])
        yield operations.name[mine], blocks, start, end, edges[order], running
        open_rows, open_blocks = mine[lasts], blocks[lasts]


def _within(window: Window, start: Int64s, end: Int64s) -> Int64s:
    """ns of each piece [start, end) that lie in the window."""
    start, end = (np.clip(edge, window.start_ns, window.end_ns) for edge in (start, end))
    lasted: Int64s = end - start - intervals.total_in(window.breaks, start, end)
    return lasted
