"""Sets of times, as sorted half-open intervals of integer nanoseconds.

An `Intervals` consists of pieces [start, end) that are sorted, not empty, and neither overlap nor touch; so two sets
are equal exactly if their arrays are. Everything is vectorised; n pieces cost O(n log n) to build and O(n) memory.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

Int64s = NDArray[np.int64]
_LOW = (1 << 31) - 1


@dataclass(frozen=True, slots=True, eq=False)
class Intervals:
    """A set of times: the pieces [start[i], end[i]), int64[n], with start[i] < end[i] < start[i + 1]. Made by
    `union`."""

    start: Int64s
    end: Int64s

    def __len__(self) -> int:
        return len(self.start)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Intervals):
            return NotImplemented
        return np.array_equal(self.start, other.start) and np.array_equal(self.end, other.end)

    __hash__ = None  # type: ignore[assignment]

    @property
    def total(self) -> int:
        """The length of the set in ns."""
        return int((self.end - self.start).sum())


def union(start: ArrayLike, end: ArrayLike) -> Intervals:
    """The times in any of the pieces [start[i], end[i]), given in any order; a piece with end <= start is empty."""
    first = np.asarray(start, dtype=np.int64)
    last = np.asarray(end, dtype=np.int64)
    whole = last > first
    if not whole.all():
        first, last = first[whole], last[whole]
    if len(first) == 0:
        return EMPTY
    if (first[1:] < first[:-1]).any():
        order = np.argsort(first, kind="stable")
        first, last = first[order], last[order]
    reach = np.maximum.accumulate(last)
    opens = np.concatenate(([True], first[1:] > reach[:-1]))
    closes = np.concatenate((opens[1:], [True]))
    return Intervals(first[opens], reach[closes])


def covered(pieces: Iterable[tuple[Int64s, Int64s]]) -> int:
    """`union(start, end).total` in ns without building the union. `pieces`: pairs of arrays, in order of start."""
    total, reach = 0, np.iinfo(np.int64).min
    for start, end in pieces:
        before = np.maximum.accumulate(np.append(reach, end))
        total += int(np.maximum(end - np.maximum(start, before[:-1]), 0).sum())
        reach = before[-1]
    return total


EMPTY = Intervals(np.empty(0, np.int64), np.empty(0, np.int64))


def span(start: int, end: int) -> Intervals:
    """The times in [start, end); none if end <= start."""
    return union([start], [end])


def merge(*sets: Intervals) -> Intervals:
    """The times in any of the sets."""
    full = [one for one in sets if len(one)]
    if len(full) <= 1:
        return full[0] if full else EMPTY
    return union(np.concatenate([one.start for one in full]), np.concatenate([one.end for one in full]))


def intersect(a: Intervals, b: Intervals) -> Intervals:
    """The times in both sets."""
    first, last = touching(a, b)
    left, place = one_after_another(last - first)
    right = first[left] + place
    return Intervals(np.maximum(a.start[left], b.start[right]), np.minimum(a.end[left], b.end[right]))


def touching(a: Intervals, b: Intervals) -> tuple[Int64s, Int64s]:
    """For each piece of `a`, which pieces of `b` overlap it: those from first[i] up to, not including, last[i]."""
    first = np.searchsorted(b.end, a.start, side="right")
    last = np.searchsorted(b.start, a.end, side="left")
    return first, np.maximum(last, first)


def subtract(a: Intervals, b: Intervals) -> Intervals:
    """The times in `a` that are not in `b`."""
    if not len(a) or not len(b):
        return a
    first, last = touching(a, b)
    count = last - first
    # Piece i of `a` leaves up to count[i] + 1 parts: each from its start or an end in `b` to a start in `b` or its
    # end.
    left, place = one_after_another(count + 1)
    following = first[left] + place
    start = np.where(place == 0, a.start[left], b.end[np.maximum(following - 1, 0)])
    end = np.where(place == count[left], a.end[left], b.start[np.minimum(following, len(b) - 1)])
    whole = start < end
    return Intervals(start[whole], end[whole])


def one_after_another(count: Int64s) -> tuple[Int64s, Int64s]:
    """All pairs (i, k) with k in range(count[i]), sorted, as two arrays."""
    piece = np.repeat(np.arange(len(count)), count)
    return piece, np.arange(len(piece)) - np.repeat(np.cumsum(count) - count, count)


def summed(ns: Int64s, group: NDArray[np.integer[Any]], groups: int) -> Int64s:
    """The sum of `ns` in each group, int64[groups]: ns[i] >= 0 counts in group[i]."""
    # bincount adds floats, which are exact below 2**53. Larger sums are computed from the lower and upper halves of
    # `ns`.
    if not len(ns) or int(ns.max()) < (1 << 53) // len(ns):
        return np.bincount(group, weights=ns, minlength=groups).astype(np.int64)
    low, high = (np.bincount(group, weights=half, minlength=groups).astype(np.int64) for half in (ns & _LOW, ns >> 31))
    return low + (high << 31)


def clip(a: Intervals, start: int, end: int) -> Intervals:
    """The times of `a` in [start, end); none if end <= start."""
    if end <= start:
        return EMPTY
    first = np.searchsorted(a.end, start, side="right")
    last = np.searchsorted(a.start, end, side="left")
    if last <= first:
        return EMPTY
    return Intervals(np.maximum(a.start[first:last], start), np.minimum(a.end[first:last], end))


def covered_before(a: Intervals, instant: ArrayLike) -> Int64s:
    """For each instant, the length in ns of the part of `a` before it: int64, the instants' shape."""
    at = np.asarray(instant, dtype=np.int64)
    if not len(a):
        return np.zeros(at.shape, np.int64)
    before = np.concatenate(([0], np.cumsum(a.end - a.start)))
    piece = np.searchsorted(a.start, at, side="right") - 1
    inside = np.minimum(at, a.end[piece]) - a.start[piece]
    return np.where(piece < 0, 0, before[piece] + inside).astype(np.int64)


