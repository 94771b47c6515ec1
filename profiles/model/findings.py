"""Findings: changes to a program with what they may give back; and a rank that the others wait for."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final


@dataclass(slots=True)
class WhatIf:
    """The window if an owner's time went, or that of all of them (`owner` "all"); see docs/reference/findings.md."""

    owner: str
    span_ns: int
    at_most_gain: float  # throughput ratio minus 1


@dataclass(slots=True)
class Consequence:
    """Other GPUs wait for what a finding is about."""

    gpus: list[int]  # indices into Measures.gpus, the one that waits longest first
    share: float  # of that one's time
    cost_ns_per_step: int | None  # of that one
    codes: list[str]  # findings that are nothing but this waiting, and are told here alone
    text: str


@dataclass(slots=True)
class Finding:
    """One thing to change, what it gives back at most, why we say so and what would prove us wrong."""

    code: str
    gpu: int | None
    cost_ns_per_step: int | None
    at_most_gain: float | None  # throughput ratio minus 1
    text: str
    change: str
    evidence: dict[str, Any]
    refuted_by: str
    # owner -> ns of the window that the change would take away; empty without a price
    saved_ns: dict[str, int] = field(default_factory=dict)
    consequences: list[Consequence] = field(default_factory=list)

    @property
    def owners(self) -> list[str]:
        """Whose time the change would take away."""
        return list(self.saved_ns)

    @property
    def worst_gpu(self) -> int | None:
        """The GPU that the finding's numbers are of."""
        return self.evidence.get("gpu") if self.gpu is None else self.gpu


# Findings that compare GPUs. Their texts name the GPU, and views need not.
OF_RANKS: Final = ("straggler", "slow-gpu", "slow-link", "slow-host")


@dataclass(slots=True)
class Straggler:
    """The GPU for which the others wait: from some collective on it arrives last at 9 of 10 or more, to the end."""

    gpu: int  # index into Measures.gpus
    rank: int | None
    since_ns: int  # start of the first such collective, relative to the GPU's recording
    calls: int  # collectives since then
    arrived_last_share: float  # of these
