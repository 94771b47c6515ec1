"""Find API calls and marks whose clock is not the GPU's, by operations at times that their calls or marks rule out."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ..model import launching
from ..model.timeline import Timeline
from .operations import Operations

# In 1 093 real recordings no kernel starts so long before its launch call, but for two with three kernels each; in 888
# that wait for the whole GPU, no operation ends so long after a call that waited for it. nvprof stamps a copy's call
# after it has prepared the copy, so copies may start 134 µs before their calls.
_APART_NS, _COPY_APART_NS = 20_000, 1_000_000
_FEW = 0.01  # the share of operations with wrong times that does not prove that the clocks differ
# No queue of launched operations is so long that all of them start so late; nor that all start a tenth so late, and
# that their starts lie 800 times as far apart as their calls', as they do if only the calls are in microseconds. In 60
# real recordings, starts lie at most 22 times as far apart.
_LATE_NS, _QUEUE = 1_000_000_000, 800
# An operation that starts this long before its launch call has a wrong time, if the clock fits all other operations.
_IMPOSSIBLY_EARLY_NS = 10_000_000


def apart(operations: Operations, process: int, timeline: Timeline, pid: int, *, alone: bool) -> bool:
    """True if a process's launch calls or marks are on another clock than its GPU operations.

    That is so if its marks are in microseconds (`_marked_in_microseconds`), if all operations start over 1 s after
    their launch calls, or over 0.1 s and 800 times as far apart as these, if over 1 % start before them, or if over
    1 % of the operations that a call waited for end after it has returned. Some nvprof recordings have API rows
    hundreds of seconds before their kernels. `alone`: the process used no other GPU, so that a call that waits for the
    whole GPU waits for this one.
    """
    mine = operations.chosen(operations.launched & (operations.process == process))
    if not len(mine):
        return False
    latency = mine.start_ns - mine.call_start_ns
    early = latency < np.where(mine.is_kernel, -_APART_NS, -_COPY_APART_NS)
    # As Python's numbers: calls of a damaged recording may lie years apart, and 800 times that overflows int64.
    slow = int(np.ptp(mine.start_ns)) > _QUEUE * int(np.ptp(mine.call_start_ns))
    if latency.min() > (_LATE_NS / 10 if slow else _LATE_NS) or early.mean() > _FEW:
        return True
    shift_ns = mine.sources[mine.place[0]].shift_ns
    if _marked_in_microseconds(timeline, pid, mine.call_start_ns - shift_ns):
        return True
    if not alone:
        return False
    late = _waited_for(mine, *(times + shift_ns for times in _waits(timeline, pid)))
    return bool(len(late) and (late > _APART_NS).mean() > _FEW)


def before_their_calls(operations: Operations) -> NDArray[np.bool_]:
    """True for each operation that starts over 10 ms before its launch call."""
    return operations.launched & (operations.start_ns - operations.call_start_ns < -_IMPOSSIBLY_EARLY_NS)


def _marked_in_microseconds(timeline: Timeline, pid: int, called_ns: NDArray[np.int64]) -> bool:
    """True if the process's marks are in microseconds, and its launch calls in ns.

    Then all marks lie before the first call, and from the recording's own zero on, 1000 times as late, they begin
    throughout the calls: the time that both take is at least half of the time that either takes.
    """
    rows = (timeline.marks["pid"] == pid).to_numpy()
    start, end = (timeline.marks[column].to_numpy()[rows] for column in ("start_ns", "end_ns"))
    first, last = int(called_ns.min()), int(called_ns.max())
    if not len(start) or end.max() >= first:
        return False
    zero = timeline.recording.origin_ns
    begin, finish = (1_000 * (int(at) + zero) - zero for at in (start.min(), start.max()))
    return 2 * (min(finish, last) - max(begin, first)) >= max(finish, last) - min(begin, first) > 0


def _waits(timeline: Timeline, pid: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Start and end in ns of the process's calls that wait for the whole GPU, in order of start."""
    waits = launching.named(timeline.api, launching.WHOLE_GPU) & (timeline.api["pid"] == pid).to_numpy()
    start, end = (timeline.api[column].to_numpy()[waits] for column in ("start_ns", "end_ns"))
    order = np.argsort(start, kind="stable")
    return start[order], end[order]


def _waited_for(operations: Operations, start: NDArray[np.int64], end: NDArray[np.int64]) -> NDArray[np.int64]:
    """For each operation that a call (from `start` to `end`) waited for, how long after the first such call's end it
    ends, in ns."""
    place = np.searchsorted(start, operations.call_end_ns)
    waited = place < len(start)
    return operations.end_ns[waited] - end[place[waited]]
