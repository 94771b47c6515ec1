"""Collectives of one step as a queue that a prediction can replay with other times, and how much ranks differ in work
(docs/reference/measures.md, "Prediction")."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..ground import intervals
from ..ground.intervals import Intervals
from ..ledger.window import Window
from ..model.collectives import Bucket, OneStep
from ..model.steps import StepRow
from .collectives import Calls
from .message_sizes import UNKNOWN

Int64s = NDArray[np.int64]
# With fewer steps no standard deviation is computed.
_LEAST_STEPS = 3


def one_step(calls: Calls, exposed: Intervals, rows: Sequence[StepRow]) -> OneStep | None:
    """Among the measured steps with collectives, the one with the median exposed transfer time; None if there is none.

    `exposed`: when collectives owned the GPU, on the clock of `calls` and `rows`.
    """
    transfers = intervals.union(calls.start_ns + calls.waiting_ns, calls.end_ns)
    edges = np.array([(row.start_ns, row.end_ns) for row in rows], np.int64).reshape(-1, 2)
    first, after = (np.searchsorted(np.sort(calls.start_ns), edge) for edge in edges.T)
    held = np.flatnonzero(after > first)
    if not len(held):
        return None
    ns = intervals.total_in(intervals.intersect(exposed, transfers), edges[held, 0], edges[held, 1])
    middle = int(np.argsort(ns, kind="stable")[(len(held) - 1) // 2])
    row = rows[held[middle]]
    return OneStep(
        step=row.step,
        rest_ns=int(_standing(exposed, row.start_ns, row.end_ns)),
        exposed_ns=int(ns[middle]),
        buckets=_buckets(calls.starting_in(Window(row.start_ns, row.end_ns)), exposed, row),
    )


def _buckets(calls: Calls, exposed: Intervals, row: StepRow) -> list[Bucket]:
    """The collectives of a step, by end.

    `needed_ns` is None for one that ends in a later step, or while compute runs, because the step does not wait for it.
    """
    seen = intervals.contains(exposed, calls.end_ns - 1) & (calls.end_ns <= row.end_ns)
    ready = _standing(exposed, row.start_ns, calls.start_ns + calls.waiting_ns)
    needed = _standing(exposed, row.start_ns, calls.end_ns)
    every = (one.tolist() for one in (calls.bytes, ready, needed, seen, calls.transfer_ns))
    return [
        Bucket(None if size == UNKNOWN else size, ready_ns, needed_ns if is_seen else None, transfer_ns)
        for size, ready_ns, needed_ns, is_seen, transfer_ns in zip(*every, strict=True)
    ]


def _standing(exposed: Intervals, start: int, instants: ArrayLike) -> Int64s:
    """ns from `start` to each instant, without the time in which collectives own the GPU."""
    at = np.asarray(instants, np.int64)
    return at - start - intervals.total_in(exposed, start, at)


def waited(calls: Calls, exposed: Intervals, rows: Sequence[StepRow]) -> Int64s:
    """Exposed waiting in each of these steps, int64[steps] ns."""
    waiting = intervals.union(calls.start_ns, calls.start_ns + calls.waiting_ns)
    edges = np.array([(row.start_ns, row.end_ns) for row in rows], np.int64).reshape(-1, 2)
    return intervals.total_in(intervals.intersect(exposed, waiting), edges[:, 0], edges[:, 1])


def pace(each: Sequence[Sequence[StepRow]], waited_ns: Sequence[Int64s]) -> list[tuple[int, int] | None]:
    """(behind_ns, varies_ns) of `Collectives` for each GPU; `waited_ns`: its steps' waiting, as `waited` gives it.

    None for all if the GPUs have fewer than three numbered steps in common. varies_ns estimates the standard deviation
    of one rank's work; its deviation from the mean of n ranks is smaller, by sqrt(1 - 1/n), so it is scaled up.
    """
    count, common = len(each), _in_common(each, waited_ns)
    if common is None:
        return [None] * count
    lengths, waits = common
    work = (lengths - waits).astype(np.float64)
    apart = work - work.mean(axis=0)
    varies = apart.std(axis=1, ddof=1) * (count / (count - 1)) ** 0.5
    return [(round(mean), round(deviation)) for mean, deviation in zip(apart.mean(axis=1), varies, strict=True)]


def by_turns(each: Sequence[Sequence[StepRow]], waited_ns: Sequence[Int64s]) -> int | None:
    """`Collectives.by_turns_ns` of all ranks, in ns per step. Takes the same arguments as `pace`.

    If ranks meet several times in a step, it lasts as long as the slowest rank's work before each meeting, added up; if
    they met once, only as long as the work of the rank with most work. That rank waits least, and its waiting is the
    difference.
    """
    common = _in_common(each, waited_ns)
    return None if common is None else int(common[1].min(axis=0).sum()) // common[1].shape[1]


def _in_common(each: Sequence[Sequence[StepRow]], waited_ns: Sequence[Int64s]) -> tuple[Int64s, Int64s] | None:
    """Lengths and exposed waiting, int64[GPUs, steps] ns, of the steps that all GPUs have; None if fewer than three."""
    own = [
        {row.step: (row.end_ns - row.start_ns, ns) for row, ns in zip(rows, waits.tolist(), strict=True)}
        for rows, waits in zip(each, waited_ns, strict=True)
    ]
    unique = all(len(one) == len(rows) for one, rows in zip(own, each, strict=True))
    common = sorted(set.intersection(*map(set, own))) if len(each) > 1 and unique else []
    if len(common) < _LEAST_STEPS:
        return None
    both = np.array([[one[step] for step in common] for one in own], np.int64)
    return both[..., 0], both[..., 1]
