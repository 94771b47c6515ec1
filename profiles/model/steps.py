"""Data classes for the measures of steps: their rows, the gaps in and between them, breaks and pauses."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass(slots=True)
class Percentiles:
    """Percentiles in ns by nearest rank, so that each is an observed value."""

    p50: int
    p95: int
    max: int


@dataclass(slots=True)
class StepRow:
    """One measured step, with its time by owner."""

    step: int
    start_ns: int
    end_ns: int
    ledger_ns: dict[str, int | None]
    batch_gap_ns: int | None
    feed_gap_ns: int | None
    kernels: int


@dataclass(slots=True)
class Steps:
    source: str | None  # marks, tensorflow, pytorch, horovod, collectives or period; None: no steps
    refused: str | None  # why no steps were found
    count: int
    warm_up: int
    partial: int
    breaks: int
    period_ns: Percentiles | None
    rows: list[StepRow] = field(default_factory=list)
    unit: str = "step"  # "step", or "batch" for an inference
    served: bool = False  # True if an inference server marked its forward passes
    decodes: bool = True  # False if each forward pass only reads prompts (prefill)
    marked: int = 0  # number of marks of steps, even if steps were found in another way
    repeats: dict[str, int] | None = None  # period_ns and count of kernel sequences that repeat but are not steps


@dataclass(slots=True)
class Break:
    """A step over three times the median, which is left out of the measured steps, and what ran and waited in it."""

    step: int
    start_ns: int
    end_ns: int
    gap_ns: int  # time from the end of its last kernel to the next step
    ledger_ns: dict[str, int | None]
    kernels: int  # number of kernels and graph launches that start in it
    fetched: int  # number of copies to the host that start in it
    fetched_bytes: int
    compiling_ns: int  # launch idle in which the host loads modules and compiles
    negotiation_ns: int = 0  # Collectives.negotiation_ns, within the break
    # Entries as in GpuMeasures.host_while_idle for its idle time; only for the longest breaks, else empty.
    host: list[dict[str, Any]] = field(default_factory=list)
    # Keys: place (index into the rows of Places), ns (time in the break); the longest first.
    places: list[dict[str, int]] = field(default_factory=list)


@dataclass(slots=True)
class ToldBreak:
    """The breaks of one cause on one GPU. The times are those of the longest one."""

    gpu: int  # index into Measures.gpus
    step: int  # number of the long step
    start_ns: int
    length_ns: int
    usual_ns: int  # length of the median step
    cause: str  # see docs/reference/measures.md, "Steps"
    count: int
    text: str
    share_if_as_often: float  # share of the time that is lost if breaks come as often later
    waits: list[int] = field(default_factory=list)  # GPUs that waited for this one
    place: int | None = None  # index into the rows of the GPU's Places: the place with most of the break's time


@dataclass(slots=True)
class Gaps:
    count: int  # number of steps with such a gap
    total_ns: int
    p50_ns: int
    p95_ns: int
    max_ns: int


@dataclass(slots=True)
class IdleGap:
    """A span in which nothing ran on the GPU: its causes, the operation that ended it, and what the host did."""

    start_ns: int
    ns: int
    step: int | None  # the measured step in which it lies
    causes_ns: dict[str, int]  # owner -> ns, the longest first
    ended_by: str | None  # class of the operation that ended it; None at the window's end
    name: str | None  # name of the kernel that ended it; None for other operations
    bytes: int | None  # bytes of the copy or memset that ended it; else None
    call: str | None  # the call that launched the operation that ended it
    host: list[dict[str, Any]]  # keys kind, name, ns: the calls, ranges and operators that fill most of it
    launched_ns: int | None = None  # ns from the return of `call` to the end of the gap, if a kernel ended the gap


@dataclass(slots=True)
class Pause:
    """A pause of an elastic training, by ring's mark: from when a rank cannot go on until it goes on. `why`: ring's
    text."""

    start_ns: int
    end_ns: int
    why: str
