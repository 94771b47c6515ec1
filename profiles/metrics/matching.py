"""Match the calls of several GPUs that belong to the same collective.

Two calls belong to the same collective if they overlap, their ends are each other's nearest, and these are no further
apart than half the shorter call or the clocks' residual. Overlap alone is not enough, as calls of other collectives
overlap, too.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import permutations
from typing import Final, Protocol

import numpy as np
from numpy.typing import NDArray

from ..gpus.clock import nearest

Int64s = NDArray[np.int64]

NEVER: Final = np.iinfo(np.int64).min
_FOREVER: Final = np.iinfo(np.int64).max


class Matching(Protocol):
    """The calls of all GPUs, matched by collective. ranks: per GPU, int64[calls], the number of GPUs in the call's
    collective, including this GPU."""

    ranks: list[Int64s]

    def latest(self, values: Sequence[Int64s]) -> list[Int64s]:
        """Per GPU and call, the largest of the other GPUs' values for the same collective; NEVER if there is no other.

        `values`: per GPU, int64[calls]."""


def matched(starts: Sequence[Int64s], ends: Sequence[Int64s], residual_ns: int) -> Matching:
    """Match the calls of all GPUs. `starts`, `ends`: per GPU, in order of end, in ns on one clock that is accurate to
    `residual_ns`."""
    bunches = _bunches(starts, ends, residual_ns) if len(starts) > 2 else None
    return bunches or _Pairs(starts, ends, residual_ns)


class _Pairs:
    """Matching straight from the definition: compare the calls of each GPU with the calls of every other GPU."""

    def __init__(self, starts: Sequence[Int64s], ends: Sequence[Int64s], residual_ns: int) -> None:
        self.ranks = [np.ones(len(one), np.int64) for one in ends]
        self._pairs = []
        for gpu, other in permutations(range(len(ends)), 2):
            mine, theirs = nearest(ends[gpu], ends[other])
            calls = starts[gpu][mine], ends[gpu][mine], starts[other][theirs], ends[other][theirs]
            together = _together(*calls, residual_ns)
            self._pairs.append((gpu, other, mine[together], theirs[together]))
            self.ranks[gpu][mine[together]] += 1

    def latest(self, values: Sequence[Int64s]) -> list[Int64s]:
        found = [np.full(len(one), NEVER) for one in values]
        for gpu, other, mine, theirs in self._pairs:
            found[gpu][mine] = np.maximum(found[gpu][mine], values[other][theirs])
        return found


def _together(
    start: Int64s, end: Int64s, other_start: Int64s, other_end: Int64s, residual_ns: int
) -> NDArray[np.bool_]:
    """True where two calls overlap and their ends are close enough to belong to the same collective."""
    shorter = np.minimum(end - start, other_end - other_start)
    overlap = (start < other_end) & (other_start < end)
    close: NDArray[np.bool_] = overlap & (np.abs(end - other_end) <= np.maximum(shorter // 2, residual_ns))
    return close


class _Bunched:
    """Matching of hundreds of GPUs by bunches of calls that end together. `order` sorts all calls, listed GPU after
    GPU, by bunch; `first`: index in that order at which each bunch begins. `together`: by the number of a bunch in
    which not all pairs match, bool[calls, calls], True for each pair that matches."""

    def __init__(
        self, count: Sequence[int], order: Int64s, first: Int64s, together: Mapping[int, NDArray[np.bool_]]
    ) -> None:
        self._edges = np.cumsum([0, *count])
        self._order, self._first, self._together = order, first, together
        self._size = np.diff(np.append(first, len(order)))
        ranks = np.repeat(self._size, self._size)
        for rows, counts in self._apart():
            ranks[rows] = counts.sum(axis=1) + 1
        self.ranks = self._by_gpu(ranks)

    def latest(self, values: Sequence[Int64s]) -> list[Int64s]:
        value = np.concatenate(list(values))[self._order]
        most = np.repeat(np.maximum.reduceat(value, self._first), self._size)
        is_most = value == most
        second = np.maximum.reduceat(np.where(is_most, NEVER, value), self._first)
        alone = is_most & np.repeat(np.add.reduceat(is_most.astype(np.int64), self._first) == 1, self._size)
        found = np.where(alone, np.repeat(second, self._size), most)
        for rows, together in self._apart():
            found[rows] = np.where(together, value[rows][None, :], NEVER).max(axis=1)
        return self._by_gpu(found)

    def _apart(self) -> Iterator[tuple[slice, NDArray[np.bool_]]]:
        for bunch, together in self._together.items():
            yield slice(self._first[bunch], self._first[bunch] + self._size[bunch]), together

    def _by_gpu(self, ordered: Int64s) -> list[Int64s]:
        found = np.empty_like(ordered)
        found[self._order] = ordered
        return np.split(found, self._edges[1:-1])


def _bunches(starts: Sequence[Int64s], ends: Sequence[Int64s], residual_ns: int) -> _Bunched | None:
    """Match the calls of many GPUs without comparing all pairs of GPUs.

    A bunch is a run of ends, at most one per GPU, that lies further from other bunches than its own ends lie apart.
    Returns None if the calls do not end in bunches, or if a bunch without a call of every GPU lies so near another one
    that calls of both could match.
    """
    gpu = np.repeat(np.arange(len(ends)), [len(one) for one in ends])
    start, end = np.concatenate(list(starts)), np.concatenate(list(ends))
    order = np.argsort(end, kind="stable")
    first = _bunch_starts(end[order], ends)
    if first is None:
        return None
    start, end, gpu = start[order], end[order], gpu[order]
    size = np.diff(np.append(first, len(end)))
    which = np.repeat(np.arange(len(first)), size)
    least, most = end[first], end[first + size - 1]
    apart = np.concatenate(([_FOREVER], least[1:] - most[:-1], [_FOREVER]))
    nearest_other = np.minimum(apart[:-1], apart[1:])
    lasted = end - start
    longest, shortest = np.maximum.reduceat(lasted, first), np.minimum.reduceat(lasted, first)
    several = len(np.unique(which * len(ends) + gpu)) < len(end)
    whole = size == len(ends)
    astray = ~whole & (nearest_other <= np.maximum(longest // 2, residual_ns))
    if several or (most - least >= nearest_other).any() or astray.any():
        return None
    latest = np.maximum.reduceat(start, first)
    # Compare single pairs of a bunch only if its earliest and latest times do not already show that all pairs match.
    told = (latest < least) & (most - least <= np.maximum(shortest // 2, residual_ns))
    together = {}
    for bunch in np.flatnonzero(~told).tolist():
        rows = slice(first[bunch], first[bunch] + size[bunch])
        together[bunch] = _within(start[rows], end[rows], residual_ns)
    return _Bunched([len(one) for one in ends], order, first, together)


def _bunch_starts(ordered: Int64s, ends: Sequence[Int64s]) -> Int64s | None:
    """Indices in the sorted ends at which bunches start: after a gap of more than half the least distance between two
    ends of one GPU. None if no GPU has two ends."""
    steps = [int(np.diff(one).min()) for one in ends if len(one) > 1]
    if not steps:
        return None
    return np.concatenate(([0], np.flatnonzero(np.diff(ordered) > min(steps) // 2) + 1)).astype(np.int64)


def _within(start: Int64s, end: Int64s, residual_ns: int) -> NDArray[np.bool_]:
    """bool[calls, calls]: True for each pair of calls of a bunch that match."""
    together = _together(start[:, None], end[:, None], start[None, :], end[None, :], residual_ns)
    np.fill_diagonal(together, False)
    return together
