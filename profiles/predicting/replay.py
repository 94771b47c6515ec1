"""Replay a step's collectives with other durations, to find how much of their time compute would hide.

`metrics.buckets` made the step. In the replay, collectives run one after the other, each as soon as all ranks are ready
for it, and all end before the step ends. Work that waited for a collective in the recording waits again; work that ran
beside a collective does not depend on it, and runs on.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..model.collectives import OneStep

# A replay with the recorded durations must give the recorded exposed time; it may differ by this share of the step.
_SAME = 0.02
_READY, _NEEDED = 0, 1


def exposed_ns(step: OneStep, takes_ns: Sequence[float]) -> float:
    """The time in ns by which collectives make the step longer. `takes_ns`: the duration of each collective, in their
    order."""
    events = []
    for number, bucket in enumerate(step.buckets):
        needed_ns = step.rest_ns if bucket.needed_ns is None else bucket.needed_ns
        events += [(bucket.ready_ns, _READY, number), (max(needed_ns, bucket.ready_ns), _NEEDED, number)]
    late, free = 0.0, 0.0  # ns by which compute is late so far, and the time from which the network is free
    ends: dict[int, float] = {}
    for instant, kind, number in sorted(events):
        if kind == _READY:
            free = ends[number] = max(instant + late, free) + takes_ns[number]
        else:
            late = max(late, ends[number] - instant)
    return late


def holds(step: OneStep) -> bool:
    """True if a replay with the recorded durations gives the recorded exposed time, up to _SAME of the step."""
    again = exposed_ns(step, [bucket.transfer_ns for bucket in step.buckets])
    return abs(again - step.exposed_ns) <= _SAME * (step.rest_ns + step.exposed_ns)
