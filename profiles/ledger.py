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
    kinds = (operations.kind == kind for kind in range(len(CLASSES)))
    return tuple(intervals.union(operations.start_ns[rows], operations.end_ns[rows]) for rows in kinds)


def exposed(busy_by_class: tuple[Intervals, ...]) -> Ownership:
    """The time at which any class is active, in pieces that belong to the first class that is; idle time between."""
    starts, ends, owners = [], [], []
    for owner, active in enumerate(busy_by_class):
        # One class after the other: most are small beside compute, and cost no more than their own size.
        for above in busy_by_class[:owner]:
            active = intervals.subtract(active, above)
        starts.append(active.start)
        ends.append(active.end)
        owners.append(np.full(len(active), owner, np.int8))
    return _ordered(np.concatenate(starts), np.concatenate(ends), np.concatenate(owners))


def idle(pieces: Ownership, first: int, last: int) -> Intervals:
    """What the pieces, all of them within [first, last), leave of it."""
    start = np.concatenate(([first], pieces.end_ns))
    end = np.concatenate((pieces.start_ns, [last]))
    left = start < end
    return Intervals(start[left], end[left])


def ownership(pieces: Ownership, causes: Idle, window: tuple[int, int]) -> Ownership:
    """Give every nanosecond of the window to the class that had it, else to the cause of the idle time it lies in.

    `pieces` from `exposed`; `causes` must tell of all the time in the window that they leave. Raises AssertionError
    where the two do not fill the window exactly: a mistake of this program, never of a recording.
    """
    had, idled = (_within(part.start_ns, part.end_ns, window) for part in (pieces, causes))
    start = np.concatenate((pieces.start_ns[had], causes.start_ns[idled]))
    end = np.concatenate((pieces.end_ns[had], causes.end_ns[idled]))
    owner = np.concatenate((pieces.owner[had], causes.cause[idled] + np.int8(len(CLASSES))))
    np.clip(start, *window, out=start)
    np.clip(end, *window, out=end)
    order = np.argsort(start, kind="stable")
    # One array for both ends of the pieces: there are millions of them, kept for as long as the analysis.
    edges = np.append(start[order], window[1])
    if not (edges[0] == window[0] and np.array_equal(edges[1:], end[order]) and (edges[:-1] < edges[1:]).all()):
        raise AssertionError(f"the ledger does not fill the window {window}")
    return Ownership(edges[:-1], edges[1:], owner[order])


def _within(start: NDArray[np.int64], end: NDArray[np.int64], window: tuple[int, int]) -> slice:
    """Those of sorted, disjoint pieces that share an instant with the window."""
    if window[1] <= window[0]:
        return slice(0, 0)
    return slice(
        int(np.searchsorted(end, window[0], side="right")), int(np.searchsorted(start, window[1], side="left"))
    )


def _ordered(start: NDArray[np.int64], end: NDArray[np.int64], owner: NDArray[np.int8]) -> Ownership:
    order = np.argsort(start, kind="stable")
    return Ownership(start[order], end[order], owner[order])


def _window(found: Ownership) -> Intervals:
    return intervals.union(found.start_ns[:1], found.end_ns[-1:])


def owned_by(found: Ownership, owner: int) -> Intervals:
    """When this owner (an index into OWNERS) had the GPU."""
    mine = np.flatnonzero(found.owner == owner)  # taking rows by number is quicker than by flag
    return Intervals(found.start_ns[mine], found.end_ns[mine])  # no two neighbours have one owner


def totals(found: Ownership) -> dict[str, int]:
    """ns per owner; they sum to the window."""
    # Whole floats below 2**53 ns (104 days) are exact.
    owned = np.bincount(found.owner, weights=found.end_ns - found.start_ns, minlength=len(OWNERS))
    return {name: int(ns) for name, ns in zip(OWNERS, owned, strict=True)}


def per_bin(found: Ownership, start: NDArray[np.int64], end: NDArray[np.int64]) -> dict[str, NDArray[np.int64]]:
    """ns per owner in each bin [start[i], end[i]) of the window: they sum to the bin's length."""
    pieces = np.bincount(found.owner, minlength=len(OWNERS))
    split = {
        name: intervals.total_in(owned_by(found, owner), start, end)
        if pieces[owner]
        else np.zeros(len(start), np.int64)
        for owner, name in enumerate(OWNERS)
    }
    inside = intervals.total_in(_window(found), start, end)
    if not np.array_equal(sum(split.values()), inside):
        raise AssertionError("the ledgers of the steps do not sum to the steps")
    return split
