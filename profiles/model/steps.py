"""Measures of steps: their rows, the gaps in and between them, breaks and pauses."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass(slots=True)
class Percentiles:
    """Percentiles by nearest rank, so that each is an observed value, in ns."""

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
    source: str | None  # marks, tensorflow, pytorch, horovod, collectives, period; None: refused
    refused: str | None  # why no steps were found
    count: int
    warm_up: int
    partial: int
    breaks: int
    period_ns: Percentiles | None
    rows: list[StepRow] = field(default_factory=list)
    unit: str = "step"  # or "batch", for inference
    served: bool = False  # an inference server marked its forward passes
    decodes: bool = True  # False: each pass is a prefill
    marked: int = 0  # number of step marks, even if steps were found in another way
    repeats: dict[str, int] | None = None  # period_ns, count: of kernel sequences that repeat but are not steps


@dataclass(slots=True)
class Break:
    """A step over three times the median. It is left out of the measured steps; this is what ran and waited in it."""

    step: int
    start_ns: int
    end_ns: int
    gap_ns: int  # from the end of its last kernel to the next step
    ledger_ns: dict[str, int | None]
    kernels: int  # kernels and graph launches that start in it
    fetched: int  # copies to the host that start in it
    fetched_bytes: int
    compiling_ns: int  # launch idle in which the host loads modules and compiles
    negotiation_ns: int = 0  # Collectives.negotiation_ns, within the break
    # like GpuMeasures.host_while_idle, for the idle time of the longest breaks; else empty
    host: list[dict[str, Any]] = field(default_factory=list)
    # place (index into the rows of Places), ns (time in the break); the longest first
    places: list[dict[str, int]] = field(default_factory=list)


@dataclass(slots=True)
class ToldBreak:
    """The breaks of one cause and GPU. The numbers are of the longest one."""

    gpu: int  # index into Measures.gpus
    step: int  # the late step
    start_ns: int
    length_ns: int
    usual_ns: int  # the median step's
    cause: str  # see docs/reference/measures.md, "Steps"
    count: int
    text: str
    share_if_as_often: float  # share of the time lost if breaks come as often throughout
    waits: list[int] = field(default_factory=list)  # GPUs that waited for it
    place: int | None = None  # the place with most of its time: index into the rows of the GPU's Places


@dataclass(slots=True)
class Gaps:
    count: int  # steps with such a gap
    total_ns: int
    p50_ns: int
    p95_ns: int
    max_ns: int


@dataclass(slots=True)
class IdleGap:
    """A span in which nothing ran on the GPU, with its causes, the operation that ended it, and the host's activity."""

    start_ns: int
    ns: int
    step: int | None  # the measured step that it lies in
    causes_ns: dict[str, int]  # owner -> ns, the longest first
    ended_by: str | None  # class of the operation that ended it; None: the window ended
    name: str | None  # if a kernel ended it
    bytes: int | None  # if a copy or a memset ended it
    call: str | None  # the call that launched the operation that ended it
    host: list[dict[str, Any]]  # kind, name, ns: the calls, ranges and operators that fill most of it
    launched_ns: int | None = None  # ns from the return of `call` to the end of the gap, if a kernel ended it


@dataclass(slots=True)
class Pause:
    """A pause of an elastic training: from when a rank cannot go on until it does, by ring's mark. `why`: ring's
    text."""

    start_ns: int
    end_ns: int
    why: str
