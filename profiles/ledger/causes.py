"""Causes of the idle gaps between a GPU's operations (docs/reference/measures.md, "Causes of idle").

A GPU is dry (idle) from the end of its last operation, on any stream and of any process, to the start of the next
operation, which ends the idle span. Intervals are half-open: a call is under way at t if start <= t < end, has begun at
t if start <= t, and has returned at t if end <= t.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ..gpus.operations import D2D, D2H, H2D, HAND_OVER_NS, P2P, Operations, distinct
from ..ground import intervals
from ..ground.groups import by_value
from ..ground.intervals import Intervals
from ..model.launching import SYNCHRONISING
from ..model.marks import WAIT_INPUT
from ..model.measures import CAUSES, CLASSES
from ..model.names import rows_named
from ..model.timeline import Timeline
from ..steps.found import FoundSteps
from .input_copies import InputCopies
from .ownership import IDLE

if TYPE_CHECKING:
    import pandas as pd

PAUSE, FEED, PEERS, SYNC, LAUNCH, TURNAROUND, WAIT, UNKNOWN = range(len(CAUSES))  # `ledger.account` assigns PAUSE
_COPIES = (H2D, D2H, P2P, D2D)  # consecutive numbers, so that a range check finds them
_BLOCK = 1 << 17  # pieces handled at once, so that their arrays fit into the CPU's cache
_ITERATOR_RANGES = r"_IteratorGetNext#$"  # TensorFlow's ranges around the copy of the iterator's output

# Ranges in which the host waits for its next batch: the harness's, TensorFlow's op, PyTorch's DataLoader, Lightning's,
# and usual names such as `data loading`.
WAITING_FOR_INPUT = (
    rf"^(?:{WAIT_INPUT}|IteratorGetNext(?:Op::DoCompute)?(?::.*)?|enumerate\(DataLoader\)#.*"
    r"|\[pl\]\[(?:profile|module)\](?s:.*)(?:train_dataloader_next|fetch_next(?s:.*))"
    r"|(?i:(?:#+ ?)?(?:(?:data|batch)[ _-]?load(?:ing|er)?|(?:load|get|fetch|next)[ _-]?(?:data|batch)"
    r"|wait(?:ing)?[ _-]for[ _-](?:data|input|batch))(?: ?#+)?))$"
)


@dataclass(frozen=True, slots=True)
class HostCalls:
    """Synchronising calls of one process, and the ranges in which it waited for a batch."""

    sync_start_ns: NDArray[np.int64]  # sorted by end, as is sync_end_ns
    sync_end_ns: NDArray[np.int64]
    input_marks: Intervals | None  # the ranges in which it waited; None: it has none
    waits: Mapping[int, Intervals]  # the same ranges by thread id
    call_tid: NDArray[np.int64]  # the thread id of each row of `api`


def host_calls(timeline: Timeline, pid: int, shift_ns: int = 0) -> HostCalls:
    """The synchronising calls and input ranges of a process, moved by `shift_ns`."""
    start, end = _named(timeline.api, SYNCHRONISING, pid, shift_ns)
    order = np.argsort(end, kind="stable")
    begun, ended, thread = _named(timeline.marks, WAITING_FOR_INPUT, pid, shift_ns, "tid")
    waits = {one: intervals.union(begun[rows], ended[rows]) for one, rows in by_value(thread)}
    marks = intervals.merge(*waits.values()) if len(begun) else None
    return HostCalls(start[order], end[order], marks, waits, timeline.api["tid"].to_numpy())


def has_iterator_ranges(timeline: Timeline, pid: int) -> bool:
    """True if TensorFlow named this process's copies of the iterator's output, which it does with host feeds only."""
    return len(_named(timeline.marks, _ITERATOR_RANGES, pid)[0]) > 0


def _named(table: pd.DataFrame, pattern: str, pid: int, shift_ns: int = 0, *more: str) -> tuple[NDArray[np.int64], ...]:
    """Start and end in ns, and the columns `more`, of the process's rows whose name matches the pattern."""
    rows = rows_named(table, pattern, pid)
    times = [table[column].to_numpy()[rows] + shift_ns for column in ("start_ns", "end_ns")]
    return (*times, *(table[column].to_numpy()[rows] for column in more))


