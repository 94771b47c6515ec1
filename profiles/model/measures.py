"""Measures of recordings: the dataclasses behind `ringscope timeline --json` (docs/reference/measures.md).

Field names are the JSON keys. Integers are ns relative to the recording's origin; shares are 0..1; None is unknown,
never 0. `to_json` and `from_json` are exact inverses.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, fields, replace
from typing import Any, Final

from .timeline import Doubt, Recording

SCHEMA = "ringscope.measures/1"
CLASSES = ("compute", "collective", "h2d", "d2h", "p2p", "d2d", "memset")
CAUSES = ("pause", "feed", "peers", "sync", "launch", "turnaround", "wait", "unknown")
HOST = ("host_range", "host_operator", "host_call")  # what pictures show of the host
LOST_SHARE = 0.1  # from this share of what was launched on, the rest tells nothing of why a GPU was idle
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
class Percentiles:
    """Observed values (nearest rank)."""

    p50: int
    p95: int
    max: int


@dataclass(slots=True)
class NamedKernel:
    name: str
    count: int
    total_ns: int
    # its part of the ledger: of kernels of a class that run at once the one that began first counts; None: measured by
    # a version that did not say
    owned_ns: int | None = None
    # of one that XLA compiled the framework's path that most of its time belongs to; None: nothing tells it
    operator: str | None = None


@dataclass(slots=True)
class NamedOperator:
    """An operator or a layer: the kernels launched under it, and the idle time that they, or its copies, ended."""

    name: str
    kernels: int
    total_ns: int  # of the kernels that start in the window, their lengths added up
    owned_ns: int  # of the ledger's compute and collective
    idle_ns: int


@dataclass(slots=True)
class Operators:
    """The rows, `others` and `unknown` add up: to all kernels and their time, to the ledger's busy classes and idle."""

    source: str  # kernels, operators or ranges: who names them
    rows: list[NamedOperator]
    distinct: int  # number of names, including `others`
    others: NamedOperator  # names that follow the rows
    unknown: NamedOperator  # launched under none
    # of the ledger's compute and collective, what XLA's CUDA graphs launch without anything that tells the operator
    in_graphs_ns: int = 0


@dataclass(slots=True)
class Kernels:
    count: int
    graph_launches: int
    graph_nodes: int
    per_step: int | None
    distinct: int
    median_ns: int | None
    share_under_5us: float | None
    launch_latency_ns: dict[str, int] | None  # p50, p95: launch call's end to kernel start, where positive
    top: list[NamedKernel]
    groups: dict[str, dict[str, int]]  # group -> count, total_ns
    short_elementwise_runs: dict[str, int]  # fusion candidates: runs, kernels, total_ns
    under_5us_ns: int | None = None  # the time of kernels under 5 us
    unfused_ns: int | None = None  # the time of element-wise work, reductions and normalisation that no compiler fused
    recurrent_cells: int = 0  # time steps of recurrent cells that run kernel by kernel
    # kernels and graph launches that start in each tenth of the window; empty: measured by a version that did not say
    in_tenths: list[int] = field(default_factory=list)


@dataclass(slots=True)
class Computed:
    """An operator on operands of some shapes: what its calls computed and moved at least, and in what time."""

    name: str
    shapes: str
    dtype: str  # tf32: float32 whose operands the matrix units round
    calls: int
    flops: int
    bytes: int  # the least: each input and output once
    kernel_ns: int  # of its kernels that start in the window, added up
    flops_per_s: float | None
    of_peak: float | None  # of the GPU's for the type
    bound: str | None  # compute or memory: which of the two limits it at best
    of_roof: float | None  # the least time that this limit allows, by the time it took


