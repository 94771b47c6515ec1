"""Operations of each physical GPU, in one time-ordered set of arrays over all recordings and processes."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ..model.analysed import GpuOperations, Stream
from ..model.measures import CLASSES
from ..model.operations import Launches

if TYPE_CHECKING:
    import pandas as pd

COMPUTE, COLLECTIVE, H2D, D2H, P2P, D2D, MEMSET = range(len(CLASSES))
DIRECTIONS = (H2D, D2H, P2P, D2D)  # of copies
# The GPU needs 1 to 3 us from one operation of a stream to the next; in a longer pause it waits for something.
HAND_OVER_NS = 20_000
TABLES = ("kernels", "graphs", "copies", "memsets")

_ALL = slice(None)
Ints = NDArray[np.signedinteger[Any]]


@dataclass(frozen=True, slots=True)
class Source:
    """Columns of one recording in which operations look values up by row, so that they need no copies of them."""

    call_start_ns: NDArray[np.int64]
    call_end_ns: NDArray[np.int64]
    shift_ns: int  # added to the times of calls, it brings them to the GPU's clock
    bytes_of: tuple[NDArray[np.int64] | None, ...]  # per table; None: the table has no bytes
    # per table the CUDA graph node of each row, 0 for none; None: no row of the table was a node
    node_of: tuple[NDArray[np.int64] | None, ...]
    # per kernel the index in `operators` of the operator that the recording names for it, -1: none
    operator_of: Ints
    operators: tuple[str, ...]
    # per kernel the index in `works` of the text that describes its instruction, -1: none
    work_of: Ints
    works: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Operations:
    """Operations of one GPU, int64[n] ns, sorted by start, then by class, then by row of their table.

    Other columns are in the smallest integer type that holds them: widen them before any arithmetic.

    `process` numbers the (recording, pid) pairs of the GPU, `stream` its (process, context, stream) triples.
    `call_row` is the row of the launch call in `api`, -1 if it is not known: then call_start_ns and call_end_ns mean
    nothing. Several operations may share one call (the nodes of a CUDA graph).
    """

    start_ns: NDArray[np.int64]
    end_ns: NDArray[np.int64]
    kind: NDArray[np.int8]  # index into CLASSES
    stream: Ints
    process: Ints
    call_row: NDArray[np.int32]
    # for a kernel the index of its name in Gpu.names; for a graph launch a negative number per graph; for others 0
    name: Ints
    # the source of each operation: index into Gpu.places, index into TABLES, row of that table
    place: Ints
    table: NDArray[np.int8]
    row: NDArray[np.int32]
    sources: tuple[Source, ...]  # by place

    def __len__(self) -> int:
        return len(self.start_ns)

    @property
    def launched(self) -> NDArray[np.bool_]:
        """True for each operation whose launch call is known."""
        return self.call_row >= 0

    @property
    def call_start_ns(self) -> NDArray[np.int64]:
        """Start of each operation's launch call, in ns."""
        return self._called("call_start_ns")

    @property
    def call_end_ns(self) -> NDArray[np.int64]:
        """End of each operation's launch call, in ns."""
        return self._called("call_end_ns")

    def calls(self, rows: Ints) -> tuple[NDArray[np.bool_], NDArray[np.int64], NDArray[np.int64]]:
        """`launched`, `call_start_ns` and `call_end_ns` of these rows."""
        return self.call_row[rows] >= 0, self._called("call_start_ns", rows), self._called("call_end_ns", rows)

    def _called(self, column: str, rows: slice | Ints = _ALL) -> NDArray[np.int64]:
        call_row = self.call_row[rows]
        found = np.zeros(len(call_row), np.int64)
        for place, source in enumerate(self.sources):
            if len(source.call_start_ns):
                mine = _ALL if len(self.sources) == 1 else self.place[rows] == place
                found[mine] = getattr(source, column)[call_row[mine]]
                found[mine] += source.shift_ns
        return found

    @property
    def is_kernel(self) -> NDArray[np.bool_]:
        """True for kernels and CUDA graph launches, from which steps and batch gaps are computed."""
        return self.table <= TABLES.index("graphs")

    def graph_nodes(self) -> int:
        """The number of these kernels that were nodes of CUDA graphs."""
        return int(self.are_nodes(_ALL).sum())

    def are_nodes(self, rows: slice | NDArray[np.int64]) -> NDArray[np.bool_]:
        """True for each of these rows that is a kernel node of a CUDA graph."""
        found: NDArray[np.bool_] = (self.table[rows] == TABLES.index("kernels")) & (self.nodes(rows) != 0)
        return found

    def nodes(self, rows: slice | NDArray[np.int64]) -> NDArray[np.int64]:
        """The CUDA graph node of each of these rows, as the recording numbers it; 0: none."""
        table, placed, row = self.table[rows], self.place[rows], self.row[rows]
        found = np.zeros(len(table), np.int64)
        for place, source in enumerate(self.sources):
            for number, node_of in enumerate(source.node_of):
                if node_of is not None:
                    mine = (placed == place) & (table == number)
                    found[mine] = node_of[row[mine]]
        return found

    @property
    def bytes(self) -> NDArray[np.int64]:
        """Bytes moved or set by each copy or memset; 0 for other operations."""
        found = np.zeros(len(self), np.int64)
        for place, source in enumerate(self.sources):
            for table, sizes in enumerate(source.bytes_of):
                if sizes is not None:
                    mine = (self.place == place) & (self.table == table)
                    found[mine] = sizes[self.row[mine]]
        return found

    def chosen(self, which: NDArray[np.bool_]) -> Operations:
        """The operations for which `which` is True, in the same order."""
        return self if which.all() else self.at(np.flatnonzero(which))

    def at(self, rows: slice | NDArray[np.int64]) -> Operations:
        """The operations in these rows."""
        arrays = [one.name for one in fields(self) if one.name != "sources"]
        return Operations(**{name: getattr(self, name)[rows] for name in arrays}, sources=self.sources)

    def lasting(self) -> Operations:
        """The operations that last longer than 0 ns; others own no time and end no gap."""
        return self.chosen(self.end_ns > self.start_ns)


