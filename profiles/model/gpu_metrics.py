"""Measures of the counters that a profiler samples on a GPU, and of its power, beside the ledger."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

# Counters, as shares of what the GPU can do (docs/reference/measures.md, "GPU metrics").
METRICS: Final = (
    "gr_active",
    "sm_active",
    "sm_issue",
    "tensor_active",
    "dram_read",
    "dram_write",
    "nvlink_rx",
    "nvlink_tx",
    "pcie_rx",
    "pcie_tx",
)
KINDS_OF_TIME: Final = ("compute", "collective", "copy", "idle")  # owners of the ledger together; a memset is a copy
_WHOLE: Final = 0.95
BOUNDS: Final = ("tensor", "memory", "latency", "unsampled")


@dataclass(slots=True)
class Energy:
    """The energy of a GPU over its window, as far as readings of its power cover it."""

    joules: float
    watts: float  # mean
    sampled_ns: int
    joules_per_step: float | None  # None: no steps, or a part of the window has no readings
    readings: int  # that differ from the one before: a slow sensor is read more often than it changes

    def covers(self, span_ns: int) -> bool:
        """True if readings cover nearly all of a window so long."""
        return self.sampled_ns >= _WHOLE * span_ns


@dataclass(slots=True)
class GpuMetrics:
    """Samples of a GPU over its window."""

    period_ns: int | None  # from one sample to the next; None: no samples
    samples: int
    sampled_ns: int  # of the window
    owner_ns: dict[str, int]  # its parts, by kinds of time
    # kind of time, and `window` -> metric -> its mean over that time, 0..1; None: the recording has no such counter
    means: dict[str, dict[str, float | None]]
    bound_ns: dict[str, int] | None  # the ledger's compute, by what bounds it
    bound_unknown: str | None  # why it is not known
    mixed_ns: int  # of it, the part told by samples that hold other work or idle time as well
    off_by: int  # samples by which the counters show operations too late; 0 where they agree with them
    energy: Energy | None
    energy_unknown: str | None