@dataclass(slots=True)
class Arithmetic:
    """The computing of operators whose shapes are known, in the window: a lower bound if `matrix_share` is below 1."""

    flops: int
    flops_by_dtype: dict[str, int]
    flops_per_s: float  # over the window
    mfu: float | None  # share of the window that it would take at the GPU's peak
    mfu_unknown: str | None  # why it is
    kernel_ns: int  # of their kernels
    matrix_share: float | None  # of the time of convolutions and matrix products, that of kernels with known work
    peak_flops_per_s: dict[str, float | None] | None
    peak_bytes_per_s: float | None
    peak_source: str | None
    rows: list[Computed]
    distinct: int

    @property
    def all_told(self) -> bool:
        """True if the work of all but a few convolutions and matrix products is known."""
        return self.matrix_share is None or self.matrix_share >= 0.95


@dataclass(slots=True)
class Copies:
    """Copies in one direction. All fields are None if the recording has no copies."""

    count: int | None
    bytes: int | None
    busy_ns: int | None
    exposed_ns: int | None
    overlap: float | None
    gb_per_s: float | None
    pageable_share: float | None  # by bytes
    under_64kib: int | None
    synchronous: int | None  # by a call that waits
    managed_share: float | None = None  # by bytes; by the driver, when they are touched
    per_step: int | None = None  # median over the measured steps
    managed_idle_ns: int | None = None  # idle for an unknown reason until memory moves that the other side touched
    # launch and wait idle, by owner, from the calls of copies that these wait for to the copies' start
    called_idle_ns: dict[str, int] = field(default_factory=dict)


@dataclass(slots=True)
class Bucket:
    """A collective of one step, in ns from the step's start on a clock that stands while collectives own the GPU."""

    bytes: int | None
    ready_ns: int  # all ranks had arrived
    needed_ns: int | None  # what came next waited for its end; None: nothing is seen to
    transfer_ns: int


@dataclass(slots=True)
class OneStep:
    """The collectives of the measured step with the median exposed transfer, in the order of their ends."""

    step: int
    rest_ns: int  # its length on that clock
    exposed_ns: int  # of their transfers
    buckets: list[Bucket]


@dataclass(slots=True)
class OfSize:
    """Collectives of one kind and communicator that move as many bytes each."""

    kind: str
    bytes: int  # of each
    count: int
    lasted_ns: int  # their lengths added up, waiting for other ranks included
    transfer_ns: int | None  # from when all ranks had arrived; None: not all were matched with another rank's
    gb_per_s: float | None  # bytes over the transfers, where these are not known over the lengths: at least
    bus_gb_per_s: float | None  # of all-reduces with known transfers, as nccl-tests has it
    # NCCL's number of it, or PyTorch's process group; None: the recording does not tell it
    communicator: str | None = None


@dataclass(slots=True)
class Collectives:
    count: int
    per_step: int | None
    busy_ns: int
    exposed_ns: int
    overlap: float | None
    bytes_per_step: int | None
    bus_gb_per_s: float | None
    skew_ns: dict[str, int] | None  # p50, max: latest start over ranks minus own start
    waiting_ns: int | None
    transfer_ns: int | None
    arrived_last_share: float | None
    # idle time in which Horovod had this rank's tensors and had not launched their exchange: most of it is `idle_peers`
    negotiation_ns: int | None = None
    # launch idle that a collective ended, of which nothing tells whether it waited for other ranks
    peers_or_launch_ns: int = 0
    # of the exposed time that in which this rank waited for others
    exposed_waiting_ns: int | None = None
    # all_reduce, reduce_scatter, ...: count, busy_ns, exposed_ns, bytes where all of a kind are told, and dtype: the
    # type of most of them
    kinds: dict[str, dict[str, Any]] = field(default_factory=dict)
    # those whose bytes are told, by kind and size; what takes most time first
    by_size: list[OfSize] = field(default_factory=list)
    # None: no step holds any that was matched with other ranks'
    one_step: OneStep | None = None
    # by how much this rank's own part of a step (without the exposed waiting) is longer than the mean over ranks, on
    # average, and its standard deviation from step to step against the others'; None: fewer than three steps in common
    behind_ns: int | None = None
    varies_ns: int | None = None
    # by how much shorter a step of all ranks would be, on average, if they met once in it; None: as above
    by_turns_ns: int | None = None


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
    # place (an index into the rows of Places), ns: its idle time, the longest first
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


