"""Data classes for samples of a GPU's counters and power, by parts of the ledger."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

# Counters, as shares of the GPU's peak (docs/reference/measures.md, "GPU metrics").
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
KINDS_OF_TIME: Final = ("compute", "collective", "copy", "idle")  # groups of owners; a memset is a copy
_WHOLE: Final = 0.95
BOUNDS: Final = ("tensor", "memory", "latency", "unsampled")


@dataclass(slots=True)
class Energy:
    """The energy of a GPU in the part of its window that readings of its power cover."""

    joules: float
    watts: float  # mean power
    sampled_ns: int
    joules_per_step: float | None  # None without steps, or if readings do not cover the whole window
    readings: int  # number of readings that differ from the one before, since a slow sensor repeats values

    def covers(self, span_ns: int) -> bool:
        """True if readings cover nearly all of a window of `span_ns`."""
        return self.sampled_ns >= _WHOLE * span_ns


@dataclass(slots=True)
class GpuMetrics:
    """Samples of a GPU's counters in its window."""

    period_ns: int | None  # time from one sample to the next; None without samples
    samples: int
    sampled_ns: int  # length of the part of the window that samples cover
    owner_ns: dict[str, int]  # kind of time -> its part of sampled_ns
    # For each kind of time, and for `window`: metric -> its mean over that time, 0..1; None if it was not recorded.
    means: dict[str, dict[str, float | None]]
    bound_ns: dict[str, int] | None  # bound (one of BOUNDS) -> ns; these add up to the ledger's compute
    bound_unknown: str | None  # why bound_ns is None
    mixed_ns: int  # part of bound_ns whose samples also cover other work or idle time
    off_by: int  # number of samples by which counters lag behind the operations; 0: no lag
    energy: Energy | None
    energy_unknown: str | None
