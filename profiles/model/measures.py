"""Measures of recordings: the dataclasses behind `ringscope timeline --json` (docs/reference/measures.md).

Field names are the JSON keys. Integers are ns relative to the recording's origin; shares are 0..1; None is unknown,
never 0. `to_json` and `from_json` are exact inverses.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, fields, replace
from typing import Any

from .collectives import Collectives
from .findings import Finding, Straggler, WhatIf
from .gpu_metrics import GpuMetrics
from .operations import Arithmetic, Copies, Kernels, Launches, Operators
from .places import Places
from .steps import Break, Gaps, IdleGap, Pause, Steps, ToldBreak
from .timeline import Doubt, Recording

SCHEMA = "ringscope.measures/1"
CLASSES = ("compute", "collective", "h2d", "d2h", "p2p", "d2d", "memset")
CAUSES = ("pause", "feed", "peers", "sync", "launch", "turnaround", "wait", "unknown")
HOST = ("host_range", "host_operator", "host_call")  # what pictures show of the host
MANY_GPUS = 8  # more than these are summarised: nobody reads as many columns
OWNERS = CLASSES + tuple(f"idle_{cause}" for cause in CAUSES)


def gpu_title(rank: int | None, device: int) -> str:
    """A GPU's name in every text and picture: by its rank where that is known, and its number in its recording."""
    return f"GPU {device}" if rank is None else f"rank {rank}, GPU {device}"


def gpu_titles(gpus: Iterable[tuple[int | None, int]]) -> list[str]:
    """Titles of the (rank, device) of several GPUs; equal titles get a number."""
    titles = [gpu_title(rank, device) for rank, device in gpus]
    return [
        title if titles.count(title) == 1 else f"{title} ({titles[: place + 1].count(title)})"
        for place, title in enumerate(titles)
    ]


@dataclass(slots=True)
class Rest:
    """A window without steps beside what comes once in it: its numbers without that."""

    gaps_ns: list[int]  # the longest first
    span_ns: int
    ledger_ns: dict[str, int | None]
    in_tenths: list[int]
    host_while_idle: list[dict[str, Any]]
    host_waits: list[dict[str, Any]]
    startup_ns: int
    allocating_ns: int
    waited_ns: int
    outside_calls_ns: int | None
    # None: measured by a version that counted all of the window
    busy_ns: dict[str, int | None] | None = None
    before_kernels_ns: int = 0  # left out, too: what lies before the first kernel of a framework's

    @property
    def once_ns(self) -> int:
        return sum(self.gaps_ns) + self.before_kernels_ns


