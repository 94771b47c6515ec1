"""The owner of each nanosecond of a GPU's window: exactly one (docs/reference/measures.md, "Ledger")."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from ..gpus.operations import Operations
from ..ground import intervals
from ..ground.intervals import Intervals
from ..model.analysed import Ownership
from ..model.measures import CLASSES, OWNERS

Int64s = NDArray[np.int64]


IDLE = -1  # owner of idle time whose cause is not found yet
LEFT_OUT = len(OWNERS)  # owner of breaks, which lie within a window but do not count in it
_BLOCK = 1 << 17  # pieces handled at once, so that their arrays fit into the CPU's cache


def busy(operations: Operations) -> tuple[Intervals, ...]:
    """For each class of CLASSES, the intervals in which any stream of the GPU ran an operation of that class."""
    kinds = (operations.kind == kind for kind in range(len(CLASSES)))
    return tuple(intervals.union(operations.start_ns[rows], operations.end_ns[rows]) for rows in kinds)


def parted(busy_by_class: tuple[Intervals, ...], first: int, last: int) -> tuple[Int64s, NDArray[np.int8]]:
    """Cut [first, last), which covers all operations, into pieces; the owner of a piece is its first active class, or
    IDLE.

    Returns edges, int64[n + 1] ascending, and owner, int8[n]: owner[i] has the GPU from edges[i] to edges[i + 1].
    Raises AssertionError if pieces overlap, which no recording can cause.
    """
    starts, ends, owners = [], [np.array([first])], []
    for owner, active in enumerate(busy_by_class):
        # Class by class: most classes have few pieces, and subtracting them costs no more than their number.
        for above in busy_by_class[:owner]:
            active = intervals.subtract(active, above)
        starts.append(active.start)
        ends.append(active.end)
        owners.append(np.full(len(active), owner, np.int8))
    opens = np.concatenate([*starts, np.array([last])])
    order = np.argsort(opens[:-1], kind="stable")
    opens[:-1], mine = opens[order], np.concatenate(owners)[order]
    del order
    closes = np.concatenate(ends)
    closes.sort(kind="stable")  # pieces that do not overlap end in the order in which they start
    idle = closes < opens
    if not ((closes <= opens).all() and (opens[:-1] < closes[1:]).all()):
        raise AssertionError(f"pieces of the ledger overlap in [{first}, {last})")
    edges = np.empty(len(opens) + int(idle.sum()), np.int64)
    owner_of = np.full(len(edges) - 1, IDLE, np.int8)
    before = 0  # number of idle pieces in the earlier blocks
    for start in range(0, len(opens), _BLOCK):
        block = slice(start, start + _BLOCK)
        dry = np.flatnonzero(idle[block])
        place = start + before + np.arange(len(idle[block])) + np.cumsum(idle[block])
        edges[place], edges[place[dry] - 1] = opens[block], closes[block][dry]
        owner_of[place[: len(mine[block])]] = mine[block]
        before += len(dry)
    return edges, owner_of


Given = Mapping[str, Intervals]
"""Owner -> idle time that is given to it before the rest is divided. No two owners' times overlap."""


def ownership(edges: Int64s, owner: NDArray[np.int8], given: Given, window: tuple[int, int]) -> Ownership:
    """The pieces within the window, after the idle time in `given` has gone to its owners."""
    for name, part in given.items():
        edges, owner = _cut(edges, owner, part)
        begun = np.searchsorted(edges, part.start)
        which, place = intervals.one_after_another(np.searchsorted(edges, part.end) - begun)
        owner[begun[which] + place] = OWNERS.index(name)
    first = int(np.searchsorted(edges, window[0], side="right")) - 1
    last = max(int(np.searchsorted(edges, window[1], side="left")), first) if window[0] < window[1] else first
    edges = edges[first : last + 1]
    edges[0], edges[-1] = window
    return Ownership(edges[:-1], edges[1:], owner[first:last])


