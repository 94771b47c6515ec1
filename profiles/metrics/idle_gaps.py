"""The longest idle gaps: time, causes, the operation that ended each, and calls of the host in it
(docs/reference/measures.md)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ..gpus.operations import KERNELS, Gpu, Operations
from ..ground import intervals
from ..ground.intervals import Intervals
from ..ledger.ownership import is_idle
from ..model.analysed import Ownership
from ..model.measures import CLASSES, OWNERS
from ..model.steps import IdleGap
from ..model.timeline import Timeline
from ..steps.found import FoundSteps
from .host import under_way

if TYPE_CHECKING:
    import pandas as pd

LONGEST = 10
_NAMED = 3  # number of calls, ranges and operators that are named per gap


def longest(
    timelines: Sequence[Timeline], shift_ns: Sequence[int], gpu: Gpu, steps: FoundSteps, ownership: Ownership
) -> list[IdleGap]:
    """The longest spans of the window in which nothing ran on the GPU, the longest first."""
    idle = is_idle(ownership.owner)
    gaps = intervals.union(ownership.start_ns[idle], ownership.end_ns[idle])
    order = np.argsort(gaps.start - gaps.end, kind="stable")[:LONGEST]
    order.sort()
    some = Intervals(gaps.start[order], gaps.end[order])
    operations = gpu.operations.lasting()
    ender = np.searchsorted(operations.start_ns, some.end)
    host = _host(timelines, shift_ns, gpu, some)
    names = [timelines[index].api["name"] for index, _ in gpu.processes]
    found = []
    for place, (start, end) in enumerate(zip(some.start.tolist(), some.end.tolist(), strict=True)):
        causes = _causes(ownership, start, end)
        step = int(np.searchsorted(steps.start_ns, end, side="right")) - 1
        within = step >= 0 and end <= steps.end_ns[step]
        found.append(
            IdleGap(
                start_ns=start,
                ns=end - start,
                step=int(steps.step_number[step]) if within else None,
                causes_ns=causes,
                host=host[place],
                **_ended(names, gpu, operations, int(ender[place])),
            )
        )
    return sorted(found, key=lambda gap: -gap.ns)


def _causes(ownership: Ownership, start: int, end: int) -> dict[str, int]:
    """ns of the gap [start, end) by cause, the largest first."""
    first, last = np.searchsorted(ownership.start_ns, (start, end)).tolist()
    ns: dict[str, int] = {}
    for piece in range(first, last):
        owner = OWNERS[ownership.owner[piece]]
        ns[owner] = ns.get(owner, 0) + int(ownership.end_ns[piece] - ownership.start_ns[piece])
    return dict(sorted(ns.items(), key=lambda one: -one[1]))


def _ended(names: Sequence[pd.Series], gpu: Gpu, operations: Operations, at: int) -> dict[str, Any]:
    """Fields of IdleGap about the operation in row `at`, which ended the gap; all None if the gap lasts to the window's
    end. names: per process the column of its calls' names."""
    if at >= len(operations):
        return {"ended_by": None, "name": None, "bytes": None, "call": None}
    one = operations.at(slice(at, at + 1))
    call = int(one.call_row[0])
    returned_ns = int(one.calls(np.array([0]))[2][0])
    kernel = one.table[0] == KERNELS
    return {
        "ended_by": CLASSES[one.kind[0]],
        "name": str(gpu.names[one.name[0]]) if kernel else None,
        "bytes": None if one.is_kernel[0] else int(one.bytes[0]),
        "call": str(names[int(one.process[0])].iat[call]) if call >= 0 else None,
        "launched_ns": max(0, int(one.start_ns[0]) - returned_ns) if call >= 0 and one.is_kernel[0] else None,
    }


def _host(
    timelines: Sequence[Timeline], shift_ns: Sequence[int], gpu: Gpu, gaps: Intervals
) -> list[list[dict[str, Any]]]:
    """Per gap the calls, ranges and operators that explain it best. First come names that fill at least half of the
    gap, the rarest (by time in all gaps) first; then other names by their time in the gap."""
    found: list[dict[tuple[str, str], tuple[int, int]]] = [{} for _ in range(len(gaps))]
    origin = shift_ns[gpu.places[0][0]]
    for index, pid in gpu.processes:
        for kind, name, when in under_way(timelines[index], pid, shift_ns[index] - origin, gaps, operators=True):
            for place, ns in enumerate(intervals.total_in(when, gaps.start, gaps.end).tolist()):
                if ns > found[place].get((kind, name), (0, 0))[0]:
                    found[place][kind, name] = ns, when.total
    lengths = (gaps.end - gaps.start).tolist()
    return [_named(each, length) for each, length in zip(found, lengths, strict=True)]


def _named(each: dict[tuple[str, str], tuple[int, int]], length: int) -> list[dict[str, Any]]:
    def rank(one: tuple[tuple[str, str], tuple[int, int]]) -> tuple[bool, int]:
        ns, total = one[1]
        return (False, total) if 2 * ns >= length else (True, -ns)

    ranked = sorted(each.items(), key=rank)[:_NAMED]
    return [{"kind": kind, "name": name, "ns": ns} for (kind, name), (ns, _) in ranked]
