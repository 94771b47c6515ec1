"""Divide the host's time in a recording without a GPU by the user's own code.

Such a recording does not tell when a GPU would have waited. So all time of the marked steps counts, or all time with
samples if no steps are marked, as in a user's own loop. Time in ranges that wait for input counts as `feed`, the rest
as `launch`; time in the framework, which computes on the host, is `elsewhere`.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..ground import intervals
from ..ledger.causes import FEED, LAUNCH, WAITING_FOR_INPUT
from ..ledger.window import Window
from ..model import marks
from ..model.measures import CLASSES, OWNERS
from ..model.names import rows_named
from ..model.places import SAMPLED, Places
from ..model.timeline import Timeline
from . import places
from .place_layers import Numbers, of_process, samples_of


@dataclass(frozen=True, slots=True)
class HostPlaces:
    """The places of a process. span_ns: the time that the places divide, from the process's first to its last step
    (`of_steps`) or sample."""

    places: Places
    span_ns: int
    of_steps: bool


def measure(timeline: Timeline) -> HostPlaces | None:
    """The places in a recording; None if the marks are not of exactly one process, or if nothing shows a place."""
    pids = np.unique(timeline.marks["pid"].to_numpy()).tolist()
    start, end = (timeline.marks[name].to_numpy() for name in ("start_ns", "end_ns"))
    if len(pids) != 1:
        return None
    steps = rows_named(timeline.marks, marks.STEP, whole=True)
    seen = [samples_of(timeline, pids[0], 0)]
    if len(steps):
        window = Window(int(start[steps].min()), int(end[steps].max()))
    elif len(seen[0]["start_ns"]):
        window = Window(int(seen[0]["start_ns"].min()), int(seen[0]["end_ns"].max()))
    else:
        return None
    waits = rows_named(timeline.marks, WAITING_FOR_INPUT)
    whole = intervals.span(window.start_ns, window.end_ns)
    fed = intervals.intersect(whole, intervals.union(start[waits], end[waits]))
    numbers = Numbers()
    layers = of_process(timeline, pids[0], 0, numbers)
    if not any(len(layer.place) for layer in layers):
        return None
    claimed, rest = places.divide({FEED: fed, LAUNCH: intervals.subtract(whole, fed)}, layers)
    rows, _ = places.rows_of_claims(numbers, claimed, window, seen)
    left = {OWNERS[len(CLASSES) + cause]: spans.total for cause, spans in rest.items()}
    found = Places(rows, left, ranges=any(row.kind not in SAMPLED for row in rows), samples=True)
    assert sum(row.total_ns for row in rows) + sum(left.values()) == window.span_ns
    return HostPlaces(found, window.span_ns, of_steps=len(steps) > 0)
