"""Part the ledger's compute and collective among the operations of each class, by which of them owned the GPU."""

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
_BLOCK = 1 << 17  # operations looked at together: what a cache holds


def owned_ns(operations: Operations, ownership: Ownership, window: Window) -> Iterator[tuple[Int64s, Int64s]]:
    """Block by block the rows of kernels and CUDA graphs, and the ns of the window that each owned.

    Of operations of one class that run at once the one that began first owns the time; so they add up to the ledger.
    Raises AssertionError where they do not.
    """
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
            if kind == COMPUTE:  # nothing comes before it
                owned = end - start - intervals.total_in(window.breaks, start, end)
            else:
                owned = intervals.total_in(exposed, start, end)
            total += int(owned.sum())
            yield rows, owned
    expected = sum(ledger.totals(ownership)[CLASSES[kind]] for kind in (COMPUTE, COLLECTIVE))
    if total != expected:
        raise AssertionError(f"kernels own {total} ns of the window {window}, the ledger says {expected}")