def without(found: Ownership, breaks: Intervals) -> Ownership:
    """A copy of `found` in which the owner is LEFT_OUT during the breaks. `found` covers the breaks."""
    if not len(breaks):
        return found
    edges, owner = _cut(np.append(found.start_ns, found.end_ns[-1:]), found.owner, breaks)
    owner = np.where(intervals.contains(breaks, edges[:-1]), np.int8(LEFT_OUT), owner)
    return Ownership(edges[:-1], edges[1:], owner)


def _cut(edges: Int64s, owner: NDArray[np.int8], at: Intervals) -> tuple[Int64s, NDArray[np.int8]]:
    """Cut the pieces at the starts and ends of `at`; both halves of a piece keep its owner."""
    cuts = np.append(at.start, at.end)
    cuts.sort()
    place = np.searchsorted(edges, cuts)
    new = edges[place] != cuts
    if not new.any():  # np.insert would copy the arrays to insert nothing
        return edges, owner
    place = place[new]
    return np.insert(edges, place, cuts[new]), np.insert(owner, place, owner[place - 1])


def _window(found: Ownership) -> Intervals:
    return intervals.union(found.start_ns[:1], found.end_ns[-1:])


def owned_by(found: Ownership, owner: int) -> Intervals:
    """Intervals in which this owner (an index into OWNERS) has the GPU."""
    mine = np.flatnonzero(found.owner == owner)  # row numbers index faster than a mask
    return Intervals(found.start_ns[mine], found.end_ns[mine])  # neighbours differ in owner: none touch


def is_idle(owner: NDArray[np.int8]) -> NDArray[np.bool_]:
    """True for each piece that is idle time of the window, whatever the cause."""
    idle: NDArray[np.bool_] = (owner >= len(CLASSES)) & (owner != LEFT_OUT)
    return idle


def totals(found: Ownership) -> dict[str, int]:
    """ns per owner. They sum to the window; time that is LEFT_OUT has no owner here."""
    ns = np.zeros(LEFT_OUT + 1, np.int64)
    for first in range(0, len(found.owner), _BLOCK):
        block = slice(first, first + _BLOCK)
        lasted = found.end_ns[block] - found.start_ns[block]
        ns += intervals.summed(lasted, found.owner[block], len(ns))
    return dict(zip(OWNERS, ns[:LEFT_OUT].tolist(), strict=True))


def moved(edges: Int64s, owner: NDArray[np.int8], given: Given) -> dict[str, int]:
    """ns per owner over all pieces, after the idle time in `given` has gone to its owners."""
    found = Ownership(edges[:-1], edges[1:], owner)
    ns = totals(found)
    for taker, part in given.items():
        for name, each in per_bin(found, part.start, part.end).items():
            ns[name] -= int(each.sum())
        ns[taker] += part.total
    return ns


def per_bin(found: Ownership, start: NDArray[np.int64], end: NDArray[np.int64]) -> dict[str, NDArray[np.int64]]:
    """ns per owner in each bin [start[i], end[i]) of the window; a bin's ns sum to its length, less the time
    LEFT_OUT."""
    first, last = intervals.touching(Intervals(start, end), Intervals(found.start_ns, found.end_ns))
    cells = np.zeros((len(start), LEFT_OUT + 1), np.int64)
    # In groups of bins, to save memory: the temporary arrays have an entry for each piece in a group.
    for bins in np.array_split(np.arange(len(start)), (last - first).sum() // _BLOCK + 1):
        at, place = intervals.one_after_another((last - first)[bins])
        piece = first[bins][at] + place
        ns = np.minimum(found.end_ns[piece], end[bins][at]) - np.maximum(found.start_ns[piece], start[bins][at])
        owned = intervals.summed(ns, at * cells.shape[1] + found.owner[piece], cells[bins].size)
        cells[bins] = owned.reshape(-1, cells.shape[1])
    if not np.array_equal(cells.sum(axis=1), intervals.total_in(_window(found), start, end)):
        raise AssertionError("the ledgers of the steps do not sum to the steps")
    return dict(zip(OWNERS, cells.T[:LEFT_OUT], strict=True))