@dataclass(frozen=True, slots=True)
class _Enders:
    """For each idle span, the operation that ends it. `prior_ns`: see _end_on_stream. `known`: True where the operation
    exists and its launch call is known."""

    kind: NDArray[np.int8]
    process: NDArray[np.signedinteger[Any]]
    prior_ns: NDArray[np.int64]
    known: NDArray[np.bool_]
    call_start_ns: NDArray[np.int64]
    call_end_ns: NDArray[np.int64]


def causes(
    operations: Operations,
    edges: NDArray[np.int64],
    owner: NDArray[np.int8],
    *,
    steps: FoundSteps,
    inputs: InputCopies | None,
    hosts: Sequence[HostCalls],
) -> Intervals:
    """Write the cause of each idle span into `owner`; return the intervals whose cause is `feed`.

    The causes are tried in order, and the first that holds counts. `edges` and `owner` come from ledger.parted:
    pieces owned by IDLE are the idle spans. Each of `operations` lasts longer than 0 ns. If `inputs` is None,
    input copies cannot be recognised, and only the ranges in which the launching thread waits for input are
    `feed`. `hosts` is indexed by process number.
    """
    prior = _end_on_stream(operations)
    gaps = _batch_gaps(operations, steps)
    feed = [intervals.EMPTY]
    # Block by block, to save memory: a GPU has about as many pieces as kernels, and each takes a dozen arrays.
    for first in range(0, len(owner), _BLOCK):
        idle = first + np.flatnonzero(owner[first : first + _BLOCK] == IDLE)
        dry = Intervals(edges[idle], edges[idle + 1])
        ender = np.searchsorted(operations.start_ns, dry.start, side="right")
        ended = ender < len(operations)
        ender[~ended] = 0
        launched, call_start, call_end = operations.calls(ender)
        # Clocks of host and GPU may be some us apart: a launch never begins after its operation.
        call_start = np.minimum(call_start, dry.end)
        enders = _Enders(
            kind=operations.kind[ender],
            process=operations.process[ender],
            prior_ns=prior[ender],
            known=ended & launched,
            call_start_ns=call_start,
            call_end_ns=call_end,
        )
        cause = _without_feed(dry, enders, gaps, hosts)
        if inputs is not None:
            fed = enders.known & inputs.this_step[ender] & (call_start > dry.start)
            feed.append(_marked_feed(dry, cause, fed, enders, hosts))
        feed.append(_waited_for(dry, operations.call_row[ender], enders, hosts))
        owner[idle] = cause + np.int8(len(CLASSES))
    return intervals.merge(*feed)


def _without_feed(dry: Intervals, enders: _Enders, gaps: _BatchGaps, hosts: Sequence[HostCalls]) -> NDArray[np.int8]:
    """The cause of each idle span if `feed` is not considered: the first of the remaining causes that holds."""
    known, call_start = enders.known, enders.call_start_ns
    is_copy = (enders.kind >= min(_COPIES)) & (enders.kind <= max(_COPIES))
    late = np.where(is_copy, call_start, enders.call_end_ns) > dry.start
    cause = np.full(len(dry), WAIT, np.int8)
    cause[dry.end - enders.prior_ns <= HAND_OVER_NS] = TURNAROUND
    cause[late] = LAUNCH
    upcoming = np.searchsorted(gaps.end_ns, dry.end, side="left")
    in_gap = dry.start >= gaps.start_ns[upcoming]
    before_copy = in_gap & (dry.end <= gaps.fetched_until_ns[upcoming])
    cause[late & np.where(in_gap, before_copy, enders.kind == D2H)] = SYNC
    for number, host in enumerate(hosts):
        mine = np.flatnonzero(known & (enders.process == number))
        waited = _synchronising(host, dry.start[mine], call_start[mine])
        cause[mine[waited]] = SYNC
    cause[~known] = UNKNOWN
    return cause


