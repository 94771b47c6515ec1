"""Bounds on the run time of operations that have no timestamps (docs/reference/measures.md, "Causes of idle").

Streams keep their order: an operation runs after its launch call begins, after all earlier launches of its stream have
ended, and before the next one of that stream starts.
"""

from __future__ import annotations

import numpy as np

from ..gpus.operations import Gpu
from ..ground import intervals
from ..ground.intervals import Intervals


def may_run(gpu: Gpu) -> Intervals:
    """Intervals in which operations of the GPU without timestamps may have run; a stream's last may run to the end."""
    operations, lacking = gpu.operations, gpu.lacking
    found = [intervals.EMPTY]
    for process, stream in {*zip(lacking.process.tolist(), lacking.stream.tolist(), strict=True)}:
        called = lacking.call_start_ns[(lacking.process == process) & (lacking.stream == stream)]
        among = operations.stream == stream if stream >= 0 else operations.process == process
        theirs = operations.at(np.flatnonzero(among & operations.launched))
        theirs = theirs.at(np.argsort(theirs.call_start_ns, kind="stable"))
        ended = np.maximum.accumulate(np.append(called.min(), theirs.end_ns))
        starts = np.append(theirs.start_ns, operations.end_ns.max(initial=called.max()))
        starts = np.minimum.accumulate(starts[::-1])[::-1]
        first = np.maximum(called, ended[np.searchsorted(theirs.call_start_ns, called)])
        last = starts[np.searchsorted(theirs.call_start_ns, called, side="right")]
        possible = first < last
        found.append(intervals.union(first[possible], last[possible]))
    return intervals.merge(*found)
