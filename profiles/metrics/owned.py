"""Divide the ledger's compute and collective time among the single operations that owned the GPU."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from ..gpus.operations import COLLECTIVE, COMPUTE, Operations
from ..ground import intervals
from ..ledger import ownership as ledger
from ..ledger.window import Window
from ..model.analysed import Ownership
from ..model.measures import CLASSES

Int64s = NDArray[np.int64]
_BLOCK = 1 << 17  # operations processed at a time, so that they fit into the CPU's cache


def owned_ns(operations: Operations, ownership: Ownership, window: Window) -> Iterator[tuple[Int64s, Int64s]]:
    """Yields blocks of rows of compute and collective operations, with the ns of the window that each row owned.

    If several operations of one class run at once, the one that began first owns the time, so the sum equals the
    ledger's. Raises AssertionError if not."""
    exposed = ledger.owned_by(ownership, COLLECTIVE)
    reach = {COMPUTE: window.start_ns, COLLECTIVE: window.start_ns}
    total = 0
    for first in range(0, len(operations), _BLOCK):
        block = slice(first, first + _BLOCK)
        for kind in (COMPUTE, COLLECTIVE):
            rows = first + np.flatnonzero(operations.kind[block] == kind)
            if not len(rows):
                continue
            end = np.minimum(operations.end_ns[rows], window.end_ns)
            before = np.maximum.accumulate(np.append(reach[kind], end))
            reach[kind] = int(before[-1])
            start = np.maximum(operations.start_ns[rows], before[:-1])
            start = np.minimum(start, end)
            if kind == COMPUTE:  # no other class takes precedence over compute
                owned = end - start - intervals.total_in(window.breaks, start, end)
            else:
                owned = intervals.total_in(exposed, start, end)
            total += int(owned.sum())
            yield rows, owned
    expected = sum(ledger.totals(ownership)[CLASSES[kind]] for kind in (COMPUTE, COLLECTIVE))
    if total != expected:
        raise AssertionError(f"kernels own {total} ns of the window {window}, the ledger says {expected}")
