"""Data classes for the measures of a GPU's operations: kernels, operators behind them, arithmetic, copies, launches."""

from __future__ import annotations

from dataclasses import dataclass, field

LOST_SHARE = 0.1  # if this share of the launches has no operation in the recording, causes of idle time are not judged


@dataclass(slots=True)
class NamedKernel:
    name: str
    count: int
    total_ns: int
    # The kernel's part of the ledger's time. Of overlapping kernels of one class, the one that began first owns the
    # time. None in measures of earlier versions.
    owned_ns: int | None = None
    # For a kernel that XLA compiled, the path of the framework's operator with most of its time; None: not known.
    operator: str | None = None


@dataclass(slots=True)
class NamedOperator:
    """An operator or a layer: its kernels, and the idle time before its kernels and copies."""

    name: str
    kernels: int
    total_ns: int  # sum of the lengths of its kernels that start in the window
    owned_ns: int  # its part of the ledger's compute and collective time
    idle_ns: int


@dataclass(slots=True)
class Operators:
    """Time by operator or layer. The rows, `others` and `unknown` add up to the totals of all kernels, and to the
    ledger."""

    source: str  # where the names come from: kernels, operators or ranges
    rows: list[NamedOperator]
    distinct: int  # number of names, also of those in `others`
    others: NamedOperator  # sum over the operators that have no row
    unknown: NamedOperator  # sum over the kernels whose operator is not known
    # Compute and collective time of kernels in XLA's CUDA graphs, whose operator is not known.
    in_graphs_ns: int = 0


@dataclass(slots=True)
class Unfilled:
    """The time in which the running kernels have fewer thread blocks than half of the GPU's multiprocessors."""

    multiprocessors: int
    ns: int
    lost_ns: int  # ns weighted by the share of the multiprocessors that have no block
    kernels: list[str]  # names of the three kernels of so few blocks that run longest in `ns`


@dataclass(slots=True)
class Kernels:
    count: int
    graph_launches: int
    graph_nodes: int
    per_step: int | None
    distinct: int
    median_ns: int | None
    share_under_5us: float | None
    launch_latency_ns: dict[str, int] | None  # p50, p95: from a launch call's end to the kernel's start, where positive
    top: list[NamedKernel]
    groups: dict[str, dict[str, int]]  # group of kernels -> count, total_ns
    short_elementwise_runs: dict[str, int]  # candidates for fusion; keys: runs, kernels, total_ns
    under_5us_ns: int | None = None  # total time of kernels under 5 µs
    unfused_ns: int | None = None  # time of element-wise work, reductions and normalisation that no compiler fused
    recurrent_cells: int = 0  # number of time steps of recurrent cells that run kernel by kernel
    # Number of kernels and graph launches that start in each tenth of the window; empty in measures of earlier
    # versions.
    in_tenths: list[int] = field(default_factory=list)
    # None if the blocks of kernels or the GPU's multiprocessors are not known.
    unfilled: Unfilled | None = None


@dataclass(slots=True)
class Computed:
    """The calls of an operator with one set of operand shapes: FLOPs, fewest bytes moved, and time."""

    name: str
    shapes: str
    dtype: str  # tf32: float32 on tensor cores, which round the operands to TF32
    calls: int
    flops: int
    bytes: int  # the fewest bytes moved: each input and output once
    kernel_ns: int  # sum of the lengths of its kernels that start in the window
    flops_per_s: float | None
    of_peak: float | None  # share of the GPU's peak for this type
    bound: str | None  # compute or memory: the roof (of the roofline model) that limits it
    of_roof: float | None  # least time under that roof / time taken


@dataclass(slots=True)
class Arithmetic:
    """The arithmetic of operators whose shapes are known, in the window: a lower bound if `matrix_share` is below 1."""

    flops: int
    flops_by_dtype: dict[str, int]
    flops_per_s: float  # flops / length of the window
    mfu: float | None  # model FLOPs utilisation: flops_per_s / the GPU's peak
    mfu_unknown: str | None  # reason if mfu is None
    kernel_ns: int  # time of the kernels of these operators
    matrix_share: float | None  # share of the time of convolutions and matrix products of which the work is known
    peak_flops_per_s: dict[str, float | None] | None
    peak_bytes_per_s: float | None
    peak_source: str | None
    rows: list[Computed]
    distinct: int

    @property
    def all_told(self) -> bool:
        """True if the work of nearly all convolutions and matrix products is known."""
        return self.matrix_share is None or self.matrix_share >= 0.95


@dataclass(slots=True)
class Returned:
    """Copies of offloaded tensors, which go to the host as often as they come back, and the idle time before the
    copies."""

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
    pageable_share: float | None  # share of the bytes
    under_64kib: int | None
    synchronous: int | None  # number of copies by a call that waits for the copy's end
    managed_share: float | None = None  # by bytes; pages that the driver moves when they are touched
    per_step: int | None = None  # median over the measured steps
    managed_idle_ns: int | None = None  # unknown idle time that ends with a move of managed memory
    # owner -> ns of launch and wait idle between the call of a synchronous copy and the copy's start.
    called_idle_ns: dict[str, int] = field(default_factory=dict)
    # Copies of tensors that a training offloads to the host; None if there are none.
    returned: Returned | None = None

    @property
    def pages(self) -> bool:
        """True if most bytes are pages of managed memory, which the driver moves when they are touched."""
        return (self.managed_share or 0.0) >= 0.5


@dataclass(slots=True)
class Launches:
    """Counts of the launches of kernels and graphs by the processes of a GPU, in the whole recording.

    `lost`: launches without an operation in the recording. `graphs`, `graphs_lost`: the graph launches among
    `count` and `lost`. `captured`: kernels only captured into a graph, not in `count`. `thinned`: the estimated
    part of `lost` that somebody removed from the file together with the calls.
    """

    count: int = 0
    lost: int = 0
    graphs: int = 0
    graphs_lost: int = 0
    captured: int = 0
    thinned: int = 0

    @property
    def share_lost(self) -> float:
        """The share of launches that are lost; of graph launches if that is larger, since a graph holds many
        kernels."""
        shares = (self.lost, self.count), (self.graphs_lost, self.graphs)
        return max(part / whole if whole else 0.0 for part, whole in shares)

    @property
    def only_captures(self) -> bool:
        """True if the recording shows mostly captures of graphs, and no operation of a graph."""
        return self.captured > self.count - self.lost and not self.graphs - self.graphs_lost

    @property
    def told(self) -> bool:
        """True if nearly all launches have an operation in the recording; otherwise idle time cannot be judged."""
        return self.share_lost < LOST_SHARE and not self.only_captures
