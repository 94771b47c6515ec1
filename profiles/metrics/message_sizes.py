"""Bytes of each collective of a GPU, from ranges of NCCL or Horovod (docs/reference/measures.md, "Bytes")."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from ..gpus.collective_kernels import KINDS, kind_of
from ..gpus.operations import Gpu, Operations
from ..ground.groups import by_value, rows_by_value
from ..ledger.enqueued import FOREVER, last_open, spans
from ..model.timeline import Timeline

if TYPE_CHECKING:
    import pandas as pd

Int64s = NDArray[np.int64]

UNKNOWN = -1
_ALL_REDUCE = list(KINDS).index("all_reduce")
_NO_THREAD = -1


@dataclass(frozen=True, slots=True)
class Moved:
    """Per collective its bytes, its kind (an index into KINDS), UNKNOWN (-1) if not known, and the names of its
    communicator and data type, "" if not known."""

    bytes: Int64s
    kind: NDArray[np.int8]
    communicator: NDArray[np.object_]
    dtype: NDArray[np.object_]

    @property
    def all_reduce(self) -> NDArray[np.bool_]:
        found: NDArray[np.bool_] = self.kind == _ALL_REDUCE
        return found

    def at(self, rows: NDArray[np.signedinteger]) -> Moved:
        return Moved(*(getattr(self, name)[rows] for name in self.__slots__))

    def put(self, rows: NDArray[np.signedinteger], told: Moved) -> None:
        for name in self.__slots__:
            getattr(self, name)[rows] = getattr(told, name)


def _unknown(count: int) -> Moved:
    kinds = np.full(count, UNKNOWN, np.int8)
    return Moved(np.full(count, UNKNOWN), kinds, np.full(count, "", object), np.full(count, "", object))


def moved(timelines: Sequence[Timeline], shift_ns: Sequence[int], gpu: Gpu, collectives: Operations) -> Moved:
    """The sizes of these operations of the GPU, from ranges in the recordings.

    NCCL's ranges surround the call that launched the kernel. They hold the bytes really sent, so they are used unless
    they cover fewer kernels than Horovod's ranges. Horovod's ranges last from a tensor's enqueueing to its completion,
    so a kernel that sends several tensors lies in the ranges of all these tensors. A range that contains several
    launches counts for the last one: the bytes of a step are then right, although those of a single kernel in it may
    not be."""
    found = _unknown(len(collectives))
    origin = shift_ns[gpu.places[0][0]]
    for process, (recording, pid) in enumerate(gpu.processes):
        told = timelines[recording].exchanges
        told = told[(told["pid"] == pid).to_numpy()]
        rows = np.flatnonzero((collectives.process == process) & collectives.launched)
        if not len(told) or not len(rows):
            continue
        mine = collectives.at(rows)
        called = mine.call_start_ns - (shift_ns[recording] - origin)
        called_by = timelines[recording].api["tid"].to_numpy()[mine.call_row]
        by_call = _around(told[(told["library"] == "NCCL").to_numpy()], called, called_by)
        by_tensor = _until_done(told[(told["library"] == "Horovod").to_numpy()], called)
        exact = (by_call.bytes >= 0).sum() >= (by_tensor.bytes >= 0).sum()
        found.put(rows, by_call if exact else by_tensor)
        found.communicator[rows], found.dtype[rows] = by_call.communicator, by_call.dtype
    return found


def _around(told: pd.DataFrame, called: Int64s, called_by: Int64s) -> Moved:
    """Sizes from the range that is open on the launching thread at the call; if several are open, the one that began
    last."""
    found = _unknown(len(called))
    told_by = rows_by_value(told["tid"].to_numpy())
    for thread, mine in by_value(called_by):
        own = [told_by[one] for one in (thread, _NO_THREAD)]
        ranges = told if thread == _NO_THREAD else told.iloc[np.sort(np.concatenate(own))]
        ranges = ranges.sort_values("start_ns", kind="stable")
        last = last_open(ranges, called[mine])
        inside = np.flatnonzero(last >= 0)
        columns = (ranges[name].astype(object).to_numpy() for name in ("communicator", "dtype"))
        each = Moved(ranges["bytes"].to_numpy(), _kinds(ranges), *columns)
        found.put(mine[inside], each.at(last[inside]))
    return found


def _until_done(told: pd.DataFrame, called: Int64s) -> Moved:
    """Sizes from the ranges that contain the launch call. UNKNOWN for calls in a range without an end, since its bytes
    may belong to later calls."""
    order = np.argsort(called, kind="stable")
    launch = called[order]
    start, end = spans(told)
    first, after = np.searchsorted(launch, start, side="left"), np.searchsorted(launch, end, side="left")
    holds = after > first
    total = np.zeros(len(launch), np.int64)
    closed = holds & (end != FOREVER)
    np.add.at(total, after[closed] - 1, told["bytes"].to_numpy()[closed])
    known = _covered(first[closed], after[closed], len(launch))
    known &= ~_covered(first[holds & ~closed], after[holds & ~closed], len(launch))
    other = holds & (_kinds(told) != _ALL_REDUCE)
    reduces = known & ~_covered(first[other], after[other], len(launch))
    found = _unknown(len(called))
    found.bytes[order] = np.where(known, total, UNKNOWN)
    found.kind[order] = np.where(reduces, _ALL_REDUCE, UNKNOWN)
    return found


def _kinds(told: pd.DataFrame) -> NDArray[np.int8]:
    """The kind of collective, an index into KINDS, that each range's name shows."""
    if not len(told):
        return np.zeros(0, np.int8)
    found: NDArray[np.int8] = kind_of(told["name"].cat.categories)[told["name"].cat.codes.to_numpy()]
    return found


def _covered(first: NDArray[np.intp], after: NDArray[np.intp], count: int) -> NDArray[np.bool_]:
    """bool[count]: True for each index that lies in one of the ranges [first[i], after[i])."""
    change = np.zeros(count + 1, np.int64)
    np.add.at(change, first, 1)
    np.add.at(change, after, -1)
    covered: NDArray[np.bool_] = np.cumsum(change[:-1]) > 0
    return covered