def total_in(a: Intervals, start: ArrayLike, end: ArrayLike) -> Int64s:
    """For each bin [start[i], end[i]), the length in ns of the part of `a` in it: int64. Bins may overlap or leave
    gaps."""
    return covered_before(a, end) - covered_before(a, start)


def contains(a: Intervals, instant: ArrayLike) -> NDArray[np.bool_]:
    """True for each instant that is in `a`."""
    at = np.asarray(instant, dtype=np.int64)
    if not len(a):
        return np.zeros(at.shape, np.bool_)
    piece = np.searchsorted(a.start, at, side="right") - 1
    return (piece >= 0) & (at < a.end[piece])


class Nested:
    """Ranges that may nest or cross; finds, for an instant, the range around it that began last.

    The ranges [start[i], end[i]) may come in any order. Of ranges that begin together, the shorter one counts as
    the later one. Building it for n ranges costs O(n log n).
    """

    def __init__(self, start: ArrayLike, end: ArrayLike) -> None:
        first, last = np.asarray(start, np.int64), np.asarray(end, np.int64)
        self._row = np.lexsort((-last, first))
        self._start, self._end = first[self._row], last[self._row]
        # For each range, the last earlier range that ends later; the ranges between these two end no later, and are
        # skipped.
        around = np.arange(-1, len(first) - 1)
        asked = np.flatnonzero(around >= 0)
        while len(asked):
            asked = asked[self._end[around[asked]] <= self._end[asked]]
            around[asked] = around[around[asked]]
            asked = asked[around[asked] >= 0]
        self._around = around

    def innermost(self, instant: ArrayLike) -> Int64s:
        """For each instant, the index of the range around it that began last; -1 for none."""
        at = np.asarray(instant, np.int64)
        found: Int64s = np.searchsorted(self._start, at, side="right") - 1
        asked = np.flatnonzero(found >= 0)
        while len(asked):
            asked = asked[self._end[found[asked]] <= at[asked]]
            found[asked] = self._around[found[asked]]
            asked = asked[found[asked] >= 0]
        return np.where(found >= 0, np.append(self._row, -1)[found], -1)
