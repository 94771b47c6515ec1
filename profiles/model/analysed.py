"""Results of `analyse` for pictures: the owner of each ns of a GPU, its steps and its operations.

Arrays are sorted by start, in ns on the clock of the GPU's first recording.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from .measures import Measures


@dataclass(frozen=True, slots=True)
class Ownership:
    """A GPU's window as contiguous segments with one owner each, which add up to the ledger.

    start_ns, end_ns: int64[n], end_ns[i] == start_ns[i + 1]; owner: int8[n], an index into OWNERS.
    """

    start_ns: NDArray[np.int64]
    end_ns: NDArray[np.int64]
    owner: NDArray[np.int8]


class Stream(NamedTuple):
    """A stream of a GPU: the recording, and the ids that the recording has for it."""

    recording: int  # index into Measures.recordings
    pid: int
    context: int
    number: int


@dataclass(frozen=True, slots=True)
class GpuOperations:
    """Every operation of a GPU in order of start: arrays of one length, in ns on the clock of the GPU's first
    recording."""

    start_ns: NDArray[np.int64]
    end_ns: NDArray[np.int64]
    kind: NDArray[np.int8]  # index into CLASSES
    name: NDArray[np.signedinteger[Any]]  # index into `names` for a kernel; negative for a CUDA graph; else 0
    stream: NDArray[np.signedinteger[Any]]  # index into `streams`
    names: Sequence[str]
    streams: tuple[Stream, ...]
    # The copies and memsets, as indices into the other arrays, and the bytes of each.
    moving: NDArray[np.int64]
    moved_bytes: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.start_ns)


class HostThread(NamedTuple):
    """A thread of a process: the recording, and the ids that the recording has for it."""

    recording: int  # index into Measures.recordings
    pid: int
    tid: int


@dataclass(frozen=True, slots=True)
class HostRanges:
    """Ranges on threads of a GPU's processes, sorted by start: arrays of one length, on the same clock as
    GpuOperations."""

    start_ns: NDArray[np.int64]
    end_ns: NDArray[np.int64]
    kind: NDArray[np.int8]  # index into HOST
    name: NDArray[np.int32]  # index into `names`
    thread: NDArray[np.int32]  # index into `threads`
    names: Sequence[str]
    threads: tuple[HostThread, ...]


@dataclass(frozen=True, slots=True)
class GpuAnalysis:
    """Data of one GPU for pictures: the owner of each ns, the measured steps, and every operation."""

    gpu: int  # index into Measures.gpus
    ownership: Ownership
    step_start_ns: NDArray[np.int64]
    step_end_ns: NDArray[np.int64]
    operations: GpuOperations | None = None  # None if `analyse` was not asked for operations
    host: HostRanges | None = None  # None if `analyse` was not asked for operations


@dataclass(frozen=True, slots=True)
class Analysis:
    """The result of `profiles.analyse`: the measures, and the data of each GPU for pictures."""

    measures: Measures
    gpus: tuple[GpuAnalysis, ...]
    shift_ns: tuple[int, ...]  # for each recording, ns to add to its times for the common clock
