"""The operations of each physical GPU: arrays in order of time over all recordings and processes."""

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
DIRECTIONS = (H2D, D2H, P2P, D2D)  # classes that are directions of copies

# The GPU needs 1 to 3 µs from one operation of a stream to the next; in a pause longer than this it waits for
# something.
HAND_OVER_NS = 20_000
TABLES = ("kernels", "graphs", "copies", "memsets")
KERNELS, GRAPHS, COPIES, MEMSETS = range(len(TABLES))

_ALL = slice(None)
Ints = NDArray[np.signedinteger[Any]]


@dataclass(frozen=True, slots=True)
class Source:
    """Columns of one recording in which `Operations` looks up values by row, to need no copies of these columns."""

    call_start_ns: NDArray[np.int64]
    call_end_ns: NDArray[np.int64]
    shift_ns: int  # ns that bring the recording's times to the GPU's clock
    bytes_of: tuple[NDArray[np.int64] | None, ...]  # for each of TABLES; None: the table has no bytes
    # For each of TABLES, the CUDA graph node of each row, 0 for none; None if no row of the table was a node.
    node_of: tuple[NDArray[np.int64] | None, ...]
    # For each kernel, the index in `operators` of the operator that the recording names for it; -1: none.
    operator_of: Ints
    operators: tuple[str, ...]
    blocks_of: Ints  # for each kernel, the thread blocks of its grid; 0: not known
    # For each kernel, the index in `works` of a text that describes its instruction; -1: none.
    work_of: Ints
    works: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Operations:
    """Operations of one GPU, int64[n] ns, sorted by start, then by class, then by row of their table.

    Columns other than times are in the smallest integer type that holds them: widen them before any arithmetic.

    `process` is an index into the GPU's (recording, pid) pairs, `stream` into its (process, context, stream)
    triples. `call_row` is the row of the launch call in `api`, -1 if it is not known: then call_start_ns and
    call_end_ns mean nothing. Several operations may share one call (the nodes of a CUDA graph).
    """

    start_ns: NDArray[np.int64]
    end_ns: NDArray[np.int64]
    kind: NDArray[np.int8]  # index into CLASSES
    stream: Ints
    process: Ints
    call_row: NDArray[np.int32]
    # For a kernel, the index of its name in Gpu.names; for a graph launch, a negative number per graph; for others 0.
    name: Ints
    # Where the operation was recorded: index into Gpu.places, index into TABLES, row of that table.
    place: Ints
    table: NDArray[np.int8]
    row: NDArray[np.int32]
    sources: tuple[Source, ...]  # one for each of Gpu.places

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
        """For these rows: whether the launch call is known, its start and its end in ns."""
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
        return self.table <= GRAPHS

    def graph_nodes(self) -> int:
        """The number of kernels that were nodes of CUDA graphs."""
        return int(self.are_nodes(_ALL).sum())

    def are_nodes(self, rows: slice | NDArray[np.int64]) -> NDArray[np.bool_]:
        """True for each of these rows that is a kernel and was a node of a CUDA graph."""
        found: NDArray[np.bool_] = (self.table[rows] == KERNELS) & (self.nodes(rows) != 0)
        return found

    def nodes(self, rows: slice | NDArray[np.int64]) -> NDArray[np.int64]:
        """For each of these rows, the number of its CUDA graph node in the recording; 0: none."""
        return self._by_table("node_of", rows)

    def blocks(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """The thread blocks of each of these rows, which are kernels; 0: not known."""
        placed, row = self.place[rows], self.row[rows]
        found = np.zeros(len(row), np.int64)
        for place, source in enumerate(self.sources):
            mine = placed == place
            found[mine] = source.blocks_of[row[mine]]
        return found

    @property
    def bytes(self) -> NDArray[np.int64]:
        """Bytes moved or set by each copy or memset; 0 for other operations."""
        return self._by_table("bytes_of", _ALL)

    def _by_table(self, column: str, rows: slice | NDArray[np.int64]) -> NDArray[np.int64]:
        """For each of these rows, its value in a column that `Source` has for each of TABLES; 0: none."""
        table, placed, row = self.table[rows], self.place[rows], self.row[rows]
        found = np.zeros(len(table), np.int64)
        for place, source in enumerate(self.sources):
            for number, values in enumerate(getattr(source, column)):
                if values is not None:
                    mine = (placed == place) & (table == number)
                    found[mine] = values[row[mine]]
        return found

    def chosen(self, which: NDArray[np.bool_]) -> Operations:
        """The operations for which `which` is True, in the same order."""
        return self if which.all() else self.at(np.flatnonzero(which))

    def at(self, rows: slice | NDArray[np.int64]) -> Operations:
        arrays = [one.name for one in fields(self) if one.name != "sources"]
        return Operations(**{name: getattr(self, name)[rows] for name in arrays}, sources=self.sources)

    def lasting(self) -> Operations:
        """The operations that last longer than 0 ns. Others own no time and end no gap."""
        return self.chosen(self.end_ns > self.start_ns)


@dataclass(frozen=True, slots=True)
class Lacking:
    """Operations of a GPU that have no usable time, int64[n].

    `call_start_ns`: start of the launch call, ns on the GPU's clock. `process`, `stream`: the numbers of its
    process and stream; the stream is -1 if nothing else ran on it.
    """

    call_start_ns: Ints
    process: Ints
    stream: Ints

    def __len__(self) -> int:
        return len(self.call_start_ns)


@dataclass(frozen=True, slots=True)
class Gpu:
    """One physical GPU: the recordings in which it appears, with its device number in each, and all its operations."""

    places: tuple[tuple[int, int], ...]  # (recording, device number in it)
    rank: int | None
    uuid: str | None
    bus_id: str | None
    name: str | None
    multiprocessors: int | None
    operations: Operations
    names: pd.Index  # distinct names of the kernels in its recordings, also of kernels that other GPUs ran
    processes: tuple[tuple[int, int], ...]  # (recording, pid) for each process number
    streams: tuple[tuple[int, int, int], ...]  # (process number, context, stream) for each stream number
    # Numbers of processes whose API calls are on a clock far from the GPU's; their launch calls are ignored.
    off_clock: tuple[int, ...] = ()
    too_early: int = 0  # number of operations left out because they started before their launch call
    launches: Launches = field(default_factory=Launches)  # launches by the GPU's processes
    lacking: Lacking = field(default_factory=lambda: Lacking(*[np.empty(0, np.int64)] * 3))

    @property
    def device(self) -> int:
        return self.places[0][1]


def for_pictures(gpu: Gpu) -> GpuOperations:
    """The arrays of a GPU that pictures need; they do not refer to the recordings, which can then be freed."""
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
    """The numbers in the smallest integer type that holds them; if all are equal, a view that takes no memory for
    each."""
    low, high = (int(numbers.min()), int(numbers.max())) if len(numbers) else (0, 0)
    smallest = np.result_type(np.min_scalar_type(min(low, -1)), np.min_scalar_type(-1 - high))
    return np.broadcast_to(np.array(low, smallest), len(numbers)) if low == high else numbers.astype(smallest)


def distinct(values: NDArray[np.signedinteger[Any]]) -> NDArray[np.signedinteger[Any]]:
    """The distinct values, ascending. It sorts only values that differ from the one before, which is fast for ids."""
    changes = np.flatnonzero(values[1:] != values[:-1]) + 1
    return np.unique(values[np.append(0, changes)] if len(values) else values)
