"""Calls and ranges of the host while a GPU was idle (docs/reference/measures.md, "The host meanwhile")."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ..gpus.operations import KERNELS, Gpu, Operations, distinct
from ..ground import intervals
from ..ground.groups import by_value
from ..ground.intervals import Intervals
from ..ground.stats import all_along
from ..ledger import ownership as ledger
from ..ledger.causes import LAUNCH, PAUSE, SYNC, TURNAROUND, WAITING_FOR_INPUT
from ..ledger.window import Window
from ..model import launching, marks
from ..model.analysed import Ownership
from ..model.measures import CAUSES, CLASSES
from ..model.names import rows_named
from ..model.timeline import Timeline

if TYPE_CHECKING:
    import pandas as pd

TOP = 12
_STARTS = (
    r"^_*(?:cu(?:da)?|hip)(?:(?:Module|Library)(?:Load|Get)|Init|DevicePrimaryCtxRetain|CtxCreate|DevicePrimaryCtxReset"
    r"|Link(?:Create|Add|Complete)|GetProcAddress|RegisterFatBinary|RegisterFunction)"
)
_ALLOCATES = (
    r"^(?:cu(?:da)?|hip)(?:Ext)?(?:Mem)?"
    r"(?:Malloc|Alloc|HostAlloc|HostMalloc|Free|StreamCreate|GetDeviceProp)"
)
# The pattern does not match `Torch-Compiled Region`, which runs code that is compiled already.
_COMPILES = r"(?i)compil(?:e(?!d)|ing|ation)|autotun|nvrtc|Build(?:Engine|Program)"
_LONG_NS = 1_000_000
_POOLED_NS = 20_000  # cudaMallocAsync takes 1 to 5 µs from a pool, cudaMalloc and cudaFree 50 to 300 from the driver
_AGAIN = 3  # a kernel that runs at least this number of times is not part of the program's start alone
_FILLS = 4  # if start-up fills 1 / this of an idle span, the whole span counts as start-up
_PARTS = 10
_CHANGES_GRAPHS = r"^(?:cu(?:da)?|hip)GraphExec(?:\w*SetParams|Update)"
_BLOCK = 1 << 17  # calls processed at a time, so that they fit into the CPU's cache
# Ranges whose names differ only in numbers, such as the number of a step or tensor, count as one.
_NUMBERED = re.compile(r"\d+")
_STEPS = re.compile(r"step N$|ProfilerStep#N|step\[")
_THROUGHOUT = tuple(f"{marks.PLACE_PREFIX}{kind} " for kind in marks.PIPELINE)


@dataclass(frozen=True, slots=True)
class Meanwhile:
    """Times of `idle_launch` and of `idle_sync` in which the host does one thing."""

    launch: Intervals
    sync: Intervals


def host_while_idle(
    timelines: Sequence[Timeline], shift_ns: Sequence[int], gpu: Gpu, ownership: Ownership
) -> tuple[list[dict[str, Any]], Meanwhile | None]:
    """For each API call and range by name, the idle ns during which at least one was under way; and the launch and sync
    idle during which no call was, None if no calls are recorded.

    The GPU's own hand-over (`turnaround`) and pauses of the training do not count. Entries overlap each other, so they
    do not add up. The longest first: {"kind": "api" or "range", "name", "ns", "share" of the idle time}."""
    idle = intervals.merge(
        *(
            ledger.owned_by(ownership, len(CLASSES) + cause)
            for cause in range(len(CAUSES))
            if cause not in (PAUSE, TURNAROUND)
        )
    )
    called = any(len(timelines[index].api) for index, _ in gpu.processes)
    if not idle.total:
        return [], Meanwhile(intervals.EMPTY, intervals.EMPTY) if called else None
    spent: dict[tuple[str, str], list[Intervals]] = {}
    origin = shift_ns[gpu.places[0][0]]
    for index, pid in gpu.processes:
        for kind, name, when in under_way(timelines[index], pid, shift_ns[index] - origin, idle):
            spent.setdefault((kind, name), []).append(when)
    ranked = sorted(
        ((intervals.intersect(idle, intervals.merge(*sets)).total, *key) for key, sets in spent.items()), reverse=True
    )
    entries = [
        {"kind": kind, "name": name, "ns": ns, "share": ns / idle.total} for ns, kind, name in ranked[:TOP] if ns
    ]
    calls = intervals.merge(*(one for (kind, _), sets in spent.items() for one in sets if kind == "api"))
    launch, sync = (
        intervals.subtract(ledger.owned_by(ownership, len(CLASSES) + cause), calls) for cause in (LAUNCH, SYNC)
    )
    return entries, Meanwhile(launch, sync) if called else None


def launch_idle_by_host(
    timelines: Sequence[Timeline], shift_ns: Sequence[int], gpu: Gpu, ownership: Ownership, *, steps: bool
) -> tuple[Intervals, Meanwhile]:
    """The part of `idle_launch` while the host starts up, and idle time while it allocates memory all along.

    Starting up means loading modules, compiling and tuning kernels (from 1 ms on), capturing graphs, and, without
    measured `steps`, the first run of a kernel (`_first_runs`). If these fill a quarter of an idle span, the whole span
    counts, since libraries read files in between. Calls of 1 ms or more that allocate or free memory are starting up,
    too, because the first call creates the context. But if such calls come all along the recording, they are the
    second result instead, with all calls of 20 µs or more: shorter calls do not ask the driver."""
    launch, sync = (ledger.owned_by(ownership, len(CLASSES) + cause) for cause in (LAUNCH, SYNC))

    def under(within: Intervals, *calls: tuple[str, str, int]) -> Intervals:
        found = (
            intervals.union(start[end - start >= least_ns], end[end - start >= least_ns])
            for table, pattern, least_ns in calls
            for start, end in _named(timelines, shift_ns, gpu, table, pattern)
        )
        return intervals.intersect(within, intervals.merge(*found))

    begun = under(launch, ("api", _STARTS, 0), ("marks", _COMPILES, _LONG_NS))
    if not steps:
        begun = intervals.merge(begun, _first_runs(gpu.operations, launch))
    captures = intervals.intersect(launch, capturing(timelines, shift_ns, gpu))
    starting = _whole(launch, intervals.merge(begun, captures))
    allocating = intervals.subtract(under(intervals.merge(launch, sync), ("api", _ALLOCATES, _POOLED_NS)), starting)
    if len(ownership.start_ns) and _all_along(allocating, int(ownership.start_ns[0]), int(ownership.end_ns[-1])):
        return starting, Meanwhile(*(intervals.intersect(allocating, spans) for spans in (launch, sync)))
    long = under(launch, ("api", _ALLOCATES, _LONG_NS))
    return intervals.merge(starting, long), Meanwhile(intervals.EMPTY, intervals.EMPTY)


def capturing(timelines: Sequence[Timeline], shift_ns: Sequence[int], gpu: Gpu) -> Intervals:
    """Time in which a thread of the GPU's processes captured a graph, on the GPU's clock."""
    found = [intervals.EMPTY]
    for index, pid in gpu.processes:
        start, end = launching.capturing(timelines[index].api, pid)
        shift = shift_ns[index] - shift_ns[gpu.places[0][0]]
        found.append(intervals.union(start + shift, end + shift))
    return intervals.merge(*found)


def _first_runs(operations: Operations, launch: Intervals) -> Intervals:
    """The part of `idle_launch` in which libraries are loaded or the program prepares its loop: during long calls that
    launch a kernel for the first time, and in long spans that the first run of a repeated kernel ends."""
    kernels = np.flatnonzero((operations.table == KERNELS) & operations.launched)
    _, first, runs = np.unique(operations.name[kernels], return_index=True, return_counts=True)
    _, start, end = operations.calls(kernels[first])  # in the order in which they started
    calls = end - start >= _LONG_NS
    begins = operations.start_ns[kernels[first[runs >= _AGAIN]]]
    spans = (launch.end - launch.start >= _LONG_NS) & np.isin(launch.end, begins)
    return intervals.merge(
        intervals.intersect(launch, intervals.union(start[calls], end[calls])),
        Intervals(launch.start[spans], launch.end[spans]),
    )


def _whole(spans: Intervals, inside: Intervals) -> Intervals:
    """`inside`, and the whole of each span that it fills to a quarter or more."""
    filled = intervals.total_in(inside, spans.start, spans.end)
    which = (filled > 0) & (filled >= (spans.end - spans.start) // _FILLS)
    return intervals.merge(inside, Intervals(spans.start[which], spans.end[which]))


def launch_idle_waiting(
    timelines: Sequence[Timeline], shift_ns: Sequence[int], gpu: Gpu, ownership: Ownership
) -> Intervals:
    """The part of `idle_launch` in which any thread waits for its next batch. Any thread counts, because another thread
    may launch the work of the thread that waits."""
    launch = ledger.owned_by(ownership, len(CLASSES) + LAUNCH)
    waits = (intervals.union(*one) for one in _named(timelines, shift_ns, gpu, "marks", WAITING_FOR_INPUT))
    return intervals.intersect(launch, intervals.merge(*waits))


def _all_along(spans: Intervals, start: int, end: int) -> bool:
    """True if these times are spread over all tenths of [start, end)."""
    edges = np.linspace(start, end, _PARTS + 1).astype(np.int64)
    return all_along(intervals.total_in(spans, edges[:-1], edges[1:]).tolist())


def graph_updates(
    timelines: Sequence[Timeline], shift_ns: Sequence[int], gpu: Gpu, ownership: Ownership, window: Window
) -> dict[str, int] | None:
    """The number of calls in the window that change an instantiated CUDA graph, and the ns of `idle_launch` during
    these calls; None without such calls."""
    calls = list(_named(timelines, shift_ns, gpu, "api", _CHANGES_GRAPHS))
    count = sum(int(window.holds(start).sum()) for start, _ in calls)
    if not count:
        return None
    launch = ledger.owned_by(ownership, len(CLASSES) + LAUNCH)
    under_way = intervals.merge(*(intervals.union(*one) for one in calls))
    return {"count": count, "idle_launch_ns": intervals.intersect(launch, under_way).total}


def _named(
    timelines: Sequence[Timeline], shift_ns: Sequence[int], gpu: Gpu, table: str, pattern: str
) -> Iterator[tuple[NDArray[np.int64], NDArray[np.int64]]]:
    """Start and end in ns on the GPU's clock of the rows whose names match, process by process."""
    origin = shift_ns[gpu.places[0][0]]
    for index, pid in gpu.processes:
        found = getattr(timelines[index], table)
        rows = rows_named(found, pattern, pid)
        if len(rows):
            shift = shift_ns[index] - origin
            yield found["start_ns"].to_numpy()[rows] + shift, found["end_ns"].to_numpy()[rows] + shift


