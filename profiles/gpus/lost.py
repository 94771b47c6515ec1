"""Find launches whose operation has no time in the recording: the profiler lost it, or a graph only captured it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import astuple, dataclass

import numpy as np
from numpy.typing import NDArray

from ..model import launching
from ..model.operations import Launches
from ..model.timeline import Timeline
from . import untimed_operations
from .launch_calls import LaunchCalls
from .operations import distinct
from .untimed_operations import LAUNCHED, Columns, Missing

# A launch up to this long after the end of the last recorded operation does not count as lost, since its operation
# may have run after the recording's end.
_ON_ITS_WAY_NS = 1_000_000


def together(each: Sequence[Launches]) -> Launches:
    """The sums of the counts of several processes."""
    return Launches(*map(sum, zip(*map(astuple, each), strict=True))) if each else Launches()


@dataclass(frozen=True, slots=True)
class Lost:
    """The launches of a recording by process (empty without API calls), and its operations without a usable time."""

    launches: dict[int, Launches]
    missing: Missing


def of_recording(timeline: Timeline, operations: Columns) -> Lost:
    """Find the lost launches of a recording. `operations`: columns by table; a `call_row` of -1 means no launch
    call."""
    if "api" not in timeline.known or not len(timeline.api):
        return Lost({}, untimed_operations.joined([]))
    calls = _Calls(timeline, operations)
    counted = {process: calls.counted(process) for process in np.unique(calls.pid[calls.launches]).tolist()}
    rows = [lost for _, lost in counted.values() if len(lost)]
    found = [calls.untimed, *(untimed_operations.lost(timeline, one, operations) for one in rows)]
    return Lost({process: launches for process, (launches, _) in counted.items()}, untimed_operations.joined(found))


class _Calls:
    """The calls of a recording. Arrays have an entry for each row of `api`; `launches` holds the rows of launch
    calls."""

    def __init__(self, timeline: Timeline, operations: Columns) -> None:
        api = timeline.api
        self.start_ns, self.end_ns = api["start_ns"].to_numpy(), api["end_ns"].to_numpy()
        self.pid, self.thread = api["pid"].to_numpy(), launching.threads(api)
        self.captured, self.graph = launching.captured(api), launching.named(api, launching.GRAPH)
        self.synchronises = launching.named(api, launching.WHOLE_GPU)
        rows = np.flatnonzero(launching.named(api, launching.KERNEL) | self.graph)
        # A runtime call and the driver call inside it count as one launch.
        calls = LaunchCalls(timeline)
        one = calls.rows(self.pid[rows], api["correlation"].to_numpy()[rows])
        launches = np.zeros(len(api), bool)
        launches[np.where(one >= 0, one, rows)] = True
        self.launches = np.flatnonzero(launches)
        self.answered = np.zeros(len(api), bool)
        self.untimed, self.nowhere = untimed_operations.untimed(timeline, calls)
        for found in (self.untimed.call, *(columns["call_row"] for columns in operations.values())):
            self.answered[found[found >= 0]] = True
        ends = [getattr(timeline, table)["end_ns"].to_numpy() for table in operations]
        self.last_ns = max((int(end.max()) for end in ends if len(end)), default=0)
        devices = {
            one for table in ("kernels", "graphs") for one in distinct(getattr(timeline, table)["device"].to_numpy())
        }
        self.thinned = timeline.thinned
        self.gpus_missing = len(timeline.devices) > len(devices)
        # Operations without a known call, and rows that could not be read, may belong to calls that seem to have no
        # operation.
        self.uncalled = sum(int((operations[table]["call_row"] < 0).sum()) for table in LAUNCHED)
        self.uncalled += sum(timeline.left_out.get(f"mixed-types in {table}", 0) for table in LAUNCHED)

    def counted(self, process: int) -> tuple[Launches, NDArray[np.int64]]:
        """Count the launches of a process; also returns the rows in `api` of the lost ones."""
        mine = self.launches[self.pid[self.launches] == process]
        captured = self.captured[mine] & ~self.answered[mine]
        mine = mine[~captured]
        lost = mine[~self.answered[mine]]
        lost = lost[~self._elsewhere(process, mine[self.answered[mine]], lost)]
        if 2 * self.uncalled >= len(lost):
            lost = lost[:0]
        graphs = int(self.graph[mine].sum()), int(self.graph[lost].sum())
        # An operation with neither a time nor a call counts as lost, too, because nothing tells when it ran.
        more = max(0, self.nowhere.get(process, 0) - len(lost))
        # If most operations have no time, they count as lost: too few others are left to tell between which of them
        # they ran.
        untimed = int((self.untimed.pid == process).sum())
        untimed = untimed if 2 * untimed > len(mine) else 0
        gone = min(len(mine), len(lost) + untimed) + more
        count = len(mine) + more
        thinned = round(count * self.thinned / (1 - self.thinned))
        counted = Launches(count + thinned, gone + thinned, *graphs, captured=int(captured.sum()), thinned=thinned)
        return counted, lost

    def _elsewhere(self, process: int, answered: NDArray[np.int64], lost: NDArray[np.int64]) -> NDArray[np.bool_]:
        """True for each of these launches whose operation may have run elsewhere: after the recording's end, or on a
        GPU whose operations are not in the recording."""
        if not len(answered):
            return np.zeros(len(lost), bool)
        threads, number = np.unique(self.thread, return_inverse=True)
        last = np.full(len(threads), np.iinfo(np.int64).min)
        np.maximum.at(last, number[answered], self.start_ns[answered])
        last = last[number[lost]]
        alone = last == np.iinfo(np.int64).min  # no launch of the thread has an operation
        start = self.start_ns[lost]
        queued = ~alone & (start > last) & (start <= self.last_ns + _ON_ITS_WAY_NS) & (start > self._done_ns(process))
        found: NDArray[np.bool_] = queued | (alone & self.gpus_missing)
        return found

    def _done_ns(self, process: int) -> int:
        """The time in ns before which all launches of a process have finished; the least int64 if nothing shows one. It
        is the start of the last call that waited for the whole GPU and returned before the process's last call."""
        mine = self.pid == process
        waited = mine & self.synchronises & (self.end_ns < self.start_ns[mine].max())
        return int(self.start_ns[waited].max()) if waited.any() else int(np.iinfo(np.int64).min)
