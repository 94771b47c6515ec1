"""When a rank handed its part of a collective over (docs/reference/measures.md, "Waiting for other ranks").

By the ranges of Horovod, which begin with a tensor's enqueueing; else by XLA's call of the exchange; else by NCCL's
range around its enqueueing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np
from numpy.typing import NDArray

from ..gpus.operations import Gpu, Operations, distinct
from ..model.names import fitting, rows_of
from ..model.timeline import Timeline

if TYPE_CHECKING:
    import pandas as pd

Int64s = NDArray[np.int64]
SOURCES: Final = 3
UNKNOWN, BY_CALL, BY_HOROVOD = range(
    SOURCES
)  # who says when it was handed over: nobody; the call; Horovod, which negotiates
FOREVER: Final = np.iinfo(np.int64).max  # when what is not known to have been handed over was
# What XLA runs for an exchange: a collective of its own, or a call of a library's such as Horovod's.
_OF_XLA: Final = r"^Thunk:.*(?:all-?reduce|reduce-?scatter|all-?gather|all-?to-?all|collective|custom-call)"


@dataclass(frozen=True, slots=True)
class HandedOver:
    """Per collective when this rank had handed its part over, int64[n] ns, FOREVER where nobody says, and who says."""

    at_ns: Int64s
    source: NDArray[np.int8]

    def at(self, rows: NDArray[np.signedinteger] | NDArray[np.bool_]) -> HandedOver:
        return HandedOver(self.at_ns[rows], self.source[rows])


def handed_over(
    timelines: Sequence[Timeline], shift_ns: Sequence[int], gpu: Gpu, collectives: Operations
) -> HandedOver:
    """When these collectives of the GPU were handed over, on its clock. If several ranges hold a launch call, the last
    one begun counts."""
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
    told = told[(told["pid"] == pid).to_numpy() & (told["library"] == library).to_numpy()]
    return told.sort_values("start_ns", kind="stable")


def _of_xla(timeline: Timeline, pid: int) -> pd.DataFrame:
    marks = timeline.marks
    names = marks["name"].cat
    fits = fitting(names.categories, _OF_XLA)
    if not fits.any():
        return marks[:0]
    told = marks[rows_of(names.codes.to_numpy(), fits) & (marks["pid"] == pid).to_numpy()]
    return told.sort_values("start_ns", kind="stable")


def _begun(told: pd.DataFrame, called: Int64s) -> Int64s:
    """When the last of these ranges that began before each call did, if it lasts until then; else FOREVER."""
    last = last_open(told, called)
    return np.where(last >= 0, np.append(told["start_ns"].to_numpy(), FOREVER)[last], FOREVER)


def _begun_on_thread(told: pd.DataFrame, called: Int64s, threads: NDArray[np.signedinteger]) -> Int64s:
    """The same among the ranges of each call's own thread."""
    found = np.full(len(called), FOREVER)
    for thread in distinct(threads).tolist() if len(told) else ():
        mine = threads == thread
        found[mine] = _begun(told[(told["tid"] == thread).to_numpy()], called[mine])
    return found


def last_open(told: pd.DataFrame, called: Int64s) -> NDArray[np.intp]:
    """For each call, the index of the last range, in order of start, that began before it, if it lasts until then; else
    -1."""
    start, end = spans(told)
    last = np.searchsorted(start, called, side="right") - 1
    # With none begun the place is the last one's, which does not count.
    return np.where((last >= 0) & (called < np.append(end, 0)[last]), last, -1)


def spans(told: pd.DataFrame) -> tuple[Int64s, Int64s]:
    """Start and end of each range; one that the recording saw no end of lasts for ever."""
    return told["start_ns"].to_numpy(), np.where(told["open"], FOREVER, told["end_ns"])
