"""The window: the time span that a GPU's measures are taken over, without the breaks in it."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from ..gpus.operations import Operations
from ..ground import intervals
from ..ground.intervals import EMPTY, Intervals
from ..steps.found import FoundSteps

Int64s = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Window:
    """The time from start_ns to end_ns except for `breaks`, in ns on the GPU's clock."""

    start_ns: int
    end_ns: int
    breaks: Intervals = field(default_factory=lambda: EMPTY)

    @property
    def span_ns(self) -> int:
        return self.end_ns - self.start_ns - self.breaks.total

    def part(self, of: Intervals) -> Intervals:
        """The part of these intervals that lies in the window."""
        return intervals.subtract(intervals.clip(of, self.start_ns, self.end_ns), self.breaks)

    def left_out(self, last_ns: int) -> Intervals:
        """The part of [start_ns, last_ns) outside of the window."""
        return intervals.merge(self.breaks, intervals.span(self.end_ns, last_ns))

    def places(self, start_ns: Int64s) -> slice | Int64s:
        """The indices of the times that lie in the window. `start_ns`: ascending."""
        first, last = np.searchsorted(start_ns, (self.start_ns, self.end_ns)).tolist()
        if not len(self.breaks):
            return slice(first, last)
        inside: Int64s = first + np.flatnonzero(~intervals.contains(self.breaks, start_ns[first:last]))
        return inside

    def starting(self, operations: Operations) -> Operations:
        """The operations that start in the window; a measure counts each operation in the window in which it starts."""
        return operations.at(self.places(operations.start_ns))

    def holds(self, instant_ns: Int64s) -> NDArray[np.bool_]:
        """True for each instant (in any order) that lies in the window."""
        inside = (instant_ns >= self.start_ns) & (instant_ns < self.end_ns)
        return inside & ~intervals.contains(self.breaks, instant_ns) if len(self.breaks) else inside


def of_steps(steps: FoundSteps) -> Window:
    """The window from the first measured step to the end of the last, without the breaks between them."""
    start, end = int(steps.start_ns[0]), int(steps.end_ns[-1])
    return Window(start, end, intervals.clip(intervals.union(steps.long.start_ns, steps.long.end_ns), start, end))
