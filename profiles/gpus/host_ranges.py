"""What the host did, for pictures: ranges, operators and CUDA calls of a GPU's processes, on the GPU's clock."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..analysed import HostRanges, HostThread
from ..measures import HOST
from ..timeline import Timeline
from .operations import Gpu

_TABLES = {"host_range": "marks", "host_operator": "operators", "host_call": "api"}


def of(timelines: Sequence[Timeline], shift_ns: Sequence[int], gpu: Gpu) -> HostRanges:
    """All with a length, in order of start; of those that begin together the longest comes first."""
    names: dict[str, int] = {}
    threads: dict[HostThread, int] = {}
    columns: list[tuple[np.ndarray, ...]] = [tuple(np.empty(0, np.int64) for _ in range(5))]
    origin = shift_ns[gpu.places[0][0]]
    for index, pid in gpu.processes:
        for kind, name in enumerate(HOST):
            table = getattr(timelines[index], _TABLES[name])
            start, end, tid = (table[column].to_numpy() for column in ("start_ns", "end_ns", "tid"))
            rows = np.flatnonzero((table["pid"].to_numpy() == pid) & (end > start))
            texts = table["name"].cat
            place = np.array([names.setdefault(str(one), len(names)) for one in texts.categories] + [-1])
            owners, which = np.unique(tid[rows], return_inverse=True)
            number = np.array(
                [threads.setdefault(HostThread(index, pid, one), len(threads)) for one in owners.tolist()]
            )
            shift = shift_ns[index] - origin
            columns.append(
                (
                    start[rows] + shift,
                    end[rows] + shift,
                    np.full(len(rows), kind),
                    place[texts.codes.to_numpy()[rows]],
                    number[which] if len(rows) else rows,
                )
            )
    start, end, kind_of, name_of, thread = (np.concatenate(column) for column in zip(*columns, strict=True))
    order = np.lexsort((-end, start))
    return HostRanges(
        start_ns=start[order],
        end_ns=end[order],
        kind=kind_of[order].astype(np.int8),
        name=name_of[order].astype(np.int32),
        thread=thread[order].astype(np.int32),
        names=[*names, ""],
        threads=tuple(threads),
    )
