"""Batch gaps in which the host launches the step only after a small copy
(docs/reference/measures.md, "Batch gap, feed gap")."""

from __future__ import annotations

import numpy as np

from ..gpus.operations import H2D
from ..ledger import ownership
from ..ledger.account import Account
from ..model.measures import OWNERS
from ..steps.found import FoundSteps
from .copies import SMALL_BYTES

# A copy that starts within this time after the GPU ran dry had waited for the kernels before it on the compute stream.
AT_ONCE_NS = 50_000


def held_launches(books: Account, steps: FoundSteps) -> dict[str, int] | None:
    """Count batch gaps in which a small copy delays the launch of the step.

    None if no batch gap of a measured step lies in the window, or launch idle is not known. `gaps`: all batch gaps in
    the window; `count`: gaps with a small copy to the GPU that belongs to no batch by the `batch N` ranges, began
    within 50 us after the GPU ran dry, and ended before the step's first launch call began; `idle_launch_ns`: launch
    idle after these copies; `bytes`: their median size."""
    before, start = steps.prev_last_kernel_end_ns, steps.start_ns
    inside = (before != -1) & (before >= books.window.start_ns) & (before < start)
    if not inside.any() or books.ledger_ns["idle_launch"] is None:
        return None
    before, start = before[inside], start[inside]
    operations = books.operations
    rows = np.flatnonzero(operations.kind == H2D)
    if books.batch is not None:
        rows = rows[books.batch[rows] < 0]
    dry = np.maximum.accumulate(operations.end_ns)[np.maximum(rows - 1, 0)]
    rows = rows[(operations.start_ns[rows] - dry <= AT_ONCE_NS) | (rows == 0)]
    small = operations.at(rows)
    small = small.chosen(small.bytes < SMALL_BYTES)
    kernels = np.flatnonzero(operations.is_kernel)
    if not len(small):
        return {"gaps": len(start), "count": 0, "idle_launch_ns": 0, "bytes": 0}
    copy = np.searchsorted(small.start_ns, before, side="left")
    first = np.searchsorted(operations.start_ns[kernels], start, side="left")
    launch = operations.at(kernels[np.minimum(first, len(kernels) - 1)])
    held = copy < len(small)
    copy = np.minimum(copy, len(small) - 1)
    held &= launch.launched & (small.end_ns[copy] <= np.minimum(launch.call_start_ns, start - 1))
    last = np.searchsorted(books.ownership.start_ns, start - 1, side="right") - 1
    held &= books.ownership.owner[last] == OWNERS.index("idle_launch")
    copy, start = copy[held], start[held]
    split = ownership.per_bin(books.ownership, small.end_ns[copy], start)
    return {
        "gaps": len(before),
        "count": len(start),
        "idle_launch_ns": int(split["idle_launch"].sum()),
        "bytes": int(np.sort(small.bytes[copy])[len(copy) // 2]) if len(copy) else 0,
    }
