"""Find when a rank enqueued each collective (docs/reference/measures.md, "Waiting for other ranks").

A collective is enqueued at the start of Horovod's range, which begins with the enqueueing of the tensor. Without
that range, the start of XLA's call of the exchange counts, else the start of NCCL's range around its enqueueing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np
from numpy.typing import NDArray

from ..gpus.operations import Gpu, Operations
from ..ground.groups import by_value
from ..model.names import rows_named
from ..model.timeline import Timeline

if TYPE_CHECKING:
    import pandas as pd

Int64s = NDArray[np.int64]
SOURCES: Final = 3
# The source of a time of enqueueing: none; the range of a call of XLA or NCCL; a range of Horovod, which negotiates.
UNKNOWN, BY_CALL, BY_HOROVOD = range(SOURCES)
FOREVER: Final = np.iinfo(np.int64).max  # in place of a time that is not known

# Names of XLA's operations for an exchange: XLA's own collectives, or calls of a library such as Horovod.
_OF_XLA: Final = r"^Thunk:.*(?:all-?reduce|reduce-?scatter|all-?gather|all-?to-?all|collective|custom-call)"


@dataclass(frozen=True, slots=True)
class HandedOver:
    """For each collective: when this rank enqueued it, int64[n] ns (FOREVER: not known), and the time's source."""

    at_ns: Int64s
    source: NDArray[np.int8]

    def at(self, rows: NDArray[np.signedinteger] | NDArray[np.bool_]) -> HandedOver:
        return HandedOver(self.at_ns[rows], self.source[rows])


def handed_over(
    timelines: Sequence[Timeline], shift_ns: Sequence[int], gpu: Gpu, collectives: Operations
) -> HandedOver:
    """Find when each of these collectives of the GPU was enqueued, in ns on the GPU's clock. If several ranges contain
    a launch call, the range that begins last counts."""
    found = HandedOver(np.full(len(collectives), FOREVER), np.full(len(collectives), UNKNOWN, np.int8))
    origin = shift_ns[gpu.places[0][0]]
    for process, (recording, pid) in enumerate(gpu.processes):
        rows = np.flatnonzero((collectives.process == process) & collectives.launched)
        if not len(rows) or process in gpu.off_clock:
            continue
        timeline, shift = timelines[recording], shift_ns[recording] - origin
        mine = collectives.at(rows)
        called = mine.call_start_ns - shift
        threads = timeline.api["tid"].to_numpy()[mine.call_row]
        for source, begun in (
            (BY_HOROVOD, _begun(_of_library(timeline, pid, "Horovod"), called)),
            (BY_CALL, _begun(_of_xla(timeline, pid), called)),
            (BY_CALL, _begun_on_thread(_of_library(timeline, pid, "NCCL"), called, threads)),
        ):
            told = (begun != FOREVER) & (found.source[rows] == UNKNOWN)
            found.at_ns[rows[told]], found.source[rows[told]] = begun[told] + shift, source
    return found


def _of_library(timeline: Timeline, pid: int, library: str) -> pd.DataFrame:
    told = timeline.exchanges
    if not len(told):
        return told
    told = told[(told["pid"] == pid).to_numpy() & (told["library"] == library).to_numpy()]
    return told.sort_values("start_ns", kind="stable")


def _of_xla(timeline: Timeline, pid: int) -> pd.DataFrame:
    return timeline.marks.iloc[rows_named(timeline.marks, _OF_XLA, pid)].sort_values("start_ns", kind="stable")


def _begun(told: pd.DataFrame, called: Int64s) -> Int64s:
    """Start of the last range that begins before each call, in ns; FOREVER where that range ends before the call."""
    last = last_open(told, called)
    return np.where(last >= 0, np.append(told["start_ns"].to_numpy(), FOREVER)[last], FOREVER)


def _begun_on_thread(told: pd.DataFrame, called: Int64s, threads: NDArray[np.signedinteger]) -> Int64s:
    """As `_begun`, but a call is compared only with the ranges of the call's thread."""
    found = np.full(len(called), FOREVER)
    told_by = dict(by_value(told["tid"].to_numpy())) if len(told) else {}
    for thread, mine in by_value(threads):
        if thread in told_by:
            found[mine] = _begun(told.iloc[told_by[thread]], called[mine])
    return found


def last_open(told: pd.DataFrame, called: Int64s) -> NDArray[np.intp]:
    """Index of the last range (by start) that begins before each call; -1 where that range ends before the call."""
    start, end = spans(told)
    last = np.searchsorted(start, called, side="right") - 1
    # Where no range has begun, `last` is -1 and takes the appended 0 for its end: the call counts as outside.
    return np.where((last >= 0) & (called < np.append(end, 0)[last]), last, -1)


def spans(told: pd.DataFrame) -> tuple[Int64s, Int64s]:
    """Start and end of each range, in ns; a range whose end was not recorded ends at FOREVER."""
    return told["start_ns"].to_numpy(), np.where(told["open"], FOREVER, told["end_ns"])
