"""Launch idle that is caused by a wait of the host (docs/reference/measures.md, "The host meanwhile").

After the host has waited until the GPU finished all launched work, each kernel ends before the next kernel is launched,
until the host launches ahead again. Without the wait the host would be ahead by the time that it waited.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ..gpus.operations import HAND_OVER_NS, Gpu, Operations
from ..ground import intervals
from ..ground.groups import by_value, rows_by_value
from ..ledger import ownership as ledger
from ..ledger.causes import LAUNCH, SYNC
from ..model.analysed import Ownership
from ..model.measures import CLASSES

Int64s = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Waits:
    """Synchronising calls of a process: their rows in `api`, threads, starts and ends."""

    row: Int64s
    thread: Int64s
    start_ns: Int64s
    end_ns: Int64s


@dataclass(frozen=True, slots=True)
class CatchingUp:
    """Per wait: number of the process, row of the call in `api`, time at which the GPU ran dry, ns of `idle_launch`
    after it."""

    process: Int64s
    row: Int64s
    dry_ns: Int64s
    ns: Int64s


def catching_up(gpu: Gpu, ownership: Ownership, threads: Sequence[Int64s], waits: Sequence[Waits]) -> CatchingUp:
    """ns of `idle_launch` after each wait during which the GPU ran dry: up to the next such wait, and at most as long
    as the wait.

    Per process: `threads`, the thread of each row of `api`; `waits`, its synchronising calls."""
    operations = gpu.operations.lasting()
    spans = intervals.merge(*(ledger.owned_by(ownership, len(CLASSES) + cause) for cause in (LAUNCH, SYNC)))
    ender = np.searchsorted(operations.start_ns, spans.end)
    some = np.flatnonzero(ender < len(operations))
    dry, ender = spans.start[some], ender[some]
    parts = [
        _of_process(operations, dry, ender, *of, number) for number, of in enumerate(zip(threads, waits, strict=True))
    ]
    none = np.empty(0, np.int64)
    process, row, dry, waited = (
        (np.concatenate([none, *columns]) for columns in zip(*parts, strict=True)) if parts else (none,) * 4
    )
    order = np.argsort(dry, kind="stable")
    process, row, dry, waited = (column[order] for column in (process, row, dry, waited))
    until = np.append(dry[1:], ownership.end_ns[-1:]) if len(dry) else dry
    launch = ledger.per_bin(ownership, dry, until)["idle_launch"]
    return CatchingUp(process, row, dry, np.minimum(launch, waited))


def _of_process(
    operations: Operations, dry: Int64s, ender: Int64s, thread_of: Int64s, waits: Waits, number: int
) -> tuple[Int64s, Int64s, Int64s, Int64s]:
    """Waits before idle spans that a launch of this process ends: (process, row, dry, ns waited). A wait is the
    launching thread's last synchronising call if the GPU ran dry before it returned, with a tolerance of HAND_OVER_NS
    because the clocks of host and GPU may differ by some µs."""
    mine = np.flatnonzero((operations.process[ender] == number) & operations.launched[ender])
    _, called, _ = operations.calls(ender[mine])
    thread = thread_of[operations.call_row[ender[mine]]]
    waits_of = rows_by_value(waits.thread)
    found = []
    for one, rows in by_value(thread):
        theirs = waits_of[one]
        theirs = theirs[np.argsort(waits.end_ns[theirs], kind="stable")]
        asked = mine[rows]
        last = np.searchsorted(waits.end_ns[theirs], called[rows], side="right") - 1
        asked, call = asked[last >= 0], theirs[last[last >= 0]]
        held = (waits.start_ns[call] <= dry[asked]) & (dry[asked] <= waits.end_ns[call] + HAND_OVER_NS)
        # Count a wait once, although several idle spans may follow it.
        _, first = np.unique(call[held], return_index=True)
        found.append((asked[held][first], call[held][first]))
    none = np.empty(0, np.int64)
    asked, call = (np.concatenate([none, *columns]) for columns in zip(*found, strict=True)) if found else (none, none)
    waited = np.minimum(dry[asked], waits.end_ns[call]) - waits.start_ns[call]
    return np.full(len(asked), number), waits.row[call], dry[asked], waited
