"""Where the steps of a training lie in a recording (docs/measures.md, "Steps")."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray


def _no_times() -> NDArray[np.int64]:
    return np.empty(0, np.int64)


@dataclass(frozen=True, slots=True)
class FoundSteps:
    """The measured steps of one GPU: whole ones, without warm-up, partial steps and breaks, in order of time.

    A step starts with its first kernel or graph launch and ends where the next starts, so that measured steps are
    contiguous (end_ns[i] == start_ns[i + 1]) but where a break was left out between them. All arrays are of one
    length k, the count of measured steps; times in ns on the recording's clock.
    """

    source: str | None = None  # marks, tensorflow, horovod, collectives, period; None: refused
    refused: str | None = None  # why there are no steps
    start_ns: NDArray[np.int64] = field(default_factory=_no_times)
    end_ns: NDArray[np.int64] = field(default_factory=_no_times)
    step_number: NDArray[np.int64] = field(default_factory=_no_times)  # the mark's N, or the place in the recording
    # end of the step's own last kernel or graph
    last_kernel_end_ns: NDArray[np.int64] = field(default_factory=_no_times)
    # end of the last kernel of the step before, measured or not: where the batch gap begins; -1: not known
    prev_last_kernel_end_ns: NDArray[np.int64] = field(default_factory=_no_times)
    # every step found, measured or not, in order of time (which copy feeds which step, causes of idle outside the
    # measured steps): start, and end of its last kernel; the latter empty where there is no quiet span between steps
    all_start_ns: NDArray[np.int64] = field(default_factory=_no_times)
    all_last_kernel_end_ns: NDArray[np.int64] = field(default_factory=_no_times)
    warm_up: int = 0  # steps left out at the head
    partial: int = 0  # steps cut by the recording's ends
    breaks: int = 0  # steps left out in between: evaluation, checkpoints

    @property
    def count(self) -> int:
        return len(self.start_ns)
