"""Measures for a prediction for more GPUs: the collectives of one step, to be replayed with other durations, and how
much the work of ranks differs (docs/reference/measures.md, "Prediction")."""

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
    """The measured step whose exposed transfer time is the median; None if no step has collectives.

    `exposed`: the times in which collectives owned the GPU, on the clock of `calls` and `rows`."""
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
    """The collectives of a step in order of end. `needed_ns` is None for a collective that ends in a later step or
    while compute runs: the step does not wait for it."""
    seen = intervals.contains(exposed, calls.end_ns - 1) & (calls.end_ns <= row.end_ns)
    ready = _standing(exposed, row.start_ns, calls.start_ns + calls.waiting_ns)
    needed = _standing(exposed, row.start_ns, calls.end_ns)
    every = (one.tolist() for one in (calls.bytes, ready, needed, seen, calls.transfer_ns))
    return [
        Bucket(None if size == UNKNOWN else size, ready_ns, needed_ns if is_seen else None, transfer_ns)
        for size, ready_ns, needed_ns, is_seen, transfer_ns in zip(*every, strict=True)
    ]


def _standing(exposed: Intervals, start: int, instants: ArrayLike) -> Int64s:
    """ns from `start` to each of these times, without the time in which collectives own the GPU."""
    at = np.asarray(instants, np.int64)
    return at - start - intervals.total_in(exposed, start, at)


def waited(calls: Calls, exposed: Intervals, rows: Sequence[StepRow]) -> Int64s:
    """ns in each step in which the GPU waits in exposed collectives, int64[steps]."""
    waiting = intervals.union(calls.start_ns, calls.start_ns + calls.waiting_ns)
    edges = np.array([(row.start_ns, row.end_ns) for row in rows], np.int64).reshape(-1, 2)
    return intervals.total_in(intervals.intersect(exposed, waiting), edges[:, 0], edges[:, 1])


def pace(each: Sequence[Sequence[StepRow]], waited_ns: Sequence[Int64s]) -> list[tuple[int, int] | None]:
    """`behind_ns` and `varies_ns` of `Collectives`, for each GPU. `waited_ns`: for each GPU the result of `waited`.

    None for all if the GPUs have fewer than three numbered steps in common. varies_ns estimates the standard deviation
    of one rank's work; its deviation from the mean of n ranks is smaller, by sqrt(1 - 1/n), so it is scaled up."""
    count, common = len(each), _in_common(each, waited_ns)
    if common is None:
        return [None] * count
    lengths, waits = common
    work = (lengths - waits).astype(np.float64)
    apart = work - work.mean(axis=0)
    varies = apart.std(axis=1, ddof=1) * (count / (count - 1)) ** 0.5
    return [(round(mean), round(deviation)) for mean, deviation in zip(apart.mean(axis=1), varies, strict=True)]


def by_turns(each: Sequence[Sequence[StepRow]], waited_ns: Sequence[Int64s]) -> int | None:
    """`Collectives.by_turns_ns` of all ranks, in ns per step.

    Takes the same arguments as `pace`. If ranks meet several times in a step, the step lasts as long as the sum of the
    slowest rank's work before each meeting. If they met only once, it would last as long as the work of the rank with
    most work. The result is the difference: the waiting of that rank, which waits least."""
    common = _in_common(each, waited_ns)
    return None if common is None else int(common[1].min(axis=0).sum()) // common[1].shape[1]


def _in_common(each: Sequence[Sequence[StepRow]], waited_ns: Sequence[Int64s]) -> tuple[Int64s, Int64s] | None:
    """Two arrays int64[GPUs, steps] over the steps that all GPUs have: ns of the step, and ns of exposed waiting in it.
    None if there are fewer than three such steps."""
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