@dataclass(slots=True)
class Line:
    """A line of the user's at which samples saw the host within a place."""

    file: str
    line: int
    function: str
    via: str  # the call of a library's that the line was in, or ""
    source: str  # its text
    ns: int


@dataclass(slots=True)
class Place:
    """A part of the user's code, and the idle time of the GPU that the host spent in it.

    kind: callback, eager, dataset, generator, py_function, validation, saving, gc: ranges, with the line of the
    definition; python, call: functions that samples saw, with the line seen longest, and `call` is what a framework was
    called by.
    """

    kind: str
    name: str
    file: str
    line: int
    ns: dict[str, int]  # owner -> ns of the window
    lines: list[Line] = field(default_factory=list)  # the longest first
    longest_start_ns: int | None = None  # its longest idle span in the window
    longest_ns: int = 0

    @property
    def total_ns(self) -> int:
        return sum(self.ns.values())

    @property
    def at(self) -> str:
        return f"{self.file}:{self.line}"


@dataclass(slots=True)
class Places:
    """The ledger's idle time by the user's code: of each cause the rows and `elsewhere_ns` add up to it."""

    rows: list[Place]  # the longest first
    elsewhere_ns: dict[str, int]
    ranges: bool  # whether ranges of places lie in the recording
    samples: bool  # whether samples lie beside it


@dataclass(slots=True)
class Pause:
    """A pause: starts when a rank knows that it cannot go on to its next step, as ring marks it. `why`: in ring's
    words."""

    start_ns: int
    end_ns: int
    why: str


@dataclass(slots=True)
class WhatIf:
    """The window if an owner's time went, or that of all of them (`owner` "all"); see docs/reference/findings.md."""

    owner: str
    span_ns: int
    at_most_gain: float  # throughput ratio minus 1


@dataclass(slots=True)
class Launches:
    """Launches of kernels and graphs by the processes of a GPU, in all of the recording; how many have no operation;
    how many of both are graphs. `captured` counts kernels that were only put into a graph, and are not among these;
    `thinned` those among the lost that were left out of the file with their calls, by an estimate."""

    count: int = 0
    lost: int = 0
    graphs: int = 0
    graphs_lost: int = 0
    captured: int = 0
    thinned: int = 0

    @property
    def share_lost(self) -> float:
        """The larger of two shares: of all launches, or of graphs, which hold many kernels each."""
        shares = (self.lost, self.count), (self.graphs_lost, self.graphs)
        return max(part / whole if whole else 0.0 for part, whole in shares)

    @property
    def only_captures(self) -> bool:
        """True if the recording shows how graphs are made, and nothing that they do."""
        return self.captured > self.count - self.lost and not self.graphs - self.graphs_lost

    @property
    def told(self) -> bool:
        """True if nearly all launches have an operation in the recording. Else idle time means nothing."""
        return self.share_lost < LOST_SHARE and not self.only_captures


@dataclass(slots=True)
class Rest:
    """A window without steps beside the gaps that come once in it: its numbers without them."""

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
    # what was launched and is not in the recording; None: measured by a version that did not look
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
        """The same without gaps that come once."""
        if self.rest is None:
            return self
        numbers = {one.name: getattr(self.rest, one.name) for one in fields(Rest)}
        many, tenths = len(numbers.pop("gaps_ns")), numbers.pop("in_tenths")
        kernels = replace(self.kernels, in_tenths=tenths)
        return replace(self, **numbers, kernels=kernels, idle_gaps=self.idle_gaps[many:], rest=None)

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
    schema: str = SCHEMA

    @property
    def titles(self) -> list[str]:
        """The name of each GPU."""
        return gpu_titles((gpu.rank, gpu.device) for gpu in self.gpus)

    @property
    def many(self) -> bool:
        """Too many GPUs to show one by one?"""
        return len(self.gpus) > MANY_GPUS
