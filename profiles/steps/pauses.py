"""Pauses of an elastic training, in which a rank was lost or hosts came or went.

docs/reference/measures.md, "Causes of idle", defines them.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from ..gpus.operations import Gpu
from ..ground import intervals
from ..ground.intervals import Intervals
from ..model.marks import DOMAIN, PAUSED
from ..model.names import rows_named
from ..model.steps import Pause
from ..model.timeline import Timeline
from .found import FoundSteps, chosen

_PAUSED = re.compile(PAUSED)


def pauses(gpu: Gpu, timelines: Sequence[Timeline], shift_ns: Sequence[int]) -> tuple[Pause, ...]:
    """The pauses that are marked in the GPU's processes, in order of time, in ns on the GPU's clock."""
    found = []
    for process, (recording, pid) in enumerate(gpu.processes):
        marks = timelines[recording].marks
        rows = rows_named(marks, PAUSED, pid, whole=True) if process not in gpu.off_clock else ()
        shift = shift_ns[recording] - shift_ns[gpu.places[0][0]]
        for row in rows:
            if marks["domain"].iat[row] != DOMAIN:
                continue
            told = _PAUSED.fullmatch(str(marks["name"].iat[row]))
            assert told is not None  # rows_named() selected the name by this pattern
            end = int(marks["start_ns"].iat[row]) + shift
            found.append(Pause(end - int(told[1]), end, told[2]))
    return tuple(sorted(found, key=lambda one: (one.start_ns, one.end_ns, one.why)))


def covered(found: Sequence[Pause]) -> Intervals:
    """The time in which any of these pauses lasted."""
    times = np.array([(one.start_ns, one.end_ns) for one in found], np.int64).reshape(-1, 2)
    return intervals.union(times[:, 0], times[:, 1])


def without(found: FoundSteps, paused: tuple[Pause, ...]) -> FoundSteps:
    """Leave out the steps that a pause overlaps, however short it is; the pause is reported instead."""
    if not paused:
        return found
    cut = covered(paused)
    meets = intervals.total_in(cut, found.start_ns, found.end_ns) > 0
    own = intervals.total_in(cut, found.long.start_ns, found.long.end_ns) == 0
    return replace(
        chosen(found, ~meets),
        breaks=found.breaks + int(meets.sum()),
        long=found.long.chosen(own),
        pauses=paused,
    )
