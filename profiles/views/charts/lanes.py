"""The operations of each GPU in lanes, in which no two operations overlap, for the page's timeline and Perfetto."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ...ground.groups import by_value
from ...model.analysed import Analysis, GpuOperations, HostRanges, Ownership
from ...model.measures import CLASSES, HOST, OWNERS
from ..palette import OWNERS as LOOKS

KINDS = (*OWNERS, *HOST)
_BLOCK = 1 << 17  # operations processed at a time, so that they fit a CPU cache
_MOST_LAYERS = 1 << 10  # deeper than Python's stack


@dataclass(frozen=True, slots=True)
class Lane:
    """A row of a timeline: operations or ranges without overlap, sorted by start, in ns on the clock of the GPU's first
    recording.

    `kind` holds indices into KINDS, `label` indices into `labels`; `bytes` is 0 for an operation that moves no data."""

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
    """The lanes of one GPU. `gpu` is the index into Measures.gpus; the lanes' times plus `shift_ns` are times on the
    clock that all GPUs share."""

    gpu: int
    title: str
    shift_ns: int
    streams: tuple[Lane, ...]


def of_gpus(analysis: Analysis) -> Iterator[GpuLanes]:
    """Yields each GPU's lanes, in the analysis's order. Raises ValueError if the analysis did not keep operations."""
    measures = analysis.measures
    for picture, title in zip(analysis.gpus, measures.titles, strict=True):
        if picture.operations is None:
            raise ValueError("nothing to draw: call analyse(..., operations=True), which keeps the operations")
        streams = tuple(_streams(picture.operations))
        yield GpuLanes(picture.gpu, title, shift_ns(analysis, picture.gpu), streams)
        del streams  # frees memory before the next GPU's lanes are made


def shift_ns(analysis: Analysis, gpu: int) -> int:
    """The ns to add to a GPU's times to bring them to the clock that all GPUs share."""
    return analysis.shift_ns[analysis.measures.gpus[gpu].recordings[0]]


def _streams(operations: GpuOperations) -> Iterator[Lane]:
    """A lane per (process, context, stream), and further lanes if operations of a stream overlap, as nodes of CUDA
    graphs do."""
    labels = [*operations.names, "CUDA graph", *(LOOKS[name].label for name in CLASSES)]
    graph = len(operations.names)
    label = operations.name.astype(np.int32)
    label[label < 0] = graph
    label[operations.moving] = graph + 1 + operations.kind[operations.moving].astype(np.int32)
    moved = np.zeros(len(operations), np.int64)
    moved[operations.moving] = operations.moved_bytes
    several = len({(stream.recording, stream.pid) for stream in operations.streams}) > 1
    # Contexts of one process may use the same stream numbers.
    alike = Counter((stream.recording, stream.pid, stream.number) for stream in operations.streams)
    rows_of = dict(by_value(operations.stream))
    for number, stream in sorted(enumerate(operations.streams), key=lambda one: one[1]):
        context = f", context {stream.context}" if alike[stream.recording, stream.pid, stream.number] > 1 else ""
        process = f", process {stream.pid}" if several else ""
        name = f"stream {stream.number}{context}{process}"
        for called, rows in _apart(operations, rows_of[number], name):
            yield Lane(
                called,
                operations.start_ns[rows],
                operations.end_ns[rows],
                operations.kind[rows],
                label[rows],
                labels,
                moved[rows],
            )


def of_host(host: HostRanges) -> Iterator[Lane]:
    """Yields the lanes of each thread of the host, the thread with most ranges first. Ranges inside another range are
    in further lanes below it."""
    several = len({(thread.recording, thread.pid) for thread in host.threads}) > 1
    for number, rows in sorted(by_value(host.thread), key=lambda one: -len(one[1])):
        thread = host.threads[number]
        name = f"thread {thread.tid}" + (f", process {thread.pid}" if several else "")
        for called, mine in _apart(host, rows, name):
            yield Lane(
                called,
                host.start_ns[mine],
                host.end_ns[mine],
                host.kind[mine] + np.int8(len(OWNERS)),
                host.name[mine],
                host.names,
                np.broadcast_to(np.int64(0), len(mine)),
            )


def _apart(of: GpuOperations | HostRanges, rows: NDArray[np.intp], name: str) -> Iterator[tuple[str, NDArray[np.intp]]]:
    """The name and the rows of each lane that these rows need; only the first lane's name is without a number."""
    layers = layer(of.start_ns[rows], of.end_ns[rows])
    for nth in range(int(layers.max(initial=-1)) + 1):
        yield name if nth == 0 else f"{name} ({nth + 1})", rows[layers == nth]


def layer(start: NDArray[np.int64], end: NDArray[np.int64]) -> NDArray[np.int32]:
    """The number of a lane, from 0, for each operation (sorted by start), so that no two in a lane overlap; int32[n].

    Each pass fills a lane with the operations that begin after all operations before them have ended, and leaves the
    others to the next lane. So operations without overlap take one pass. Those beyond _MOST_LAYERS get -1: a program
    that is nested so deep is drawn as far as that."""
    if (start[1:] >= end[:-1]).all():
        return np.zeros(len(start), np.int32)
    lane = np.full(len(start), -1, np.int32)
    left, number = np.arange(len(start), dtype=np.int32), 0
    while len(left) and number < _MOST_LAYERS:
        rest, reach = [], np.iinfo(np.int64).min
        for first in range(0, len(left), _BLOCK):
            some = left[first : first + _BLOCK]
            before = np.maximum.accumulate(np.append(reach, end[some]))
            fits = start[some] >= before[:-1]
            lane[some[fits]] = number
            rest.append(some[~fits])
            reach = before[-1]
        left, number = np.concatenate(rest), number + 1
    return lane


def merged(ownership: Ownership) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int8]]:
    """Starts, ends and owners after neighbouring segments of the same owner are joined."""
    owner = ownership.owner
    if not len(owner):
        return ownership.start_ns, ownership.end_ns, owner
    first = np.flatnonzero(np.concatenate(([True], owner[1:] != owner[:-1])))
    last = np.concatenate((first[1:] - 1, [len(owner) - 1]))
    return ownership.start_ns[first], ownership.end_ns[last], owner[first]


def ledger_lane(ownership: Ownership) -> Lane:
    """A lane without gaps that shows the owner of each nanosecond."""
    start, end, owner = merged(ownership)
    names = [LOOKS[name].label for name in OWNERS]
    return Lane("ledger", start, end, owner, owner.astype(np.int32), names, np.zeros(len(start), np.int64))
