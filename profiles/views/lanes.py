"""The operations of each GPU in lanes that never overlap: what the page's picture and Perfetto draw."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ..gpus.gather import gather
from ..gpus.operations import TABLES, Gpu
from ..measures import CLASSES, OWNERS, Analysis, GpuMeasures, Ownership
from ..timeline import Timeline
from .charts.palette import OWNERS as LOOKS


@dataclass(frozen=True, slots=True)
class Lane:
    """Slices that do not overlap, sorted by start, ns on the clock of the GPU's first recording.

    `kind` is an index into OWNERS, `label` one into `labels`; `bytes` is 0 where an operation moves none.
    """

    name: str
    start_ns: NDArray[np.int64]
    end_ns: NDArray[np.int64]
    kind: NDArray[np.int8]
    label: NDArray[np.int32]
    labels: Sequence[str]
    bytes: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.start_ns)


@dataclass(frozen=True, slots=True)
class GpuLanes:
    """`gpu` is the index into Measures.gpus; `shift_ns` brings its times on the common clock."""

    gpu: int
    title: str
    shift_ns: int
    streams: tuple[Lane, ...]


def title(gpu: GpuMeasures) -> str:
    """How every view calls a GPU: by rank where it is known."""
    return f"rank {gpu.rank}, GPU {gpu.device}" if gpu.rank is not None else f"GPU {gpu.device}"


def of_gpus(analysis: Analysis, timelines: Sequence[Timeline]) -> Iterator[GpuLanes]:
    """The lanes of each GPU of the analysis, in its order."""
    gathered = {gpu.places[0]: gpu for gpu in gather(timelines, analysis.shift_ns)}
    for index, measured in enumerate(analysis.measures.gpus):
        gpu = gathered[measured.recordings[0], measured.device]
        streams = tuple(_streams(gpu, timelines))
        yield GpuLanes(index, title(measured), analysis.shift_ns[measured.recordings[0]], streams)


def _streams(gpu: Gpu, timelines: Sequence[Timeline]) -> Iterator[Lane]:
    """A lane per (process, context, stream), and more where operations of one stream ran at once (graph nodes)."""
    operations = gpu.operations
    kernel_names = [str(name) for name in gpu.names]
    labels = [*kernel_names, "CUDA graph", *(LOOKS[name].label for name in CLASSES)]
    graph = len(kernel_names)
    label = np.where(operations.is_kernel, operations.name, graph + 1 + operations.kind.astype(np.int32))
    label[operations.is_kernel & (operations.name < 0)] = graph
    found = []
    for stream in np.unique(operations.stream):
        mine = np.flatnonzero(operations.stream == stream)
        found.append((_stream(gpu, timelines, int(mine[0])), mine))
    for (_, pid, _, number_of_stream), mine in sorted(found, key=lambda one: one[0]):
        process = f", process {pid}" if len(gpu.processes) > 1 else ""
        name = f"stream {number_of_stream}{process}"
        layers = layer(operations.start_ns[mine], operations.end_ns[mine])
        for number in range(int(layers.max()) + 1):
            rows = mine[layers == number]
            yield Lane(
                name if number == 0 else f"{name} ({number + 1})",
                operations.start_ns[rows],
                operations.end_ns[rows],
                operations.kind[rows],
                label[rows],
                labels,
                operations.bytes[rows],
            )


def _stream(gpu: Gpu, timelines: Sequence[Timeline], operation: int) -> tuple[int, int, int, int]:
    """Recording, process, context and stream of an operation, as its recording numbers them."""
    operations = gpu.operations
    recording = gpu.places[operations.place[operation]][0]
    table = getattr(timelines[recording], TABLES[operations.table[operation]])
    row = table.iloc[operations.row[operation]]
    return recording, int(row["pid"]), int(row["context"]), int(row["stream"])


def layer(start: NDArray[np.int64], end: NDArray[np.int64]) -> NDArray[np.int32]:
    """For operations sorted by start, the lane of each such that no two of a lane overlap; int32[n] from 0.

    A pass takes those that begin after all before them have ended and leaves the rest to the next lane, so what runs
    one after another takes one pass whatever its number.
    """
    lane = np.full(len(start), -1, np.int32)
    left = np.arange(len(start))
    number = 0
    while len(left):
        before = np.maximum.accumulate(np.concatenate(([np.iinfo(np.int64).min], end[left][:-1])))
        fits = start[left] >= before
        lane[left[fits]] = number
        left, number = left[~fits], number + 1
    return lane


def merged(ownership: Ownership) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int8]]:
    """Start, end and owner of the longest runs of one owner: the segments without the seams inside a run."""
    owner = ownership.owner
    if not len(owner):
        return ownership.start_ns, ownership.end_ns, owner
    first = np.flatnonzero(np.concatenate(([True], owner[1:] != owner[:-1])))
    last = np.concatenate((first[1:] - 1, [len(owner) - 1]))
    return ownership.start_ns[first], ownership.end_ns[last], owner[first]


def ledger_lane(ownership: Ownership) -> Lane:
    """Who owned each nanosecond, as a lane: it has no holes."""
    start, end, owner = merged(ownership)
    names = [LOOKS[name].label for name in OWNERS]
    return Lane("ledger", start, end, owner, owner.astype(np.int32), names, np.zeros(len(start), np.int64))
