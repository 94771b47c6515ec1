"""A window without steps beside the gaps that come once in it (docs/reference/measures.md, "Gaps that come once").

A start, a pause or what comes before the end is no loop's: what does come again and again is judged without it, as
steps are without breaks.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..gpus.operations import Gpu
from ..ground import intervals
from ..ground.intervals import Intervals
from ..ledger import ownership as ledger
from ..ledger.account import Account
from ..model.measures import Rest
from ..model.timeline import Timeline
from .host import capturing, host_while_idle, launch_idle_by_host, launch_idle_waiting
from .host_waits import host_waits
from .kernels import in_tenths

MOST = 2  # a start and an end
_TIMES = 3  # as long as the next one: it does not come again
_LEAST = 0.01  # of the window: less is not worth a finding
_HALF, _TENTH = 2, 10


def measure(
    timelines: Sequence[Timeline], shift_ns: Sequence[int], gpu: Gpu, books: Account, starting_ns: int
) -> Rest | None:
    """The window without its gaps that come once; None where there are none, or where a graph is captured in them.

    starting_ns: of all its launch idle that in which the process starts up.
    """
    gaps = _alone(books, starting_ns)
    captured = intervals.intersect(gaps, capturing(timelines, shift_ns, gpu)).total
    if not len(gaps) or _HALF * captured > gaps.total:  # what comes before and after a capture comes once, too
        return None
    found = ledger.without(books.ownership, gaps)
    host, outside = host_while_idle(timelines, shift_ns, gpu, found)
    starting, allocating = launch_idle_by_host(timelines, shift_ns, gpu, found)
    totals = ledger.totals(found)
    return Rest(
        gaps_ns=sorted((gaps.end - gaps.start).tolist(), reverse=True),
        span_ns=books.window.span_ns - gaps.total,
        ledger_ns={owner: None if known is None else totals[owner] for owner, known in books.ledger_ns.items()},
        in_tenths=in_tenths(books.window.starting(gpu.operations), books.window, gaps),
        host_while_idle=host,
        host_waits=host_waits(timelines, shift_ns, gpu, found, outside),
        startup_ns=starting.total,
        allocating_ns=allocating.total,
        waited_ns=launch_idle_waiting(timelines, shift_ns, gpu, found).total,
        outside_calls_ns=None if outside is None else outside.launch.total,
    )


def _alone(books: Account, starting_ns: int) -> Intervals:
    """The longest gap, or the two longest, if each is three times as long as the next; or the longest, if it is half of
    the idle time beside a process that starts, and a tenth of the window."""
    idle = ledger.is_idle(books.ownership.owner)
    gaps = intervals.union(books.ownership.start_ns[idle], books.ownership.end_ns[idle])
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
