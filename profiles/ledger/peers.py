"""Idle time in which a GPU waits for other ranks (docs/reference/measures.md, "Waiting for other ranks").

Horovod launches a collective only when every rank has enqueued its part, so each rank waits for the last one. A
rank's own recording shows the time from enqueueing to launch; the other ranks' recordings show when the last rank
enqueued. `waits` finds the time in this rank's recording; `settle` divides it by the other ranks' times.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Final

import numpy as np
from numpy.typing import NDArray

from ..gpus.operations import COLLECTIVE, Gpu, Operations
from ..ground import intervals
from ..ground.groups import by_value, rows_by_value
from ..ground.intervals import Intervals
from ..model.measures import OWNERS
from ..model.names import fitting
from .enqueued import BY_HOROVOD, FOREVER, UNKNOWN, HandedOver

Int64s = NDArray[np.int64]
_NEVER: Final = np.iinfo(np.int64).min
_PACKS: Final = r"(?i)batched\w{0,40}memcpy"  # a kernel of Horovod that copies many tensors into one buffer
_LATE = tuple(OWNERS.index(name) for name in ("idle_sync", "idle_launch"))  # causes before work launched late


@dataclass(frozen=True, slots=True)
class Waits:
    """Idle times before collectives, int64[n] ns, ascending and disjoint.

    Each begins when this rank enqueued the collective, or with the idle span if that time is not known, and ends
    with the idle span. `called_ns`: start of the collective's launch call. `collective`: the collective's number
    among the GPU's, sorted by end. `source`: how the time of enqueueing is known. `owner`: index into OWNERS of
    the idle time's cause if the cause is not `peers`.
    """

    start_ns: Int64s
    end_ns: Int64s
    called_ns: Int64s
    collective: Int64s
    source: NDArray[np.int8]
    owner: NDArray[np.int8]

    def at(self, rows: NDArray[np.signedinteger]) -> Waits:
        return Waits(*(getattr(self, one.name)[rows] for one in fields(self)))

    @property
    def spans(self) -> Intervals:
        return intervals.union(self.start_ns, self.end_ns)


def none() -> Waits:
    """No waits: for a GPU that never waits, or whose waiting is not known."""
    no_times, nobody = np.empty(0, np.int64), np.empty(0, np.int8)
    return Waits(no_times, no_times, no_times, no_times, nobody, nobody)


def waits(gpu: Gpu, handed: HandedOver, edges: Int64s, owners: NDArray[np.int8], taken: Intervals) -> Waits:
    """Find the waits of a GPU. `handed`: when its collectives were enqueued. `edges`, `owners`: the pieces of
    ledger.parted with their causes. `taken`: idle time whose cause is settled already."""
    every = gpu.operations
    operations = every.lasting()
    of_all = every.kind == COLLECTIVE
    lasting = (every.end_ns > every.start_ns)[of_all]
    number = by_end(every.end_ns[of_all])[lasting]
    handed = handed.at(lasting)
    rows = np.flatnonzero(operations.kind == COLLECTIVE)
    idle = np.flatnonzero(np.isin(owners, _LATE)) if len(rows) else np.empty(0, np.int64)
    dry, end = edges[idle], edges[idle + 1]
    ender = np.minimum(np.searchsorted(operations.start_ns, dry, side="right"), len(operations) - 1)
    launched, called, _ = operations.calls(ender)
    called = np.minimum(called, end)
    prepares = ~operations.is_kernel[ender] | fitting(gpu.names, _PACKS)[np.maximum(operations.name[ender], 0)]
    place = _exchanged(operations, rows, ender, np.where(prepares, called, _NEVER), handed)
    late = np.flatnonzero((place >= 0) & launched & (called > dry))
    place = place[late]
    source = handed.source[place]
    start = np.where(source == UNKNOWN, dry[late], np.maximum(dry[late], handed.at_ns[place]))
    held = start < end[late]
    whole = Waits(start, end[late], called[late], number[place], source, owners[idle[late]])
    whole = whole.at(np.flatnonzero(held))
    left = intervals.subtract(Intervals(whole.start_ns, whole.end_ns), taken)
    of = np.searchsorted(whole.start_ns, left.start, side="right") - 1
    return Waits(left.start, left.end, *(getattr(whole.at(of), one.name) for one in fields(whole)[2:]))


def by_end(end_ns: Int64s) -> Int64s:
    """For each operation, its place when the operations are sorted by end."""
    found = np.empty(len(end_ns), np.int64)
    found[np.argsort(end_ns, kind="stable")] = np.arange(len(end_ns))
    return found


def _exchanged(operations: Operations, rows: Int64s, ender: Int64s, called: Int64s, handed: HandedOver) -> Int64s:
    """For each operation `ender`, the index into `rows` of the collective that it belongs to; -1: none.

    The operation is the collective itself, or a copy into Horovod's fusion buffer. Such a copy precedes the
    collective on its stream, and was launched after the tensor was enqueued. `called`: start of the launch call;
    _NEVER for operations that are no copy.
    """
    found = np.full(len(ender), -1)
    enders_of = rows_by_value(operations.stream[ender])
    for one, on_stream in by_value(operations.stream[rows]):
        mine = enders_of[one]
        following = np.searchsorted(rows[on_stream], ender[mine])
        mine, following = mine[following < len(on_stream)], following[following < len(on_stream)]
        place = on_stream[following]
        itself = rows[place] == ender[mine]
        before = (handed.source[place] == BY_HOROVOD) & (handed.at_ns[place] <= called[mine])
        found[mine[itself | before]] = place[itself | before]
    return found


@dataclass(frozen=True, slots=True)
class Settled:
    """The waits of a GPU, divided by cause.

    `of_owner`: the time that was waiting for other ranks, by the owner (an index into OWNERS) that had it before.
    `untold`: time whose cause stays unknown. `before_ns`: the wait before each collective, int64[n] ns.
    `nothing_known`: True if the other ranks' times are known for none of the waits.
    """

    of_owner: Mapping[int, Intervals]
    untold: Intervals
    before_ns: Int64s
    nothing_known: bool

    @property
    def peers(self) -> Intervals:
        return intervals.merge(*self.of_owner.values())


def settle(own: Waits, others_ns: Int64s, all_there: bool, negotiated: tuple[Int64s, Int64s] | None = None) -> Settled:
    """Divide a GPU's waits into waiting for other ranks and the rest.

    `others_ns`: for each collective, when the last other rank enqueued it, in ns on this GPU's clock; FOREVER if
    not known. `all_there`: True if every rank has a recording. If one is missing, that rank may have been the
    last, and the time between the others and the launch is unknown. `negotiated`: for each wait, when this rank
    and when the last other rank were ready by Horovod's timeline; used where the recordings lack these times.
    """
    latest, start = others_ns[own.collective], own.start_ns
    known = (own.source != UNKNOWN) & (latest != FOREVER)
    called = np.minimum(own.called_ns, own.end_ns)
    untold = ~known | (not all_there)
    if negotiated is not None:
        ready, last = negotiated
        says = untold & (last != FOREVER)
        start = np.where(says & (own.source == UNKNOWN), np.clip(ready, start, np.maximum(called, start)), start)
        latest = np.where(says, last, latest)
        known, untold = known | says, untold & ~says
    until = np.where(known, np.clip(latest, start, np.maximum(called, start)), start)
    return Settled(
        {
            owner: intervals.union(start[own.owner == owner], until[own.owner == owner])
            for owner in np.unique(own.owner).tolist()
        },
        intervals.union(until[untold], called[untold]),
        intervals.summed(until - start, own.collective, len(others_ns)),
        nothing_known=not known.any(),
    )
