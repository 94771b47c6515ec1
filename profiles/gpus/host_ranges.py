"""What the host did, for pictures: ranges, operators and CUDA calls of a GPU's processes, on the GPU's clock."""

from __future__ import annotations

import threading
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from ..analysed import HostRanges, HostThread
from ..measures import HOST
from ..timeline import Timeline
from .operations import Gpu

_TABLES = {"host_range": "marks", "host_operator": "operators", "host_call": "api"}


class OfGpus:
    """What `of` tells of each GPU of some recordings, made once for GPUs of the same processes: it is large."""

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


def of(timelines: Sequence[Timeline], shift_ns: Sequence[int], gpu: Gpu) -> HostRanges:
    """All with a length, in order of start; of those that begin together the longest comes first."""
    names: dict[str, int] = {}
    threads: dict[HostThread, int] = {}
    kinds = (np.int64, np.int64, np.int8, np.int32, np.int32)
    columns: list[tuple[np.ndarray, ...]] = [tuple(np.empty(0, kind) for kind in kinds)]
    origin = shift_ns[gpu.places[0][0]]
    for index, pid in gpu.processes:
        for kind, name in enumerate(HOST):
            table = getattr(timelines[index], _TABLES[name])
            start, end, tid = (table[column].to_numpy() for column in ("start_ns", "end_ns", "tid"))
            rows = np.flatnonzero((table["pid"].to_numpy() == pid) & (end > start))
            texts = table["name"].cat
            place = np.array([names.setdefault(str(one), len(names)) for one in texts.categories] + [-1], np.int32)
            owners, which = np.unique(tid[rows], return_inverse=True)
            numbers = [threads.setdefault(HostThread(index, pid, one), len(threads)) for one in owners.tolist()]
            shift = shift_ns[index] - origin
            columns.append(
                (
                    start[rows] + shift,
                    end[rows] + shift,
                    np.full(len(rows), kind, np.int8),
                    place[texts.codes.to_numpy()[rows]],
                    np.array(numbers, np.int32)[which],
                )
            )
    # Column after column: each may have millions of rows.
    start, end, *others = (np.concatenate(column) for column in zip(*columns, strict=True))
    del columns
    order = _by_start(start, end)
    start, end = start[order], end[order]
    kind_of, name_of, thread = (column[order] for column in others)
    return HostRanges(start, end, kind_of, name_of, thread, names=[*names, ""], threads=tuple(threads))


def _by_start(start: NDArray[np.int64], end: NDArray[np.int64]) -> NDArray[np.int64]:
    """By start, then the longest first. Tables are mostly in order: a stable sort of runs is the quickest."""
    order = np.argsort(start, kind="stable")
    ends = end[order]
    if (np.diff(start[order]) == 0)[ends[1:] > ends[:-1]].any():
        return np.lexsort((-end, start))
    return order