def _end_on_stream(operations: Operations) -> NDArray[np.int64]:
    """For each operation, the latest end of earlier operations on its stream; a large negative time for a stream's
    first."""
    prior = np.empty(len(operations), np.int64)
    latest = np.full(int(operations.stream.max(initial=-1)) + 1, np.iinfo(np.int64).min // 2, np.int64)
    for first in range(0, len(operations), _BLOCK):
        stream, end = operations.stream[first : first + _BLOCK], operations.end_ns[first : first + _BLOCK]
        for one, rows in by_value(stream):
            reach = np.maximum.accumulate(np.append(latest[one], end[rows]))
            prior[first + rows], latest[one] = reach[:-1], reach[-1]
    return prior


@dataclass(frozen=True, slots=True)
class _BatchGaps:
    """The batch gap before each step: its start, its end, and the end of its last device-to-host copy, in ns. start_ns
    and fetched_until_ns have one more entry, for the time after the last step, which has no gap."""

    start_ns: NDArray[np.int64]
    end_ns: NDArray[np.int64]
    fetched_until_ns: NDArray[np.int64]


def _batch_gaps(operations: Operations, steps: FoundSteps) -> _BatchGaps:
    last_end = steps.all_last_kernel_end_ns
    start = steps.all_start_ns if len(last_end) else last_end
    never, always = np.iinfo(np.int64).min, np.iinfo(np.int64).max
    # A gap begins at the end of the previous step; the first step and the time after the last step have no gap.
    gap_start = np.concatenate(([always], last_end[:-1], [always] if len(last_end) else []))
    fetched = intervals.union(operations.start_ns[operations.kind == D2H], operations.end_ns[operations.kind == D2H])
    # The end of the last device-to-host copy that begins before the step does.
    last = np.searchsorted(fetched.start, start, side="left") - 1
    fetched_until = np.append(np.where(last >= 0, np.append(fetched.end, 0)[last], never), never)
    return _BatchGaps(gap_start, start, fetched_until)


def _synchronising(host: HostCalls, dry_ns: NDArray[np.int64], call_ns: NDArray[np.int64]) -> NDArray[np.bool_]:
    """bool per idle span: True if a synchronising call was under way at dry_ns and had returned by call_ns.

    Calls are sorted by end, so the calls that end in (dry_ns, call_ns] are adjacent. Idle spans are disjoint, so
    each call is looked at once at most.
    """
    first = np.searchsorted(host.sync_end_ns, dry_ns, side="right")
    last = np.searchsorted(host.sync_end_ns, call_ns, side="right")
    waited = np.zeros(len(dry_ns), bool)
    some = np.flatnonzero(last > first)
    among, place = intervals.one_after_another((last - first)[some])
    spans = some[among]
    calls = first[spans] + place
    waited[spans[host.sync_start_ns[calls] <= dry_ns[spans]]] = True
    return waited


def _marked_feed(
    dry: Intervals,
    cause: NDArray[np.int8],
    fed: NDArray[np.bool_],
    enders: _Enders,
    hosts: Sequence[HostCalls],
) -> Intervals:
    """The time that is `feed` in the idle spans that an input copy ends (`fed`).

    If the host has ranges in which it waits for input, only the time within these ranges and the time from the
    start of the copy's launch call count. Otherwise the whole span counts, and is also written into `cause`.
    """
    whole = fed.copy()
    parts = []
    for number, host in enumerate(hosts):
        if host.input_marks is None:
            continue
        mine = fed & (enders.process == number)
        whole &= ~mine
        spans = Intervals(dry.start[mine], dry.end[mine])
        called = intervals.union(enders.call_start_ns[mine], dry.end[mine])
        parts.append(intervals.merge(intervals.intersect(spans, host.input_marks), called))
    cause[whole] = FEED
    return intervals.merge(*parts)


def _waited_for(dry: Intervals, call_row: NDArray[np.int32], enders: _Enders, hosts: Sequence[HostCalls]) -> Intervals:
    """Idle time during which the thread that launches the next operation waits for input, by its ranges."""
    parts = [intervals.EMPTY]
    late = enders.known & (enders.call_start_ns > dry.start)  # an earlier launch did not wait in this span
    for number, host in enumerate(hosts):
        mine = np.flatnonzero(late & (enders.process == number)) if host.waits else ()
        if not len(mine):
            continue
        thread = host.call_tid[call_row[mine]]
        for one, rows in by_value(thread):
            if one in host.waits:
                spans = mine[rows]
                parts.append(intervals.intersect(Intervals(dry.start[spans], dry.end[spans]), host.waits[one]))
    return intervals.merge(*parts)


def waiting_is_marked(operations: Operations, hosts: Sequence[HostCalls]) -> bool:
    """True if a thread that launches work has ranges in which it waits for input."""
    for number, host in enumerate(hosts):
        if host.waits:
            rows = np.flatnonzero((operations.process == number) & operations.launched)
            launching = distinct(host.call_tid[operations.call_row[rows]])
            if np.isin(launching, list(host.waits)).any():
                return True
    return False
