"""Collectives across ranks: how long each rank waited for the others, and how long the transfer itself took.

A collective ends when all its ranks have arrived and the data is moved, so a rank's time in it has two parts:
waiting, until the last rank arrives, and transfer, from then on.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ..gpus.collective_kernels import KINDS, kind_of
from ..gpus.operations import COLLECTIVE, Gpu, Operations
from ..ground import intervals
from ..ground.intervals import Intervals, one_after_another
from ..ground.stats import lasting, nearest_rank
from ..ledger import ownership
from ..ledger.enqueued import FOREVER, HandedOver
from ..ledger.window import Window
from ..model.collectives import Collectives
from ..model.findings import Straggler
from ..model.measures import CLASSES
from ..steps.found import FoundSteps
from . import matching
from .collective_sizes import by_size, with_transfers
from .kernels import median_per_step
from .matching import NEVER
from .message_sizes import UNKNOWN, Moved

if TYPE_CHECKING:
    from ..ledger.account import Account

Int64s = NDArray[np.int64]

# A straggler arrives last at this share of the calls from some call on, and at least at this number of calls.
_STRAGGLES = 0.9
_LEAST_CALLS = 10


@dataclass(frozen=True, slots=True)
class Calls:
    """Collectives of one GPU that were matched with another GPU's, in order of end; int64[n] ns on the GPU's own clock.

    skew_ns: the latest start of a rank of the call minus this GPU's start. waiting_ns + transfer_ns is the call's
    duration. is_last: this GPU arrived later than all others, by more than the clocks' residual; time that it waited
    for other ranks before it launched the call is subtracted from its arrival. ranks: number of ranks that took part,
    including ranks without a recording. bytes: UNKNOWN (-1) if the recording does not tell."""

    start_ns: Int64s
    end_ns: Int64s
    skew_ns: Int64s
    waiting_ns: Int64s
    transfer_ns: Int64s
    is_last: NDArray[np.bool_]
    ranks: Int64s
    bytes: Int64s
    all_reduce: NDArray[np.bool_]

    def starting_in(self, window: Window) -> Calls:
        inside = window.holds(self.start_ns)
        return Calls(*(getattr(self, name)[inside] for name in self.__slots__))


def of(gpu: Gpu) -> Operations:
    return gpu.operations.chosen(gpu.operations.kind == COLLECTIVE)


@dataclass(frozen=True, slots=True)
class Own:
    """The collectives of one GPU in order of end, int64[n] ns on its own clock.

    bytes: UNKNOWN (-1) if the recording does not tell. handed_ns: when this rank had enqueued the collective; FOREVER
    if unknown."""

    start_ns: Int64s
    end_ns: Int64s
    bytes: Int64s
    all_reduce: NDArray[np.bool_]
    handed_ns: Int64s


def own(gpu: Gpu, moved: Moved, handed: HandedOver | None = None) -> Own:
    """The GPU's collectives. `moved` (bytes) and `handed` (ns): per collective in order of start; without `handed` the
    times of enqueueing are unknown."""
    operations = of(gpu)
    order = np.argsort(operations.end_ns, kind="stable")
    size = moved.at(order)
    times = operations.start_ns[order], operations.end_ns[order]
    handed_ns = np.full(len(order), FOREVER) if handed is None else handed.at_ns[order]
    return Own(*times, size.bytes, size.all_reduce, handed_ns)


class Matched:
    """The collectives of several GPUs, matched with each other on a common clock that is accurate to `residual_ns`.

    `shift_ns`: per GPU, ns to add to its times for the common clock. `missing_ranks`: the number of ranks that took
    part but have no recording."""

    def __init__(
        self, each: Sequence[Own], shift_ns: Sequence[int], residual_ns: int | None, missing_ranks: int = 0
    ) -> None:
        self._each, self._shift_ns = each, shift_ns
        self._residual_ns, self._missing = residual_ns or 0, missing_ranks
        self._starts = [one.start_ns + shift for one, shift in zip(each, shift_ns, strict=True)]
        ends = [one.end_ns + shift for one, shift in zip(each, shift_ns, strict=True)]
        self._found = matching.matched(self._starts, ends, self._residual_ns)

    def others_handed_ns(self) -> list[Int64s]:
        """Per GPU and collective, the time (ns on the GPU's clock) at which the last other rank had enqueued the
        collective.

        FOREVER if that time is unknown for one of the ranks, or if no other rank has a recording."""
        # FOREVER is not shifted, because it must stay the largest value and not overflow.
        each = [
            np.where(one.handed_ns == FOREVER, FOREVER, one.handed_ns + np.where(one.handed_ns == FOREVER, 0, shift))
            for one, shift in zip(self._each, self._shift_ns, strict=True)
        ]
        return [
            np.where((latest == FOREVER) | (latest == NEVER), FOREVER, latest - np.where(latest == NEVER, 0, shift))
            for latest, shift in zip(self._found.latest(each), self._shift_ns, strict=True)
        ]

    def calls(self, before_ns: Sequence[Int64s] | None = None) -> list[Calls]:
        """Per GPU the collectives that were matched with another GPU's.

        `before_ns`: per GPU and collective, the ns for which the GPU waited for other ranks before the launch; its
        arrival counts as that much earlier."""
        there = self._starts
        latest_start = latest_there = self._found.latest(self._starts)
        if before_ns is not None and any(one.any() for one in before_ns):
            there = [start - before for start, before in zip(self._starts, before_ns, strict=True)]
            latest_there = self._found.latest(there)
        found = []
        for gpu, (one, ranks) in enumerate(zip(self._each, self._found.ranks, strict=True)):
            shared = np.flatnonzero(ranks > 1)
            lasted = (one.end_ns - one.start_ns)[shared]
            skew = np.maximum((latest_start[gpu] - self._starts[gpu])[shared], 0)
            waiting = np.minimum(skew, lasted)
            found.append(
                Calls(
                    start_ns=one.start_ns[shared],
                    end_ns=one.end_ns[shared],
                    skew_ns=skew,
                    waiting_ns=waiting,
                    transfer_ns=lasted - waiting,
                    is_last=(there[gpu] - latest_there[gpu])[shared] > self._residual_ns,
                    ranks=ranks[shared] + self._missing,
                    bytes=one.bytes[shared],
                    all_reduce=one.all_reduce[shared],
                )
            )
        return found


def bus_gb_per_s(calls: Calls) -> float | None:
    """Bus bandwidth of all all-reduces together: bytes / transfer x 2(n - 1)/n, as in nccl-tests (doc/PERFORMANCE.md).

    None if the bytes of any of the calls are not known. Other kinds of collectives do not count."""
    size, ranks, transfer = (values[calls.all_reduce] for values in (calls.bytes, calls.ranks, calls.transfer_ns))
    if (calls.bytes == UNKNOWN).any() or not transfer.sum():
        return None
    return float((size * 2 * (ranks - 1) / ranks).sum() / transfer.sum())  # bytes/ns is GB/s


def straggler(ranks: Sequence[int | None], calls: Sequence[Calls]) -> Straggler | None:
    """The GPU that arrives last at 9 of 10 calls or more, from some call to the end, and at 10 calls or more.

    `ground.stats.lasting` picks the first of these calls. If several GPUs qualify, the one with the most calls from its
    first call on."""
    best: Straggler | None = None
    for number, (rank, own) in enumerate(zip(ranks, calls, strict=True)):
        first = lasting(own.is_last, _STRAGGLES)
        if first is None:
            continue
        last_at = own.is_last[first:]
        if last_at.sum() >= _LEAST_CALLS and (best is None or len(last_at) > best.calls):
            best = Straggler(number, rank, int(own.start_ns[first]), len(last_at), float(last_at.mean()))
    return best


def measure(gpu: Gpu, steps: FoundSteps, books: Account, moved: Moved) -> Collectives:
    """Collectives of one GPU in its window; measures that need other ranks are None until `among_ranks` sets them.

    Bytes are None unless the recording tells them for each collective that starts in a measured step."""
    operations = of(gpu)
    kind = kind_of(gpu.names)[operations.name]
    told = (kind == len(KINDS) - 1) & (moved.kind != UNKNOWN)
    kind[told] = moved.kind[told]
    inside = books.window.holds(operations.start_ns)
    exposed, covered = books.ledger_ns[CLASSES[COLLECTIVE]], books.busy_ns[CLASSES[COLLECTIVE]]
    return Collectives(
        count=len(books.window.starting(operations)),
        per_step=median_per_step(operations, np.arange(len(operations)), steps),
        busy_ns=covered or 0,
        exposed_ns=exposed or 0,
        overlap=1 - exposed / covered if covered and exposed is not None else None,
        bytes_per_step=_bytes_per_step(operations, steps, moved),
        bus_gb_per_s=None,
        skew_ns=None,
        waiting_ns=None,
        transfer_ns=None,
        arrived_last_share=None,
        kinds=_kinds(operations, kind, inside, books, moved),
        by_size=by_size(operations, kind, moved, inside),
    )


def among_ranks(measured: Collectives, calls: Calls, window: Window, exposed: Intervals) -> Collectives:
    """Add the measures that need other ranks, over the calls that start in the window; unchanged if no call was
    matched.

    `exposed`: the times in which collectives owned the GPU."""
    shared = calls.starting_in(window)
    if not len(shared.start_ns):
        return measured
    waiting = intervals.union(shared.start_ns, shared.start_ns + shared.waiting_ns)
    return replace(
        measured,
        bus_gb_per_s=bus_gb_per_s(shared),
        skew_ns={"p50": nearest_rank(shared.skew_ns, 50), "max": int(shared.skew_ns.max())},
        waiting_ns=int(shared.waiting_ns.sum()),
        transfer_ns=int(shared.transfer_ns.sum()),
        arrived_last_share=float(shared.is_last.mean()),
        by_size=with_transfers(measured.by_size, shared.bytes, shared.all_reduce, shared.transfer_ns, shared.ranks),
        exposed_waiting_ns=intervals.intersect(exposed, waiting).total,
    )


def exposed(books: Account) -> Intervals:
    """The times in which collectives owned the GPU, because no compute ran."""
    return ownership.owned_by(books.ownership, COLLECTIVE)


def _kinds(
    operations: Operations,
    kind: NDArray[np.signedinteger],
    inside: NDArray[np.bool_],
    books: Account,
    moved: Moved,
) -> dict[str, dict[str, Any]]:
    """Measures by kind of collective (`kind`: index into KINDS), over the rows that `inside` marks as in the window."""
    alone = exposed(books)
    found: dict[str, dict[str, Any]] = {}
    for number, name in enumerate(KINDS):
        rows = inside & (kind == number)
        if not rows.any():
            continue
        busy = books.window.part(intervals.union(operations.start_ns[rows], operations.end_ns[rows]))
        told = bool((moved.bytes[rows] != UNKNOWN).all())
        found[name] = {
            "count": int(rows.sum()),
            "busy_ns": busy.total,
            "exposed_ns": intervals.intersect(alone, busy).total,
            "bytes": int(moved.bytes[rows].sum()) if told else None,
            "dtype": _type_of_most(moved.at(np.flatnonzero(rows))),
        }
    return found


def _type_of_most(moved: Moved) -> str | None:
    """The data type with the most bytes; None if no type is known."""
    types, code = np.unique(moved.dtype.astype(str), return_inverse=True)
    total = np.zeros(len(types), np.int64)
    np.add.at(total, code, np.maximum(moved.bytes, 0))
    return str(types[total.argmax()]) or None


def _bytes_per_step(operations: Operations, steps: FoundSteps, moved: Moved) -> int | None:
    """Median bytes of a measured step; None if the steps hold no collective, or one of unknown bytes."""
    first, after = (np.searchsorted(operations.start_ns, edge) for edge in (steps.start_ns, steps.end_ns))
    which, place = one_after_another(after - first)
    inside = first[which] + place
    if not len(inside) or (moved.bytes[inside] == UNKNOWN).any():
        return None
    total = np.zeros(steps.count, np.int64)
    np.add.at(total, which, moved.bytes[inside])
    return nearest_rank(total, 50)
