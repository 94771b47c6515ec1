"""The ledger: every nanosecond of a GPU's window has exactly one owner (docs/measures.md, "Ledger")."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from . import intervals
from .intervals import Intervals
from .measures import CLASSES, OWNERS, Ownership
from .operations import Operations


@dataclass(frozen=True, slots=True)
class Idle:
    """Idle time in pieces with one cause each, sorted: start_ns, end_ns int64[n], cause int8[n] (index into CAUSES)."""

    start_ns: NDArray[np.int64]
    end_ns: NDArray[np.int64]
    cause: NDArray[np.int8]


def busy(operations: Operations) -> tuple[Intervals, ...]:
    """Per device class, when any stream of the GPU had an operation of it running."""
    kinds = (np.flatnonzero(operations.kind == kind) for kind in range(len(CLASSES)))
    return tuple(intervals.union(operations.start_ns[rows], operations.end_ns[rows]) for rows in kinds)


def ownership(busy_by_class: tuple[Intervals, ...], idle: Idle, window: tuple[int, int]) -> Ownership:
    """Give every nanosecond of the window to the first class that is active, else to the idle piece it lies in.

    `idle` must tell of all the time in the window at which no class is active. Raises AssertionError where the
    pieces do not fill the window exactly: a mistake of this program, never of a recording.
    """
    starts, ends, owners = [], [], []
    taken = intervals.EMPTY
    for owner, active in enumerate(busy_by_class):
        inside = intervals.clip(active, *window)
        exposed = intervals.subtract(inside, taken)
        taken = intervals.merge(taken, inside)
        starts.append(exposed.start)
        ends.append(exposed.end)
        owners.append(np.full(len(exposed), owner, np.int8))
    idle_start, idle_end = np.maximum(idle.start_ns, window[0]), np.minimum(idle.end_ns, window[1])
    inside_window = idle_start < idle_end
    starts.append(idle_start[inside_window])
    ends.append(idle_end[inside_window])
    owners.append(idle.cause[inside_window] + np.int8(len(CLASSES)))
    start, end, owner_of = np.concatenate(starts), np.concatenate(ends), np.concatenate(owners)
    order = np.argsort(start, kind="stable")
    found = Ownership(start[order], end[order], owner_of[order])
    _assert_whole(found, window)
    return found


def _assert_whole(found: Ownership, window: tuple[int, int]) -> None:
    edges = np.concatenate(([window[0]], found.end_ns))
    following = np.concatenate((found.start_ns, [window[1]]))
    if not (np.array_equal(edges, following) and (found.start_ns < found.end_ns).all()):
        raise AssertionError(f"the ledger does not fill the window {window}")


def owned_by(found: Ownership, owner: int) -> Intervals:
    """When this owner (an index into OWNERS) had the GPU."""
    mine = found.owner == owner
    return intervals.union(found.start_ns[mine], found.end_ns[mine])


def totals(found: Ownership) -> dict[str, int]:
    """ns per owner; they sum to the window."""
    length = found.end_ns - found.start_ns
    return {name: int(length[found.owner == owner].sum()) for owner, name in enumerate(OWNERS)}


def per_bin(found: Ownership, start: NDArray[np.int64], end: NDArray[np.int64]) -> dict[str, NDArray[np.int64]]:
    """ns per owner in each bin [start[i], end[i]) of the window: they sum to the bin's length."""
    split = {name: intervals.total_in(owned_by(found, owner), start, end) for owner, name in enumerate(OWNERS)}
    inside = intervals.total_in(intervals.union(found.start_ns[:1], found.end_ns[-1:]), start, end)
    if not np.array_equal(sum(split.values()), inside):
        raise AssertionError("the ledgers of the steps do not sum to the steps")
    return split
