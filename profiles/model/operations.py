"""Measures of a GPU's operations: kernels and the operators behind them, arithmetic, copies, launches."""

from __future__ import annotations

from dataclasses import dataclass, field

LOST_SHARE = 0.1  # from this share of what was launched on, the rest tells nothing of why a GPU was idle


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
class Returned:
    """Copies of sizes that go to the host as often as they come from there, and idle time that they end, by owner."""

    bytes: int
    exposed_ns: int
    idle_ns: dict[str, int]


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
    # of what a training keeps on the host and copies to and fro; None where there is nothing of the kind
    returned: Returned | None = None

    @property
    def pages(self) -> bool:
        """True if most of it is pages of managed memory, which the driver moved when they were touched."""
        return (self.managed_share or 0.0) >= 0.5


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
