"""Operations without a usable time; their launch calls show after which operations they ran.

Either the reader left them out because their times are impossible, or the recording has no rows for them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ..model import launching
from ..model.timeline import Timeline
from .launch_calls import LaunchCalls

Ints = NDArray[np.signedinteger[Any]]
Columns = Mapping[str, Mapping[str, Ints]]  # operations by table: column -> values, see `tables.Tables`
LAUNCHED: Final = ("kernels", "graphs")


@dataclass(frozen=True, slots=True)
class Missing:
    """Operations of one recording without a usable time, int64[n]. `call`: row of the launch call in `api`. `device`,
    `context` and `stream` are -1 if not known."""

    pid: Ints
    call: Ints
    device: Ints
    context: Ints
    stream: Ints

    def at(self, rows: NDArray[Any]) -> Missing:
        return Missing(*(getattr(self, one.name)[rows] for one in fields(self)))


def joined(parts: Sequence[Missing]) -> Missing:
    """The rows of all parts, one part after the other."""
    none = np.empty(0, np.int64)
    return Missing(*(np.concatenate([none, *(getattr(part, one.name) for part in parts)]) for one in fields(Missing)))


def untimed(timeline: Timeline, calls: LaunchCalls) -> tuple[Missing, dict[int, int]]:
    """The operations that the reader left out and whose launch call is known; and how many kernels and graph
    launches of each process it left out whose launch call is not known."""
    rows = timeline.untimed
    if rows is None:
        return joined([]), {}
    pid = rows["pid"].to_numpy(np.int64)
    call = calls.rows(pid, rows["correlation"].to_numpy(np.int64)).astype(np.int64)
    placed = (rows[column].to_numpy(np.int64) for column in ("device", "context", "stream"))
    processes, count = np.unique(pid[(call < 0) & rows["table"].isin(LAUNCHED).to_numpy()], return_counts=True)
    alone = dict(zip(processes.tolist(), count.tolist(), strict=True))
    return Missing(pid, call, *placed).at(call >= 0), alone


def lost(timeline: Timeline, calls: Ints, operations: Columns) -> Missing:
    """The operations that these calls (rows of `api`) launched and the recording lacks. They are assumed to be on the
    stream of their thread's previous launch, or of the next one if there is none before."""
    names = ("device", "context", "stream")
    place = {name: np.full(len(calls), -1) for name in names}
    every = {name: np.concatenate([one[name] for one in operations.values()]) for name in ("call_row", *names)}
    start, thread = timeline.api["start_ns"].to_numpy(), launching.threads(timeline.api)
    for one in np.unique(thread[calls]).tolist():
        theirs = np.flatnonzero((every["call_row"] >= 0) & (thread[every["call_row"]] == one))
        theirs = theirs[np.argsort(start[every["call_row"][theirs]], kind="stable")]
        mine = np.flatnonzero(thread[calls] == one)
        if len(theirs):
            before = np.searchsorted(start[every["call_row"][theirs]], start[calls[mine]]) - 1
            for name in names:
                place[name][mine] = every[name][theirs[np.maximum(before, 0)]]
    return Missing(timeline.api["pid"].to_numpy()[calls].astype(np.int64), calls.astype(np.int64), **place)
