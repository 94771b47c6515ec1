"""Data classes for the measures of recordings: what `ringscope timeline --json` writes (docs/reference/measures.md).

Field names are the JSON keys. Integers are ns relative to the recording's origin; shares are 0..1; None means
unknown. measures_json.py converts to JSON and back without loss.
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
HOST = ("host_range", "host_operator", "host_call")  # kinds of host ranges in pictures
MANY_GPUS = 8  # views show a summary of more GPUs than this, since nobody reads so many columns
OWNERS = CLASSES + tuple(f"idle_{cause}" for cause in CAUSES)


def gpu_title(rank: int | None, device: int) -> str:
    """The name of a GPU in texts and pictures: its rank, if known, and its number in the recording, `?` if the
    recording does not say it (-1)."""
    gpu = f"GPU {device}" if device >= 0 else "GPU ?"
    return gpu if rank is None else f"rank {rank}, {gpu}"


def gpu_titles(gpus: Iterable[tuple[int | None, int]]) -> list[str]:
    """Titles of several GPUs, each given as (rank, device); equal titles are numbered."""
    titles = [gpu_title(rank, device) for rank, device in gpus]
    return [
        title if titles.count(title) == 1 else f"{title} ({titles[: place + 1].count(title)})"
        for place, title in enumerate(titles)
    ]


@dataclass(slots=True)
class Rest:
    """The measures of a window without steps, once the gaps that occur only once (such as start-up) are left out."""

    gaps_ns: list[int]  # the gaps left out, the longest first
    span_ns: int
    ledger_ns: dict[str, int | None]
    in_tenths: list[int]
    host_while_idle: list[dict[str, Any]]
    host_waits: list[dict[str, Any]]
    startup_ns: int
    allocating_ns: int
    waited_ns: int
    outside_calls_ns: int | None
    # None in measures of earlier versions, whose busy_ns is of the whole window.
    busy_ns: dict[str, int | None] | None = None
    before_kernels_ns: int = 0  # time before a framework's first kernel, which is left out, too

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
    window: str  # "capture" or "steps"
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
    # Idle time in batch gaps by cause, and exposed copies of the current step's input (docs/reference/measures.md).
    batch_gap_ledger_ns: dict[str, int] | None
    # Keys: count, bytes, busy_ns, exposed_ns, exposed_this_step_ns, exposed_later_step_ns, overlap; call_ns: time of
    # the launch calls; marked: number of copies in a feed's `batch N` range.
    input_copies: dict[str, int | float | None] | None
    input_stall_share: float | None
    host_while_idle: list[dict[str, Any]] = field(default_factory=list)
    # Gaps whose first launch came after a small copy: count, idle_launch_ns, bytes. `gaps`: number of all batch gaps.
    held_launches: dict[str, int] | None = None
    # Turnaround before kernels in CUDA graphs (in_graphs) and before other kernels (launched): count and p50_ns.
    hand_over_ns: dict[str, dict[str, int]] | None = None
    # Number of threads that made CUDA calls; None if the recording has no calls.
    calling_threads: int | None = None
    # What launched work may wait for: stream, process, event, host, graphics, managed; None if no calls were
    # recorded.
    waits_on: list[str] | None = None
    # pytorch, jax, tensorflow, onnxruntime or cuda; None: not known.
    framework: str | None = None
    # The library that exchanges gradients, by its ranges: horovod, fsdp, ddp or tf.distribute.
    exchange: str | None = None
    # The loader that makes batches: tf.data, PyDataset, generator, arrays, DataLoader, ...; None: not known.
    loader: str | None = None
    # None if the recording names no operators or layers.
    operators: Operators | None = None
    layers: Operators | None = None
    # None if the recording has no shapes of operators.
    arithmetic: Arithmetic | None = None
    # None if neither counters nor power were sampled.
    gpu_metrics: GpuMetrics | None = None
    # startup_ns: launch idle while the process creates contexts, first allocates memory, or loads and compiles
    # kernels. allocating_ns: launch idle in the calls of a loop that allocates and frees memory.
    startup_ns: int | None = None
    allocating_ns: int | None = None
    # Launch idle in which the host is in no CUDA call; None if the recording has no calls.
    outside_calls_ns: int | None = None
    # Launch idle in which one thread waits for the next batch before another thread can launch the step.
    waited_ns: int | None = None
    # idle_sync by waiting call. Keys: call, within (operator), moves (direction of a copy), ns, count; ns add up to
    # idle_sync.
    host_waits: list[dict[str, Any]] = field(default_factory=list)
    # The ten longest idle gaps, the longest first.
    idle_gaps: list[IdleGap] = field(default_factory=list)
    # Calls that change an instantiated CUDA graph: count in the window; idle_launch_ns: launch idle during these
    # calls.
    graph_updates: dict[str, int] | None = None
    # Launches, and how many of them lack an operation in the recording; None in measures of earlier versions.
    launches: Launches | None = None
    # Breaks from the first measured step on.
    breaks: list[Break] = field(default_factory=list)
    # Pauses of an elastic training in the whole recording.
    pauses: list[Pause] = field(default_factory=list)
    what_if: list[WhatIf] = field(default_factory=list)
    # None if neither ranges nor samples of places in the user's code were recorded.
    places: Places | None = None
    # window_ns, span_ns and ledger_ns of the whole recording, if the window holds only the steps.
    capture: dict[str, Any] | None = None
    # None if the window holds steps, or has no gap that occurs only once.
    rest: Rest | None = None

    def __post_init__(self) -> None:
        """Add idle_pause and idle_peers to ledgers of earlier versions, which lack them, as None (unknown)."""
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
        """These measures without the gaps that occur only once (`rest`)."""
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
        """True if the window consists of measured steps alone. False if it also holds steps that a pause cut short or,
        in measures of earlier versions, breaks."""
        return self.window == "steps" and self.steps.count > 0 and self.steps.breaks == len(self.breaks)

    @property
    def waiting_for_ranks_ns(self) -> int:
        """Time in ns in which nothing computes and the GPU waits for other ranks: in collectives and before their
        launch. Parts that are not known count as 0."""
        found, exposed = self.collectives, self.ledger_ns["collective"] or 0
        inside = found.waiting_ns if found.exposed_waiting_ns is None else found.exposed_waiting_ns
        return min(inside or 0, exposed) + (self.ledger_ns["idle_peers"] or 0)

    @property
    def leads_with_capture(self) -> bool:
        """True if the steps take less than half of the recording, so that views show the whole capture first."""
        return self.capture is not None and 2 * self.span_ns < int(self.capture["span_ns"])

    @property
    def title(self) -> str:
        return gpu_title(self.rank, self.device)


@dataclass(frozen=True, slots=True)
class Trust:
    """The trust that a recording's numbers deserve. `verdict`: yes, with care, no; `because`: codes of the doubts."""

    verdict: str
    because: list[str]


@dataclass(slots=True)
class Measures:
    recordings: list[Recording]
    gpus: list[GpuMeasures]
    findings: list[Finding] = field(default_factory=list)
    doubts: list[Doubt] = field(default_factory=list)
    # The ranks' common clock. Keys: method; methods and shifts (ns), one per recording; residual_ns.
    clock: dict[str, Any] | None = None
    straggler: Straggler | None = None
    breaks: list[ToldBreak] = field(default_factory=list)
    trust: Trust | None = None  # None for a selection of GPUs, and in measures of earlier versions
    schema: str = SCHEMA

    @property
    def titles(self) -> list[str]:
        """The title of each GPU; equal titles are numbered."""
        return gpu_titles((gpu.rank, gpu.device) for gpu in self.gpus)

    @property
    def many(self) -> bool:
        """True if there are too many GPUs to show one by one."""
        return len(self.gpus) > MANY_GPUS
