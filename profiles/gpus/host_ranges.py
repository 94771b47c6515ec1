"""Host ranges, operators and CUDA calls of a GPU's processes, on the GPU's clock, for pictures."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..ground.groups import by_value
from ..model.analysed import HostRanges, HostThread
from ..model.measures import HOST
from ..model.timeline import Timeline
from .operations import Gpu

_TABLES = {"host_range": "marks", "host_operator": "operators", "host_call": "api"}


class OfGpus:
    """Makes the HostRanges of GPUs, one for all GPUs of the same processes, since they are large."""

    def __init__(self, timelines: Sequence[Timeline], shift_ns: Sequence[int]) -> None:
        self._timelines, self._shift_ns = timelines, shift_ns
        self._made: dict[tuple[object, ...], HostRanges] = {}
        self._lock = threading.Lock()

    def of(self, gpu: Gpu) -> HostRanges:
        key = (gpu.processes, self._shift_ns[gpu.places[0][0]])
        with self._lock:
            if key not in self._made:
                self._made[key] = of(self._timelines, self._shift_ns, gpu)
            return self._made[key]


_COLUMNS = {"start_ns": np.int64, "end_ns": np.int64, "kind": np.int8, "name": np.int32, "thread": np.int32}


def of(timelines: Sequence[Timeline], shift_ns: Sequence[int], gpu: Gpu) -> HostRanges:
    """All host ranges of the GPU's processes that last longer than 0 ns, by start; of equal starts the longest
    first."""
    names: dict[str, int] = {}
    threads: dict[HostThread, int] = {}
    parts: dict[str, list[np.ndarray]] = {name: [np.empty(0, kind)] for name, kind in _COLUMNS.items()}
    origin = shift_ns[gpu.places[0][0]]
    for index, pid in gpu.processes:
        for kind, name in enumerate(HOST):
            table = getattr(timelines[index], _TABLES[name])
            start, end, tid = (table[column].to_numpy() for column in ("start_ns", "end_ns", "tid"))
            rows = np.flatnonzero((table["pid"].to_numpy() == pid) & (end > start)).astype(np.int32)
            texts = table["name"].cat
            place = np.array([names.setdefault(str(one), len(names)) for one in texts.categories] + [-1], np.int32)
            shift = shift_ns[index] - origin
            parts["start_ns"].append(start[rows] + shift)
            parts["end_ns"].append(end[rows] + shift)
            parts["kind"].append(np.full(len(rows), kind, np.int8))
            parts["name"].append(place[texts.codes.to_numpy()[rows]])
            parts["thread"].append(_numbered(tid[rows], index, pid, threads))
    # Build one column at a time to save memory, as each may have millions of rows.
    start, end = (np.concatenate(parts.pop(name)) for name in ("start_ns", "end_ns"))
    order = _by_start(start, end)
    start, end = start[order], end[order]
    kind_of, name_of, thread = (np.concatenate(parts.pop(name))[order] for name in ("kind", "name", "thread"))
    return HostRanges(start, end, kind_of, name_of, thread, names=[*names, ""], threads=tuple(threads))


def _numbered(
    tid: NDArray[np.signedinteger[Any]], index: int, pid: int, threads: dict[HostThread, int]
) -> NDArray[np.int32]:
    """The number of each row's thread in `threads`, to which new threads are added."""
    found = np.empty(len(tid), np.int32)
    for one, rows in by_value(tid):
        found[rows] = threads.setdefault(HostThread(index, pid, one), len(threads))
    return found


def _by_start(start: NDArray[np.int64], end: NDArray[np.int64]) -> NDArray[np.signedinteger[Any]]:
    """Indices sorted by start, then the longest first. Tables are mostly sorted, so a stable sort by start is
    fastest."""
    order = np.argsort(start, kind="stable").astype(np.int32)
    begins = start[order]
    together = begins[1:] == begins[:-1]
    del begins  # it takes as much memory as a column
    ends = end[order]
    if (ends[1:] > ends[:-1])[together].any():
        return np.lexsort((-end, start))
    return order
