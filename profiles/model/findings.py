"""Data classes for findings (changes to a program and the gain of each), what-ifs, and the straggler."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final


@dataclass(slots=True)
class WhatIf:
    """The window's length without the time of one owner, or without all lost time (`owner` "all"). See
    docs/reference/findings.md."""

    owner: str
    span_ns: int
    at_most_gain: float  # ratio of throughputs minus 1


@dataclass(slots=True)
class Consequence:
    """The waiting of other GPUs that a finding's cause leads to."""

    gpus: list[int]  # indices into Measures.gpus, the GPU that waits longest first
    share: float  # share of the window for which the first of these GPUs waits
    cost_ns_per_step: int | None  # ns per step for which the first of these GPUs waits
    codes: list[str]  # codes of findings that consist of this waiting alone, and are listed only here
    text: str


@dataclass(slots=True)
class Finding:
    """A change to the program: its largest gain, the reason and evidence, and the observation that would refute it."""

    code: str
    gpu: int | None
    cost_ns_per_step: int | None
    at_most_gain: float | None  # ratio of throughputs minus 1
    text: str
    change: str
    evidence: dict[str, Any]
    refuted_by: str
    # owner -> ns of the window that the change would save; empty if the saving is not known
    saved_ns: dict[str, int] = field(default_factory=dict)
    consequences: list[Consequence] = field(default_factory=list)

    @property
    def owners(self) -> list[str]:
        """The owners whose time the change would save."""
        return list(self.saved_ns)

    @property
    def worst_gpu(self) -> int | None:
        """The GPU that the finding's numbers belong to; None if they belong to no single GPU."""
        return self.evidence.get("gpu") if self.gpu is None else self.gpu


# Findings that compare GPUs. Their texts name the GPU, so that views need not add it.
OF_RANKS: Final = ("straggler", "slow-gpu", "slow-link", "slow-host")


@dataclass(slots=True)
class Straggler:
    """The GPU for which the others wait: from some collective on, it arrives last at 9 of 10 collectives or more."""

    gpu: int  # index into Measures.gpus
    rank: int | None
    since_ns: int  # start of the first such collective, relative to the GPU's recording
    calls: int  # number of collectives since then
    arrived_last_share: float  # share of `calls` at which it arrived last
