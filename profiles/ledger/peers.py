"""Idle time in which a GPU waits for other ranks (docs/reference/measures.md, "Waiting for other ranks").

A rank that has handed its part of a collective over waits until the last rank has, where the library launches the
collective only then. One recording shows how long it took until the launch; the other ranks' recordings show when the
last one was there. This module reads the first; `settle` brings in the second.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Final

import numpy as np
from numpy.typing import NDArray

from ..gpus.operations import COLLECTIVE, Gpu, Operations
from ..ground import intervals
from ..ground.intervals import Intervals
from ..model.measures import OWNERS
from ..model.names import fitting
from .handed_over import BY_HOROVOD, FOREVER, UNKNOWN, HandedOver

Int64s = NDArray[np.int64]
_NEVER: Final = np.iinfo(np.int64).min
_PACKS: Final = r"(?i)batched\w{0,40}memcpy"  # Horovod's kernel that copies many tensors into one buffer
_LATE = tuple(OWNERS.index(name) for name in ("idle_sync", "idle_launch"))  # of what is launched late


@dataclass(frozen=True, slots=True)
class Waits:
    """Parts of idle spans from when this rank had handed over (from their start, if nobody says when) to the collective
    that ends them, int64[n] ns, in order of time and apart.

    called_ns: when the collective's launch call began. collective: its place among the GPU's in order of end. source:
    who says when it was handed over. owner: the cause of the idle time where it is not `peers`, an index into OWNERS.
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
    """The value for a GPU that never waits, or whose waiting is not known."""
    no_times, nobody = np.empty(0, np.int64), np.empty(0, np.int8)
    return Waits(no_times, no_times, no_times, no_times, nobody, nobody)


def waits(gpu: Gpu, handed: HandedOver, edges: Int64s, owners: NDArray[np.int8], taken: Intervals) -> Waits:
    """`handed`: of the GPU's collectives. Pieces as ledger.parted gives them, with their causes. `taken`: idle time
    that has another cause in any case."""
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
    """The place of each in the order of ends."""
    found = np.empty(len(end_ns), np.int64)
    found[np.argsort(end_ns, kind="stable")] = np.arange(len(end_ns))
    return found


def _exchanged(operations: Operations, rows: Int64s, ender: Int64s, called: Int64s, handed: HandedOver) -> Int64s:
    """The collective that each of these operations belongs to, by its place in `rows`; -1: none.

    It is one itself, or comes before one on its stream, called after that was handed over to Horovod: a copy into one
    buffer. `called`: NEVER for what is no copy.
    """
    found = np.full(len(ender), -1)
    stream = operations.stream[ender]
    for one in np.unique(operations.stream[rows]).tolist():
        on_stream = np.flatnonzero(operations.stream[rows] == one)
        mine = np.flatnonzero(stream == one)
        following = np.searchsorted(rows[on_stream], ender[mine])
        mine, following = mine[following < len(on_stream)], following[following < len(on_stream)]
        place = on_stream[following]
        itself = rows[place] == ender[mine]
        before = (handed.source[place] == BY_HOROVOD) & (handed.at_ns[place] <= called[mine])
        found[mine[itself | before]] = place[itself | before]
    return found


@dataclass(frozen=True, slots=True)
class Settled:
    """What of a GPU's waits is `peers`, by the owner it is taken from (an index into OWNERS); what nothing tells of;
    how long it waited before each collective, int64[n] ns; is nothing known of any wait?"""

    of_owner: Mapping[int, Intervals]
    untold: Intervals
    before_ns: Int64s
    nothing_known: bool

    @property
    def peers(self) -> Intervals:
        return intervals.merge(*self.of_owner.values())


def settle(own: Waits, others_ns: Int64s, all_there: bool, negotiated: tuple[Int64s, Int64s] | None = None) -> Settled:
    """`others_ns`: per collective when the last of the other ranks had handed over, on the GPU's clock; FOREVER where
    that is not known, or no other rank's recording has it. `all_there`: every rank has a recording.
    `negotiated`: what Horovod's own timeline tells of each wait, of this rank and of the last of all others; it counts
    where the recordings do not tell.

    A missing rank may have been the last, so the time between the others and the launch is unknown then.
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
        np.bincount(own.collective, weights=until - start, minlength=len(others_ns)).astype(np.int64),
        nothing_known=not known.any(),
    )
