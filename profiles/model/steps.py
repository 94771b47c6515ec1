"""Measures of steps: their rows, the gaps in and between them, breaks and pauses."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass(slots=True)
class Percentiles:
    """Observed values (nearest rank)."""

    p50: int
    p95: int
    max: int


@dataclass(slots=True)
class StepRow:
    """One measured step: where its time went."""

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
    refused: str | None  # why there are none
    count: int
    warm_up: int
    partial: int
    breaks: int
    period_ns: Percentiles | None
    rows: list[StepRow] = field(default_factory=list)
    unit: str = "step"  # or "batch": of an inference
    served: bool = False  # an inference server marks its passes
    decodes: bool = True  # False: each of them only reads prompts (a prefill)
    marked: int = 0  # marks of steps, whether steps were found by them or not
    repeats: dict[str, int] | None = None  # period_ns, count: where kernels repeat and are no steps


@dataclass(slots=True)
class Break:
    """A step over 3 medians, which no number of the measured steps counts, and what ran and waited in it."""

    step: int
    start_ns: int
    end_ns: int
    gap_ns: int  # from the end of its last kernel to the next step
    ledger_ns: dict[str, int | None]
    kernels: int  # kernels and graph launches that start in it
    fetched: int  # copies to the host that start in it
    fetched_bytes: int
    compiling_ns: int  # launch idle in which the host loads modules and compiles
    negotiation_ns: int = 0  # as that of Collectives, within it
    # as GpuMeasures.host_while_idle, of its idle time; empty but for the longest breaks
    host: list[dict[str, Any]] = field(default_factory=list)
    # place (an index into the rows of Places), ns: its time, the longest first
    places: list[dict[str, int]] = field(default_factory=list)


@dataclass(slots=True)
class ToldBreak:
    """The breaks of one cause: of the GPU that caused them, by the longest one, with the GPUs that waited."""

    gpu: int  # index into Measures.gpus
    step: int  # that was late
    start_ns: int
    length_ns: int
    usual_ns: int  # the median step's
    cause: str  # see docs/reference/measures.md, "Steps"
    count: int
    text: str
    share_if_as_often: float  # of the time, if breaks go on to come as often
    waits: list[int] = field(default_factory=list)  # GPUs that waited for it
    place: int | None = None  # the place that most of it was spent in, an index into the rows of the GPU's Places


@dataclass(slots=True)
class Gaps:
    count: int  # steps with any
    total_ns: int
    p50_ns: int
    p95_ns: int
    max_ns: int


@dataclass(slots=True)
class IdleGap:
    """A time in which nothing ran on the GPU: its causes, what ended it, and what the host did meanwhile."""

    start_ns: int
    ns: int
    step: int | None  # the measured step that it lies in
    causes_ns: dict[str, int]  # owner -> ns, the longest first
    ended_by: str | None  # class; None: the window ended it
    name: str | None  # of a kernel
    bytes: int | None  # of a copy or a memset
    call: str | None  # that launched what ended it
    host: list[dict[str, Any]]  # kind, name, ns: the calls, ranges and operators that fill most of it
    launched_ns: int | None = None  # from the return of that call to the end of the gap, where it is a kernel's


@dataclass(slots=True)
class Pause:
    """A pause: starts when a rank knows that it cannot go on to its next step, as ring marks it. `why`: in ring's
    words."""

    start_ns: int
    end_ns: int
    why: str
