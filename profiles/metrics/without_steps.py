"""Measures of a window without steps, with one-off gaps cut out (docs/reference/measures.md, "Gaps that come once").

A program's start, a pause or a gap before its end does not belong to the training loop. So findings rest on these
measures, just as with steps they rest on the steps without breaks.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..gpus.operations import Gpu
from ..ground import intervals
from ..ground.intervals import Intervals
from ..ledger import ownership as ledger
from ..ledger.account import Account
from ..model.measures import CLASSES, Rest
from ..model.timeline import Timeline
from .host import capturing, host_while_idle, launch_idle_by_host, launch_idle_waiting
from .host_waits import host_waits
from .kernels import in_tenths

MOST = 2  # number of one-off gaps at most: one at the start and one at the end
_TIMES = 3  # a gap this many times as long as the next longest is a one-off
_LEAST = 0.01  # share of the window: shorter gaps are not worth a finding
_HALF, _TENTH = 2, 10
_MODELS = ("pytorch", "jax", "tensorflow", "onnxruntime")  # frameworks that build a model before the first kernel


def measure(
    timelines: Sequence[Timeline],
    shift_ns: Sequence[int],
    gpu: Gpu,
    books: Account,
    starting_ns: int,
    framework: str | None,
) -> Rest | None:
    """Measures of the window without one-off gaps; None if the window has none, or if they are mostly captures of
    graphs.

    starting_ns: ns of `idle_launch` in the whole window during which the process starts up. With a framework, the time
    before the first kernel is cut out, too, because the program then builds its model and copies the weights."""
    before = _before_kernels(gpu, books) if framework in _MODELS else intervals.EMPTY
    gaps = _alone(books, starting_ns, before)
    captured = intervals.intersect(gaps, capturing(timelines, shift_ns, gpu)).total
    # The kernels around the capture of a graph run only once, too, so they are no loop.
    if _HALF * captured > gaps.total:
        return None
    once = intervals.merge(before, gaps)
    if not len(once):
        return None
    found = ledger.without(books.ownership, once)
    host, outside = host_while_idle(timelines, shift_ns, gpu, found)
    starting, allocating = launch_idle_by_host(timelines, shift_ns, gpu, found, steps=False)
    totals = ledger.totals(found)
    return Rest(
        gaps_ns=sorted((gaps.end - gaps.start).tolist(), reverse=True),
        span_ns=books.window.span_ns - once.total,
        ledger_ns={owner: None if known is None else totals[owner] for owner, known in books.ledger_ns.items()},
        in_tenths=in_tenths(books.window.starting(gpu.operations), books.window, once),
        host_while_idle=host,
        host_waits=host_waits(timelines, shift_ns, gpu, found, outside, allocating),
        startup_ns=starting.total,
        allocating_ns=allocating.launch.total,
        waited_ns=launch_idle_waiting(timelines, shift_ns, gpu, found).total,
        outside_calls_ns=None if outside is None else outside.launch.total,
        busy_ns=_busy(gpu, books, before),
        before_kernels_ns=before.total,
    )


def _before_kernels(gpu: Gpu, books: Account) -> Intervals:
    """The span before the first kernel; empty if shorter than a hundredth of the window."""
    first = gpu.operations.start_ns[gpu.operations.is_kernel]
    start = books.window.start_ns
    lasts = int(first[0]) - start if len(first) else 0
    return intervals.span(start, start + lasts) if lasts >= _LEAST * books.window.span_ns else intervals.EMPTY


def _busy(gpu: Gpu, books: Account, without: Intervals) -> dict[str, int | None]:
    """ns in which each class of GPU work was active, without the time in `without`."""
    left = {}
    for number, name in enumerate(CLASSES):
        known, mine = books.busy_ns[name], gpu.operations.kind == number
        gone = intervals.union(gpu.operations.start_ns[mine], gpu.operations.end_ns[mine]) if len(without) else without
        left[name] = None if known is None else known - intervals.intersect(gone, without).total
    return left


def _alone(books: Account, starting_ns: int, before: Intervals) -> Intervals:
    """The one-off gaps outside `before`: the longest gap, or the two longest, if each is three times as long as the
    next. Otherwise the longest gap if it takes, without `starting_ns`, over half of all idle time and at least a tenth
    of the window."""
    idle = ledger.is_idle(books.ownership.owner)
    gaps = intervals.union(books.ownership.start_ns[idle], books.ownership.end_ns[idle])
    gaps = intervals.subtract(gaps, before)
    lasted = gaps.end - gaps.start
    order = np.argsort(-lasted, kind="stable")[: MOST + 1]
    ns = [*lasted[order].tolist(), *[0] * (MOST + 1)]
    least, many = _LEAST * books.window.span_ns, 0
    while many < MOST and ns[many] >= max(least, _TIMES * ns[many + 1]) > 0:
        many += 1
    beside = ns[0] - starting_ns
    if not many and _HALF * beside > gaps.total and _TENTH * beside >= books.window.span_ns:
        many = 1
    chosen = np.sort(order[:many])
    return Intervals(gaps.start[chosen], gaps.end[chosen])
