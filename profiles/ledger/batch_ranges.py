"""Find the copies that were launched in a `batch N` range.

A feed of the harness marks the copies of the batch that step N will use by a `batch N` range.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from ..gpus.operations import H2D, Gpu, Operations
from ..ground.groups import by_value, rows_by_value
from ..model.marks import BATCH, BATCH_PREFIX, DOMAIN
from ..model.names import rows_named
from ..model.timeline import Timeline

if TYPE_CHECKING:
    import pandas as pd

_NO_THREAD = -1
_FOREVER = np.iinfo(np.int64).max


def numbers(
    timelines: Sequence[Timeline], shift_ns: Sequence[int], gpu: Gpu, operations: Operations
) -> NDArray[np.int64] | None:
    """For each operation, the N of the `batch N` range in which it was launched: int64[n].

    -1 for operations other than copies from the host, and for copies launched outside these ranges. None if no
    copy was launched in such a range. The range must be of the copy's process and, where both threads are known,
    of the thread that made the launch call.
    """
    found = np.full(len(operations), -1, np.int64)
    origin = shift_ns[gpu.places[0][0]]
    for process, (recording, pid) in enumerate(gpu.processes):
        ranges = _ranges(timelines[recording], pid)
        if ranges is None:
            continue
        which = (operations.kind == H2D) & (operations.process == process) & operations.launched
        rows, copies = np.flatnonzero(which), operations.chosen(which)
        called = copies.call_start_ns - (shift_ns[recording] - origin)
        called_by = timelines[recording].api["tid"].to_numpy()[copies.call_row]
        copies_of = rows_by_value(called_by)
        for thread, places in by_value(ranges["tid"].to_numpy()):
            of_thread = ranges.iloc[places]
            start, end = of_thread["start_ns"].to_numpy(), of_thread["end_ns"].to_numpy()
            own = [copies_of[one] for one in (thread, _NO_THREAD)]
            mine = np.arange(len(called)) if thread == _NO_THREAD else np.concatenate(own)
            last = np.searchsorted(start, called[mine], side="right") - 1
            inside = (last >= 0) & (called[mine] < np.where(of_thread["open"], _FOREVER, end)[last])
            number = of_thread["name"].astype(str).str.removeprefix(BATCH_PREFIX).to_numpy(np.int64)
            found[rows[mine[inside]]] = number[last[inside]]
    return found if (found >= 0).any() else None


def _ranges(timeline: Timeline, pid: int) -> pd.DataFrame | None:
    """The process's `batch N` ranges in order of start; None if it has none."""
    marks = timeline.marks
    chosen = marks.iloc[rows_named(marks, BATCH, pid, whole=True)]
    chosen = chosen[(chosen["domain"] == DOMAIN).to_numpy()]
    return chosen.sort_values("start_ns", kind="stable") if len(chosen) else None
