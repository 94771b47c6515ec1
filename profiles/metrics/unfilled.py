"""Find the time in which the running kernels have too few thread blocks for the GPU (docs/reference/measures.md,
"Kernels")."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from ..gpus.operations import COMPUTE, TABLES, Gpu, Operations
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
    for rows, blocks, edges, running in _swept(operations, most):
        lasted = _within(window, edges[:-1], edges[1:])
        ns_with += intervals.summed(lasted, np.minimum(running[:-1], most), most + 1)
        rows = rows[blocks < few]
        lasted = _within(window, operations.start_ns[rows], operations.end_ns[rows])
        ns_of += intervals.summed(lasted, operations.name[rows], len(ns_of))
    lost_ns = sum(ns * (most - blocks) for blocks, ns in enumerate(ns_with.tolist()) if 0 < blocks < few) // most
    largest = np.argsort(-ns_of, kind="stable")[:_NAMED].tolist()
    kernels = [str(gpu.names[at]) for at in largest if ns_of[at]]
    return Unfilled(most, int(ns_with[1:few].sum()), lost_ns, kernels)


def _swept(operations: Operations, most: int) -> Iterator[tuple[Int64s, Int64s, Int64s, Int64s]]:
    """Yields blocks of operations that compute: their rows, their thread blocks (at most `most`), and the sum of the
    thread blocks that run at once: running[i] from edges[i] to edges[i + 1]."""
    rows = np.flatnonzero(operations.kind == COMPUTE)
    open_end = open_blocks = np.empty(0, np.int64)
    since = 0
    for first in range(0, len(rows), _BLOCK):
        mine, following = rows[first : first + _BLOCK], rows[first + _BLOCK :][:1]
        start, end = operations.start_ns[mine], operations.end_ns[mine]
        blocks = np.full(len(mine), most)
        kernels = operations.table[mine] == TABLES.index("kernels")
        known = operations.blocks(mine[kernels])
        blocks[kernels] = np.where(known > 0, np.minimum(known, most), most)
        start = np.append(np.full(len(open_end), since), start)
        end, height = np.append(open_end, end), np.append(open_blocks, blocks)
        since = int(operations.start_ns[following[0]]) if len(following) else int(end.max())
        edges = np.append(start, np.minimum(end, since))
        order = np.argsort(edges, kind="stable")
        yield mine, blocks, edges[order], np.cumsum(np.append(height, -height)[order])
        open_end, open_blocks = end[end > since], height[end > since]


def _within(window: Window, start: Int64s, end: Int64s) -> Int64s:
    """ns of each piece [start, end) that lie in the window."""
    start, end = (np.clip(edge, window.start_ns, window.end_ns) for edge in (start, end))
    lasted: Int64s = end - start - intervals.total_in(window.breaks, start, end)
    return lasted