@dataclass(frozen=True, slots=True)
class Lacking:
    """Operations of a GPU that have no usable time, int64[n]: the start of their launch calls in ns on the GPU's clock,
    and the numbers of their processes and streams, -1 for a stream on which nothing else ran."""

    call_start_ns: Ints
    process: Ints
    stream: Ints

    def __len__(self) -> int:
        return len(self.call_start_ns)


@dataclass(frozen=True, slots=True)
class Gpu:
    """One physical GPU: the recordings that contain it, with its device number in each, and all its operations."""

    places: tuple[tuple[int, int], ...]  # (recording, device number in it)
    rank: int | None
    uuid: str | None
    bus_id: str | None
    name: str | None
    operations: Operations
    names: pd.Index  # distinct kernel names of its recordings, including kernels that only other GPUs ran
    processes: tuple[tuple[int, int], ...]  # (recording, pid) by process number
    streams: tuple[tuple[int, int, int], ...]  # (process number, context, stream) by stream number
    # numbers of processes whose API calls are on a clock far from the GPU's, so that their launch calls are ignored
    off_clock: tuple[int, ...] = ()
    too_early: int = 0  # operations left out because they started before they were launched
    launches: Launches = field(default_factory=Launches)  # of its processes
    lacking: Lacking = field(default_factory=lambda: Lacking(*[np.empty(0, np.int64)] * 3))

    @property
    def device(self) -> int:
        return self.places[0][1]


def for_pictures(gpu: Gpu) -> GpuOperations:
    """The arrays of a GPU that pictures need, without references to the recordings, so that these can be freed."""
    operations = gpu.operations
    moving = np.flatnonzero(~operations.is_kernel)
    return GpuOperations(
        start_ns=operations.start_ns,
        end_ns=operations.end_ns,
        kind=operations.kind,
        name=operations.name,
        stream=operations.stream,
        names=[str(name) for name in gpu.names],
        streams=tuple(Stream(*gpu.processes[process], *numbers) for process, *numbers in gpu.streams),
        moving=moving,
        moved_bytes=operations.at(moving).bytes,
    )


def narrow(numbers: Ints) -> Ints:
    """The numbers in the smallest integer type that holds them; if all are equal, a broadcast view of one of them."""
    low, high = (int(numbers.min()), int(numbers.max())) if len(numbers) else (0, 0)
    smallest = np.result_type(np.min_scalar_type(min(low, -1)), np.min_scalar_type(-1 - high))
    return np.broadcast_to(np.array(low, smallest), len(numbers)) if low == high else numbers.astype(smallest)


def distinct(values: NDArray[np.signedinteger[Any]]) -> NDArray[np.signedinteger[Any]]:
    """The distinct values, ascending. Fast for ids, which seldom change: sorts only values unlike the one before."""
    changes = np.flatnonzero(values[1:] != values[:-1]) + 1
    return np.unique(values[np.append(0, changes)] if len(values) else values)
