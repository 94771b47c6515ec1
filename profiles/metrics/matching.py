"""Which calls of several GPUs are one collective.

Two calls are one collective where they overlap, each is the other's nearest in its end, and their ends are no further
apart than half the shorter of them, or than the clocks' residual: other ranks' calls overlap as well.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from ..gpus.clock import nearest

Int64s = NDArray[np.int64]

NEVER: Final = np.iinfo(np.int64).min
_FOREVER: Final = np.iinfo(np.int64).max


@dataclass(frozen=True, slots=True)
class Others:
    """Of each call of one GPU: how many GPUs took part, itself included, and when the latest other one started (NEVER
    where there is none); int64[n]."""

    ranks: Int64s
    latest_start_ns: Int64s


def others(starts: Sequence[Int64s], ends: Sequence[Int64s], residual_ns: int) -> list[Others]:
    """Per GPU, of its calls in order of end; all on one clock that is good to `residual_ns`."""
    bunches = _bunches(starts, ends, residual_ns) if len(starts) > 2 else None
    if bunches is None:
        return [_one_by_one(gpu, starts, ends, residual_ns) for gpu in range(len(starts))]
    return bunches


def _one_by_one(gpu: int, starts: Sequence[Int64s], ends: Sequence[Int64s], residual_ns: int) -> Others:
    """Against each other GPU in turn, as the definition says."""
    start, end = starts[gpu], ends[gpu]
    found = Others(np.ones(len(start), np.int64), np.full(len(start), NEVER))
    for other, (other_start, other_end) in enumerate(zip(starts, ends, strict=True)):
        if other == gpu:
            continue
        mine, theirs = nearest(end, other_end)
        together = _together(start[mine], end[mine], other_start[theirs], other_end[theirs], residual_ns)
        mine, theirs = mine[together], theirs[together]
        found.latest_start_ns[mine] = np.maximum(found.latest_start_ns[mine], other_start[theirs])
        found.ranks[mine] += 1
    return found


def _together(
    start: Int64s, end: Int64s, other_start: Int64s, other_end: Int64s, residual_ns: int
) -> NDArray[np.bool_]:
    """Do they overlap, and end as one collective does?"""
    shorter = np.minimum(end - start, other_end - other_start)
    overlap = (start < other_end) & (other_start < end)
    close: NDArray[np.bool_] = overlap & (np.abs(end - other_end) <= np.maximum(shorter // 2, residual_ns))
    return close


def _bunches(starts: Sequence[Int64s], ends: Sequence[Int64s], residual_ns: int) -> list[Others] | None:
    """The same for hundreds of GPUs, for which pairs are too many: None where their calls do not end in bunches.

    A bunch is a run of ends with no two of one GPU that lies further from other bunches than its own ends lie apart:
    then each call's nearest of another GPU is the one of its bunch. Where a GPU has none in it, no call elsewhere may
    be near enough to count.
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
    is_latest = start == latest[which]
    second = np.maximum.reduceat(np.where(is_latest, NEVER, start), first)
    alone = is_latest & (np.add.reduceat(is_latest.astype(np.int64), first) == 1)[which]
    found = Others(size[which], np.where(alone, second[which], latest[which]))
    # Where the bunch does not tell that all of its pairs count, each is looked at.
    told = (latest < least) & (most - least <= np.maximum(shortest // 2, residual_ns))
    for bunch in np.flatnonzero(~told).tolist():
        rows = slice(first[bunch], first[bunch] + size[bunch])
        count, last = _within(start[rows], end[rows], residual_ns)
        found.ranks[rows], found.latest_start_ns[rows] = count, last
    back = np.empty(len(order), np.int64)
    back[order] = np.arange(len(order))
    edges = np.cumsum([0, *(len(one) for one in ends)])
    places = [back[edges[number] : edges[number + 1]] for number in range(len(ends))]
    return [Others(found.ranks[place], found.latest_start_ns[place]) for place in places]


def _bunch_starts(ordered: Int64s, ends: Sequence[Int64s]) -> Int64s | None:
    """Where bunches begin among all ends in order: after a pause longer than half of what is least between two ends of
    one GPU. None where there are no two of any."""
    steps = [int(np.diff(one).min()) for one in ends if len(one) > 1]
    if not steps:
        return None
    return np.concatenate(([0], np.flatnonzero(np.diff(ordered) > min(steps) // 2) + 1)).astype(np.int64)


def _within(start: Int64s, end: Int64s, residual_ns: int) -> tuple[Int64s, Int64s]:
    """Of each call of a bunch: how many of it count, itself included, and the latest start of the others."""
    together = _together(start[:, None], end[:, None], start[None, :], end[None, :], residual_ns)
    np.fill_diagonal(together, False)
    return together.sum(axis=1) + 1, np.where(together, start[None, :], NEVER).max(axis=1)
