"""Launches without an operation in the recording: the profiler lost it, or the kernel only went into a graph."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import astuple

import numpy as np
from numpy.typing import NDArray

from ..model import launching
from ..model.measures import Launches
from ..model.timeline import Timeline
from .launch_calls import LaunchCalls
from .operations import distinct

# What is launched while the GPU is still busy may lie in its queue when the recording ends; and what is launched in the
# last moment, on its way there.
_ON_ITS_WAY_NS = 1_000_000


def together(each: Sequence[Launches]) -> Launches:
    """Of several processes."""
    return Launches(*map(sum, zip(*map(astuple, each), strict=True))) if each else Launches()


def of_processes(timeline: Timeline, launching_rows: Mapping[str, NDArray[np.int32]]) -> dict[int, Launches]:
    """By process; none where it cannot be known. `launching_rows`: by table of operations each one's row of
    `api`, -1: none."""
    if "api" not in timeline.known or not len(timeline.api):
        return {}
    calls = _Calls(timeline, launching_rows)
    return {process: calls.counted(process) for process in np.unique(calls.pid[calls.launches]).tolist()}


class _Calls:
    """The calls of a recording, by row of `api`."""

    def __init__(self, timeline: Timeline, launching_rows: Mapping[str, NDArray[np.int32]]) -> None:
        api = timeline.api
        self.start_ns, self.end_ns = api["start_ns"].to_numpy(), api["end_ns"].to_numpy()
        self.pid, self.thread = api["pid"].to_numpy(), launching.threads(api)
        self.captured, self.graph = launching.captured(api), launching.named(api, launching.GRAPH)
        self.synchronises = launching.named(api, launching.WHOLE_GPU)
        rows = np.flatnonzero(launching.named(api, launching.KERNEL) | self.graph)
        # A call of the runtime and that of the driver inside it are one launch.
        one = LaunchCalls(timeline).rows(self.pid[rows], api["correlation"].to_numpy()[rows])
        self.launches = np.unique(np.where(one >= 0, one, rows))
        self.answered = np.zeros(len(api), bool)
        for found in launching_rows.values():
            self.answered[found[found >= 0]] = True
        ends = [getattr(timeline, table)["end_ns"].to_numpy() for table in launching_rows]
        self.last_ns = max((int(end.max()) for end in ends if len(end)), default=0)
        devices = {
            one for table in ("kernels", "graphs") for one in distinct(getattr(timeline, table)["device"].to_numpy())
        }
        self.gpus_missing = len(timeline.devices) > len(devices)
        # Kernels whose call is not known, and rows that were left out, may be those of calls without any.
        self.uncalled = sum(int((launching_rows[table] < 0).sum()) for table in ("kernels", "graphs"))
        self.uncalled += sum(
            count for (_, table), count in timeline.impossible.items() if table in ("kernels", "graphs")
        )
        self.uncalled += sum(timeline.left_out.get(f"mixed-types in {table}", 0) for table in ("kernels", "graphs"))

    def counted(self, process: int) -> Launches:
        mine = self.launches[self.pid[self.launches] == process]
        captured = self.captured[mine] & ~self.answered[mine]
        mine = mine[~captured]
        lost = mine[~self.answered[mine]]
        lost = lost[~self._elsewhere(process, mine[self.answered[mine]], lost)]
        if 2 * self.uncalled >= len(lost):
            lost = lost[:0]
        graphs = int(self.graph[mine].sum()), int(self.graph[lost].sum())
        return Launches(len(mine), len(lost), *graphs, captured=int(captured.sum()))

    def _elsewhere(self, process: int, answered: NDArray[np.int64], lost: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Which of the lost may be operations after the recording's end, or of a GPU that was taken out of it."""
        if not len(answered):
            return np.zeros(len(lost), bool)
        threads, number = np.unique(self.thread, return_inverse=True)
        last = np.full(len(threads), np.iinfo(np.int64).min)
        np.maximum.at(last, number[answered], self.start_ns[answered])
        last = last[number[lost]]
        alone = last == np.iinfo(np.int64).min  # nothing that the thread launched is there
        start = self.start_ns[lost]
        queued = ~alone & (start > last) & (start <= self.last_ns + _ON_ITS_WAY_NS) & (start > self._done_ns(process))
        found: NDArray[np.bool_] = queued | (alone & self.gpus_missing)
        return found

    def _done_ns(self, process: int) -> int:
        """Until when the GPU had done all that was launched: the host waited for that, and went on."""
        mine = self.pid == process
        waited = mine & self.synchronises & (self.end_ns < self.start_ns[mine].max())
        return int(self.start_ns[waited].max()) if waited.any() else int(np.iinfo(np.int64).min)
