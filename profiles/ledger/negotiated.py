"""Find when each rank had a tensor ready, from Horovod's timeline (HOROVOD_TIMELINE).

While the ranks negotiate a tensor, Horovod's coordinator writes an event for each rank when it hears that the
tensor is ready there. Then follows a range of the exchange; a launch call within it belongs to all tensors
exchanged at that time.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np
from numpy.typing import NDArray

from ..ground import intervals
from ..model.timeline import Timeline
from .enqueued import FOREVER

Int64s = NDArray[np.int64]
READY = "READY"  # name that readers.chrome.horovod gives to the event of a ready rank
_NEGOTIATE = "NEGOTIATE_"


@dataclass(frozen=True, slots=True)
class Negotiated:
    """Horovod's negotiations. Exchange i runs from start_ns[i] to end_ns[i]; rank[k] was ready for exchange of[k] at
    ready_ns[k]. All int64, times in ns of UTC."""

    start_ns: Int64s
    end_ns: Int64s
    of: Int64s
    rank: Int64s
    ready_ns: Int64s

    def told(self, called_ns: Int64s, rank: int) -> tuple[Int64s, Int64s]:
        """For each launch call, in ns: when its last tensor was ready on this rank, and when on the slowest other rank.
        Both are FOREVER unless the timeline has both."""
        own, others = self._last(called_ns, self.rank == rank), self._last(called_ns, self.rank != rank)
        unknown = (own == FOREVER) | (others == FOREVER)
        own[unknown] = others[unknown] = FOREVER
        return own, others

    def _last(self, called_ns: Int64s, which: NDArray[np.bool_]) -> Int64s:
        never = np.iinfo(np.int64).min
        last = np.full(len(self.start_ns), never)
        np.maximum.at(last, self.of[which], self.ready_ns[which])
        order = np.argsort(called_ns, kind="stable")
        first = np.searchsorted(called_ns[order], self.start_ns)
        after = np.maximum(np.searchsorted(called_ns[order], self.end_ns), first)
        exchange, place = intervals.one_after_another(after - first)
        found = np.full(len(called_ns), never)
        np.maximum.at(found, order[first[exchange] + place], last[exchange])
        return np.where(found == never, FOREVER, found)

    def shorter(self) -> bool:
        """True if columns that belong together have different lengths: some of them are cut short."""
        lengths = [len(getattr(self, one.name)) for one in fields(self)]
        return lengths[0] != lengths[1] or len(set(lengths[2:])) > 1


def of_timeline(timeline: Timeline) -> Negotiated | None:
    """Read the negotiations from a recording; None if it has none, or has no UTC time of its start."""
    phases, utc = timeline.phases, timeline.recording.origin_utc_ns
    if not len(phases) or utc is None:
        return None
    ready: list[tuple[int, int, int]] = []
    open_: dict[str, tuple[str, list[tuple[int, int]]]] = {}  # tensor -> (kind of exchange, [(rank, ready ns)])
    columns = (phases[name].tolist() for name in ("start_ns", "end_ns", "tensor", "name", "rank"))
    exchanges: list[tuple[int, int]] = []
    for start, end, tensor, name, rank in zip(*columns, strict=True):
        if name.startswith(_NEGOTIATE):
            open_[tensor] = (name.removeprefix(_NEGOTIATE), [])
        elif tensor in open_ and name == READY:
            open_[tensor][1].append((rank, start))
        elif tensor in open_ and name == open_[tensor][0]:
            ready += [(len(exchanges), who, at) for who, at in open_.pop(tensor)[1]]
            exchanges.append((start, end))
    starts, ends = np.array(exchanges, np.int64).reshape(-1, 2).T
    of, ranks, times = np.array(ready, np.int64).reshape(-1, 3).T
    return Negotiated(starts + utc, ends + utc, of, ranks, times + utc) if len(of) else None