@dataclass(slots=True)
class GpuMeasures:
    recordings: list[int]
    rank: int | None
    device: int
    uuid: str | None
    bus_id: str | None
    name: str | None
    window: str  # capture, steps
    window_ns: list[int]
    span_ns: int
    ledger_ns: dict[str, int | None]
    busy_ns: dict[str, int | None]
    kernels: Kernels
    copies: dict[str, Copies]
    collectives: Collectives
    steps: Steps
    feed_gaps: Gaps | None
    batch_gaps: Gaps | None
    # idle of the batch gaps by cause, and exposed input copies apart from later steps' (see docs/reference/measures.md)
    batch_gap_ledger_ns: dict[str, int] | None
    # count, bytes, busy_ns, exposed_ns, exposed_this_step_ns, exposed_later_step_ns, overlap; call_ns: how long their
    # launch calls took; marked: copies in a feed's `batch N` range
    input_copies: dict[str, int | float | None] | None
    input_stall_share: float | None
    host_while_idle: list[dict[str, Any]] = field(default_factory=list)
    # gaps, count, idle_launch_ns, bytes: batch gaps, and gaps whose first launch came after a small copy
    held_launches: dict[str, int] | None = None
    # in_graphs, launched: count and p50_ns of the turnaround before kernels that are nodes of CUDA graphs or are not
    hand_over_ns: dict[str, dict[str, int]] | None = None
    # threads of its processes that made CUDA calls; None where the recording has no calls
    calling_threads: int | None = None
    # what launched work may wait for: stream, process, event, host, graphics, managed. None: no calls are recorded
    waits_on: list[str] | None = None
    # pytorch, jax, tensorflow, onnxruntime, cuda; None: not known
    framework: str | None = None
    # horovod, fsdp, ddp, tf.distribute: what exchanges gradients, as its ranges tell
    exchange: str | None = None
    # what makes its batches: tf.data, PyDataset, generator, arrays, DataLoader, ...; None: not known
    loader: str | None = None
    # None: the recording names none
    operators: Operators | None = None
    layers: Operators | None = None
    # None: no shapes are told
    arithmetic: Arithmetic | None = None
    # None: neither counters nor power were sampled
    gpu_metrics: GpuMetrics | None = None
    # launch idle while the process starts: contexts, first allocations, loading and compiling of kernels; and while it
    # allocates and frees memory all along
    startup_ns: int | None = None
    allocating_ns: int | None = None
    # launch idle in which the host is in no call of CUDA's. None: the recording has no calls
    outside_calls_ns: int | None = None
    # launch idle in which a thread of the host waits for its next batch, and another one launches what it gives it
    waited_ns: int | None = None
    # idle_sync by what the host waited in: call, within (operator), moves (direction), ns, count; they add up to it
    host_waits: list[dict[str, Any]] = field(default_factory=list)
    # the ten longest, the longest first
    idle_gaps: list[IdleGap] = field(default_factory=list)
    # count, idle_launch_ns: calls in the window that change an instantiated CUDA graph, and launch idle under them
    graph_updates: dict[str, int] | None = None
    # launches that are not in the recording; None: measured by a version that did not look
    launches: Launches | None = None
    # from the first measured step on
    breaks: list[Break] = field(default_factory=list)
    # of an elastic training; within all that the recording holds
    pauses: list[Pause] = field(default_factory=list)
    what_if: list[WhatIf] = field(default_factory=list)
    # None: the recording tells of no places
    places: Places | None = None
    # window_ns, span_ns, ledger_ns of all that the recording holds, where the window is that of the steps
    capture: dict[str, Any] | None = None
    # None: the window is that of steps, or no gap in it comes once
    rest: Rest | None = None

    def __post_init__(self) -> None:
        """Measured by a version that knew of no pauses, or of no peers: nobody knows whether there were any."""
        ledgers = [self.ledger_ns, *(row.ledger_ns for row in self.steps.rows)]
        ledgers += [one.ledger_ns for one in self.breaks]
        ledgers += [self.capture["ledger_ns"]] if self.capture else []
        for ledger_ns in ledgers:
            ledger_ns.setdefault("idle_pause", None)
            ledger_ns.setdefault("idle_peers", None)

    @property
    def told(self) -> bool:
        """True if nearly all launches have an operation in the recording."""
        return self.launches is None or self.launches.told

    @property
    def steadily(self) -> GpuMeasures:
        """The same without what comes once."""
        if self.rest is None:
            return self
        numbers = {one.name: getattr(self.rest, one.name) for one in fields(Rest)}
        many, tenths, before = (numbers.pop(name) for name in ("gaps_ns", "in_tenths", "before_kernels_ns"))
        numbers["busy_ns"] = numbers["busy_ns"] or self.busy_ns
        kernels = replace(self.kernels, in_tenths=tenths)
        gaps = [gap for gap in self.idle_gaps if gap.start_ns >= self.window_ns[0] + before]
        return replace(self, **numbers, kernels=kernels, idle_gaps=gaps[len(many) :], rest=None)

    @property
    def holds_steps_alone(self) -> bool:
        """True if the window has measured steps and nothing between them. Steps that a pause cut are in it, and so are
        breaks in measures of earlier versions."""
        return self.window == "steps" and self.steps.count > 0 and self.steps.breaks == len(self.breaks)

    @property
    def waiting_for_ranks_ns(self) -> int:
        """Time in which nothing computes and the GPU waits for other ranks: before their collectives are launched, and
        inside of these, as far as it is known."""
        found, exposed = self.collectives, self.ledger_ns["collective"] or 0
        inside = found.waiting_ns if found.exposed_waiting_ns is None else found.exposed_waiting_ns
        return min(inside or 0, exposed) + (self.ledger_ns["idle_peers"] or 0)

    @property
    def leads_with_capture(self) -> bool:
        """True if the steps take less than half of the recording. Views then show the capture before them."""
        return self.capture is not None and 2 * self.span_ns < int(self.capture["span_ns"])

    @property
    def title(self) -> str:
        return gpu_title(self.rank, self.device)


@dataclass(frozen=True, slots=True)
class Trust:
    """Can a recording be trusted? `verdict`: yes, with care, no; `because`: codes of the doubts that it rests on."""

    verdict: str
    because: list[str]


@dataclass(slots=True)
class Measures:
    recordings: list[Recording]
    gpus: list[GpuMeasures]
    findings: list[Finding] = field(default_factory=list)
    doubts: list[Doubt] = field(default_factory=list)
    # how ranks were brought on one clock: method, methods and shifts per recording, residual_ns
    clock: dict[str, Any] | None = None
    straggler: Straggler | None = None
    breaks: list[ToldBreak] = field(default_factory=list)
    trust: Trust | None = None  # None: of some GPUs alone, or of a version that did not tell
    schema: str = SCHEMA

    @property
    def titles(self) -> list[str]:
        """The name of each GPU."""
        return gpu_titles((gpu.rank, gpu.device) for gpu in self.gpus)

    @property
    def many(self) -> bool:
        """Too many GPUs to show one by one?"""
        return len(self.gpus) > MANY_GPUS