def calling_threads(timelines: Sequence[Timeline], gpu: Gpu) -> int | None:
    """The number of threads of the GPU's processes that made CUDA calls; None if the recordings have no calls."""
    if not any(len(timelines[index].api) for index, _ in gpu.processes):
        return None
    found: set[tuple[int, int, int]] = set()
    for index, pid in gpu.processes:
        pids, tids = (timelines[index].api[column].to_numpy() for column in ("pid", "tid"))
        for first in range(0, len(pids), _BLOCK):
            block = slice(first, first + _BLOCK)
            found.update((index, pid, tid) for tid in distinct(tids[block][pids[block] == pid]).tolist())
    return len(found)


def under_way(
    timeline: Timeline, pid: int, shift: int, idle: Intervals, *, operators: bool = False
) -> Iterator[tuple[str, str, Intervals]]:
    """(kind, name, times) of calls and ranges that overlap the idle time; with `operators` also of the framework's
    operators. Numbers in the names of ranges are replaced by N."""
    tables = [("api", timeline.api), ("range", timeline.marks)]
    for kind, table in (*tables, ("operator", timeline.operators)) if operators else tables:
        # There may be millions of calls, so take only the rows that overlap idle time.
        rows = _meeting(idle, table, pid, shift)
        start, end = table["start_ns"].to_numpy()[rows] + shift, table["end_ns"].to_numpy()[rows] + shift
        names = [_NUMBERED.sub("N", str(name)) for name in table["name"].cat.categories]
        if kind == "api":
            names = [str(name) for name in table["name"].cat.categories]
        distinct: dict[str, int] = {}
        number = np.array([distinct.setdefault(name, len(distinct)) for name in names] or [0])
        texts = list(distinct)
        yield from (
            (kind, texts[place], intervals.union(start[mine], end[mine]))
            for place, mine in by_value(number[table["name"].cat.codes.to_numpy()[rows]])
            # These ranges are always open, so they explain nothing.
            if not (_STEPS.match(texts[place]) or texts[place].startswith(_THROUGHOUT))
        )


def _meeting(idle: Intervals, table: pd.DataFrame, pid: int, shift: int) -> NDArray[np.int64]:
    """The process's rows that overlap the idle time. Only the first idle span that ends after a row's start is compared
    with the row: later spans start later."""
    start, end, pids = (table[column].to_numpy() for column in ("start_ns", "end_ns", "pid"))
    idle_start = np.append(idle.start, np.iinfo(np.int64).max)
    meeting = [np.empty(0, np.int64)]
    for first in range(0, len(table), _BLOCK):
        rows = first + np.flatnonzero(pids[first : first + _BLOCK] == pid)
        span = np.searchsorted(idle.end, start[rows] + shift, side="right")
        meeting.append(rows[idle_start[span] < end[rows] + shift])
    return np.concatenate(meeting)
