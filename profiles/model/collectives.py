"""Data classes for the measures of a GPU's collectives."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass(slots=True)
class Bucket:
    """A collective of one step. Times are in ns from the step's start, on a clock that stops while collectives own
    the GPU."""

    bytes: int | None
    ready_ns: int  # the time when all ranks had arrived at it
    needed_ns: int | None  # the time when the next operations need its result; None: none is seen to wait
    transfer_ns: int


@dataclass(slots=True)
class OneStep:
    """The collectives of the measured step with the median exposed transfer, in the order of their ends."""

    step: int
    rest_ns: int  # length of the step on the clock that stops while collectives own the GPU
    exposed_ns: int  # part of all transfers that nothing hides
    buckets: list[Bucket]


@dataclass(slots=True)
class OfSize:
    """The collectives of one kind and communicator that have the same number of bytes."""

    kind: str
    bytes: int  # bytes of one collective
    count: int
    lasted_ns: int  # sum of their lengths, with waiting for other ranks
    transfer_ns: int | None  # sum from all ranks' arrival to the end; None: some not matched with other ranks
    gb_per_s: float | None  # bytes / transfer_ns; if that is None, bytes / lasted_ns, a lower bound
    bus_gb_per_s: float | None  # bus bandwidth as in nccl-tests; None unless all-reduces with known transfers
    # NCCL's number of the communicator, or PyTorch's process group; None: not known.
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
    skew_ns: dict[str, int] | None  # p50 and max of: latest start over the ranks minus this rank's start
    waiting_ns: int | None
    transfer_ns: int | None
    arrived_last_share: float | None
    # Idle time from the enqueueing of tensors with Horovod to the launch of their exchange; mostly `idle_peers`.
    negotiation_ns: int | None = None
    # Idle time before collectives of which it is not known if it is `idle_launch` or waiting for other ranks.
    peers_or_launch_ns: int = 0
    # The part of exposed_ns in which this rank waited for other ranks.
    exposed_waiting_ns: int | None = None
    # For each kind (all_reduce, reduce_scatter, ...): count, busy_ns, exposed_ns, bytes (if known for all of the
    # kind), and dtype (the most frequent type).
    kinds: dict[str, dict[str, Any]] = field(default_factory=dict)
    # The collectives with known bytes, by kind and size; the row with the most time first.
    by_size: list[OfSize] = field(default_factory=list)
    # None if no step has a collective that was matched with other ranks.
    one_step: OneStep | None = None
    # behind_ns: how much longer this rank's own part of a step (without exposed waiting) is than the mean over ranks,
    # on average. varies_ns: the standard deviation of this difference. None with fewer than three common steps.
    behind_ns: int | None = None
    varies_ns: int | None = None
    # How much shorter a step would be, on average, if the ranks exchanged once per step. None with fewer than three
    # common steps.
    by_turns_ns: int | None = None
