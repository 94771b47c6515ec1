"""Cut an analysis down to some of its GPUs and the recordings of these GPUs.

The result has no findings, doubts or straggler, since they concern all GPUs; the summary of all GPUs has them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ..model.analysed import Analysis
from ..model.measures import Measures


def of(analysis: Analysis, gpus: Sequence[int]) -> Analysis:
    """The analysis of these GPUs alone, in this order; the GPUs and their recordings are numbered from 0 again."""
    whole = analysis.measures
    kept = sorted({recording for gpu in gpus for recording in whole.gpus[gpu].recordings})
    place = {recording: number for number, recording in enumerate(kept)}
    some = [whole.gpus[gpu] for gpu in gpus]
    measures = Measures(
        recordings=[whole.recordings[recording] for recording in kept],
        gpus=[replace(gpu, recordings=[place[recording] for recording in gpu.recordings]) for gpu in some],
        clock=whole.clock,
    )
    pictures = tuple(replace(analysis.gpus[gpu], gpu=number) for number, gpu in enumerate(gpus) if analysis.gpus)
    return Analysis(measures, pictures, tuple(analysis.shift_ns[recording] for recording in kept))
