"""When operations that the recording has no time of may have run (docs/reference/measures.md, "Causes of idle").

Streams keep their order: an operation ran after its call began and after those that were launched before it on its
stream had ended, and before the next one there started.
"""

from __future__ import annotations

import numpy as np

from ..gpus.operations import Gpu
from ..ground import intervals
from ..ground.intervals import Intervals


def may_run(gpu: Gpu) -> Intervals:
    """When any of the GPU's may have; after the last of a stream up to the end of the recording."""
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
