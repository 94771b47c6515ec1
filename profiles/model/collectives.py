"""Measures of a GPU's collectives."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass(slots=True)
class Bucket:
    """A collective of one step, in ns from the step's start on a clock that stops while collectives own the GPU."""

    bytes: int | None
    ready_ns: int  # when all ranks had arrived
    needed_ns: int | None  # when the next operations need its result; None: none is seen to wait for it
    transfer_ns: int


@dataclass(slots=True)
class OneStep:
    """The collectives of the measured step with the median exposed transfer, in the order of their ends."""

    step: int
    rest_ns: int  # length of the step on that clock
    exposed_ns: int  # exposed part of the transfers
    buckets: list[Bucket]


@dataclass(slots=True)
class OfSize:
    """The collectives of one kind, communicator and size in bytes."""

    kind: str
    bytes: int  # per collective
    count: int
    lasted_ns: int  # sum of their lengths, waiting for other ranks included
    transfer_ns: int | None  # from when all ranks had arrived to the end; None: not all were matched with another rank
    gb_per_s: float | None  # bytes / transfer_ns; without transfers bytes / lasted_ns, a lower bound
    bus_gb_per_s: float | None  # bus bandwidth as in nccl-tests; all-reduces with known transfers only
    # NCCL's number of the communicator, or PyTorch's process group; None: not known
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
    # idle time between enqueueing tensors with Horovod and the launch of their exchange; mostly `idle_peers`
    negotiation_ns: int | None = None
    # launch idle that a collective ended and that may be waiting for other ranks: not known which
    peers_or_launch_ns: int = 0
    # the part of exposed_ns in which this rank waited for others
    exposed_waiting_ns: int | None = None
    # kind (all_reduce, reduce_scatter, ...) -> count, busy_ns, exposed_ns, bytes (if known for all of the kind), dtype
    # (the most frequent type)
    kinds: dict[str, dict[str, Any]] = field(default_factory=dict)
    # the collectives with known bytes, by kind and size; the most time first
    by_size: list[OfSize] = field(default_factory=list)
    # None: no step has a collective that was matched with other ranks
    one_step: OneStep | None = None
    # behind_ns: how much longer this rank's own part of a step (less the exposed waiting) is than the mean over ranks,
    # on average; varies_ns: the standard deviation of this difference; None: fewer than three common steps
    behind_ns: int | None = None
    varies_ns: int | None = None
    # by how much shorter a step would be, on average, if the ranks exchanged once per step; None: as above
    by_turns_ns: int | None = None
