"""Measures of a GPU's collectives."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass(slots=True)
class Bucket:
    """A collective of one step, in ns from the step's start on a clock that stands while collectives own the GPU."""

    bytes: int | None
    ready_ns: int  # all ranks had arrived
    needed_ns: int | None  # the next operations waited for its end; None: none is seen to
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
