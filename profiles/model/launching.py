"""Recognise calls of CUDA and HIP: launches of kernels and graphs, captures into a graph, and waits for the GPU."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np
from numpy.typing import NDArray

from .names import fitting, rows_of

if TYPE_CHECKING:
    import pandas as pd

# Names such as cudaLaunchKernelExC_v11060, cuLaunchKernelEx, cudaLaunch, hipExtModuleLaunchKernel, hipLaunchByPtr.
KERNEL: Final = r"^(?:cu|cuda|hip)(?:Ext)?(?:Module)?Launch(?!HostFunc|Attribute)"
GRAPH: Final = r"^(?:cu|cuda|hip)GraphLaunch"
# Calls that return when the GPU has finished all launched work: of CUDA's runtime (cudaThreadSynchronize before CUDA
# 4), of its driver and of HIP, with any suffix (_v2, _ptsz, _spt, nsys's _v3020).
WHOLE_GPU: Final = r"^(?:cu|cuda|hip)(?:Device|Ctx|Thread)Synchronize"
# Calls in which the host waits for the GPU. cuEventQuery is none of them, since it returns at once.
SYNCHRONISING: Final = rf"{WHOLE_GPU}|^(?:cu|cuda|hip)(?:(?:Stream|Event)Synchronize|Memcpy(?!.*Async))"
# A thread's launches between these calls are captured into a graph, and do not run.
_BEGIN, _END = r"^(?:cu|cuda|hip)StreamBeginCapture", r"^(?:cu|cuda|hip)StreamEndCapture"


def named(table: pd.DataFrame, pattern: str) -> NDArray[np.bool_]:
    """True for each row whose name contains a match of the pattern."""
    names = table["name"].cat
    return rows_of(names.codes.to_numpy(), fitting(names.categories, pattern))


def captured(api: pd.DataFrame) -> NDArray[np.bool_]:
    """True for each call that its thread made while it captured a stream into a graph."""
    change = named(api, _BEGIN).astype(np.int64) - named(api, _END)
    found = np.zeros(len(api), bool)
    if not change.any():
        return found
    order = np.lexsort((api["start_ns"], api["tid"], api["pid"]))
    depth = np.cumsum(change[order])
    thread = threads(api)[order]
    first = np.flatnonzero(np.append(True, thread[1:] != thread[:-1]))
    before = np.append(0, depth)[first]
    found[order] = depth - np.repeat(before, np.diff(np.append(first, len(api)))) > 0
    return found


def capturing(api: pd.DataFrame, pid: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Start and end in ns of each capture of a stream into a graph by the process's threads."""
    mine = (api["pid"] == pid).to_numpy()
    begins, ends = np.flatnonzero(mine & named(api, _BEGIN)), np.flatnonzero(mine & named(api, _END))
    start, end, thread = (api[column].to_numpy() for column in ("start_ns", "end_ns", "tid"))
    found = []
    for one in np.unique(thread[begins]).tolist():
        over = np.sort(end[ends[thread[ends] == one]])
        begun = start[begins[thread[begins] == one]]
        last = np.searchsorted(over, begun)
        found.append(np.stack([begun[last < len(over)], over[last[last < len(over)]]]))
    times = np.concatenate([np.empty((2, 0), np.int64), *found], axis=1)
    return times[0], times[1]


def threads(table: pd.DataFrame) -> NDArray[np.int64]:
    """For each row, a number that stands for its (process, thread)."""
    thread: NDArray[np.int64] = (table["pid"].to_numpy().astype(np.int64) << 24) | table["tid"].to_numpy()
    return thread
