"""Collectives across ranks: who waited for whom, and how long the transfer itself took.

A collective ends when all its ranks have arrived and the data is moved, so what a rank spends in it parts in two:
waiting, until the last rank arrived, and transfer, from then on.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from .. import intervals
from ..gpus.clock import nearest
from ..gpus.operations import COLLECTIVE, Gpu, Operations
from ..intervals import one_after_another
from ..ledger import ownership
from ..measures import CLASSES, Collectives, Straggler
from ..stats import nearest_rank
from ..steps.find import FoundSteps
from .kernels import per_step
from .message_sizes import UNKNOWN, Moved

if TYPE_CHECKING:
    import pandas as pd

    from ..ledger.account import Account

Int64s = NDArray[np.int64]

KINDS = {
    "all_reduce": r"allreduce",
    "reduce_scatter": r"reducescatter",
    "all_gather": r"allgather",
    "all_to_all": r"alltoall",
    "send_recv": r"send|recv",
    "broadcast": r"broadcast|bcast",
    "reduce": r"reduce",
    "other": r"",  # one kernel that stands for any
}
# A straggler arrives last at this share of the calls from some call on, and at so many of them.
_STRAGGLES = 0.9
_LEAST_CALLS = 10


@dataclass(frozen=True, slots=True)
class Calls:
    """Collectives of one GPU that were matched with another GPU's, in order of end; int64[n] ns on the GPU's own clock.

    skew_ns: latest start over its ranks minus own start. waiting_ns + transfer_ns is the call's duration. is_last: it
    arrived later than all others, by more than the clocks' residual. ranks: how many took part, those included whose
    recordings are missing. bytes: UNKNOWN (-1) where not told.
    """

    start_ns: Int64s
    end_ns: Int64s
    skew_ns: Int64s
    waiting_ns: Int64s
    transfer_ns: Int64s
    is_last: NDArray[np.bool_]
    ranks: Int64s
    bytes: Int64s
    all_reduce: NDArray[np.bool_]

    def starting_in(self, window: tuple[int, int]) -> Calls:
        """The calls that start in [window[0], window[1])."""
        inside = (self.start_ns >= window[0]) & (self.start_ns < window[1])
        return Calls(*(getattr(self, name)[inside] for name in self.__slots__))


def of(gpu: Gpu) -> Operations:
    """The GPU's collectives, in order of start."""
    return gpu.operations.chosen(gpu.operations.kind == COLLECTIVE)


def match(
    gpus: Sequence[Gpu],
    shift_ns: Sequence[int],
    residual_ns: int | None,
    moved: Sequence[Moved],
    missing_ranks: int = 0,
) -> list[Calls]:
    """Per GPU its collectives that another GPU took part in, on one clock that is good to `residual_ns`.

    `moved`: of each GPU's collectives in their order. `missing_ranks`: took part, but there is no recording of them.

    Two calls are one collective where they overlap, each is the other's nearest in its end, and their ends are no
    further apart than half the shorter of them, or the residual: other ranks' calls overlap as well. shift_ns: per
    recording; a GPU's clock is that of the first recording it lies in.
    """
    shifts = [shift_ns[gpu.places[0][0]] for gpu in gpus]
    found = [of(gpu) for gpu in gpus]
    starts, ends, sizes = [], [], []
    for operations, shift, size in zip(found, shifts, moved, strict=True):
        order = np.argsort(operations.end_ns, kind="stable")
        starts.append(operations.start_ns[order] + shift)
        ends.append(operations.end_ns[order] + shift)
        sizes.append(size.at(order))
    return [
        _calls(number, starts, ends, shift, residual_ns or 0, size, missing_ranks)
        for number, (shift, size) in enumerate(zip(shifts, sizes, strict=True))
    ]


def _calls(
    number: int,
    starts: Sequence[Int64s],
    ends: Sequence[Int64s],
    shift: int,
    residual_ns: int,
    size: Moved,
    missing_ranks: int,
) -> Calls:
    start, end = starts[number], ends[number]
    never = np.iinfo(np.int64).min
    latest_other = np.full(len(start), never)
    ranks = np.ones(len(start), np.int64)
    for other, (other_start, other_end) in enumerate(zip(starts, ends, strict=True)):
        if other == number:
            continue
        mine, theirs = nearest(end, other_end)
        shorter = np.minimum(end[mine] - start[mine], other_end[theirs] - other_start[theirs])
        apart = np.abs(end[mine] - other_end[theirs])
        together = (start[mine] < other_end[theirs]) & (other_start[theirs] < end[mine])
        together &= apart <= np.maximum(shorter // 2, residual_ns)
        mine, theirs = mine[together], theirs[together]
        latest_other[mine] = np.maximum(latest_other[mine], other_start[theirs])
        ranks[mine] += 1
    shared = ranks > 1
    start, end, latest_other = start[shared], end[shared], latest_other[shared]
    skew = np.maximum(latest_other - start, 0)
    waiting = np.minimum(skew, end - start)
    is_last = start - latest_other > residual_ns
    size = size.at(np.flatnonzero(shared))
    ranks = ranks[shared] + missing_ranks
    transfer = end - start - waiting
    return Calls(start - shift, end - shift, skew, waiting, transfer, is_last, ranks, size.bytes, size.all_reduce)


def bus_gb_per_s(calls: Calls) -> float | None:
    """Bus bandwidth of all-reduces: bytes / transfer x 2(n - 1)/n, as nccl-tests has it (doc/PERFORMANCE.md).

    Over all of them: None where one does not tell its bytes. Other collectives are left aside.
    """
    size, ranks, transfer = (values[calls.all_reduce] for values in (calls.bytes, calls.ranks, calls.transfer_ns))
    if (calls.bytes == UNKNOWN).any() or not transfer.sum():
        return None
    return float((size * 2 * (ranks - 1) / ranks).sum() / transfer.sum())  # bytes a ns are GB a s


def straggler(gpus: Sequence[Gpu], calls: Sequence[Calls]) -> Straggler | None:
    """The GPU that from some call on to the end arrives last at 9 of 10 calls or more, at 10 of them or more.

    That call is the one from which on it outweighs most the calls at which another was last; of several GPUs the one
    with the most calls.
    """
    best: Straggler | None = None
    for number, (gpu, own) in enumerate(zip(gpus, calls, strict=True)):
        # A call it was not last at outweighs nine at which it was.
        weight = np.where(own.is_last, 1.0, -_STRAGGLES / (1 - _STRAGGLES))
        until_end = np.cumsum(weight[::-1])[::-1]
        if not len(until_end) or until_end.max() < 0:
            continue
        first = int(until_end.argmax())
        last_at = own.is_last[first:]
        if last_at.sum() >= _LEAST_CALLS and (best is None or len(last_at) > best.calls):
            best = Straggler(number, gpu.rank, int(own.start_ns[first]), len(last_at), float(last_at.mean()))
    return best


def measure(gpu: Gpu, steps: FoundSteps, books: Account, calls: Calls, moved: Moved) -> Collectives:
    """Collectives of one GPU in its window; what takes other ranks is None where none of theirs were matched.

    Bytes are None where the recording does not tell those of each that starts in a measured step.
    """
    operations = of(gpu)
    exposed, covered = books.ledger_ns[CLASSES[COLLECTIVE]], books.busy_ns[CLASSES[COLLECTIVE]]
    shared = calls.starting_in(books.window)
    known = len(shared.start_ns) > 0
    return Collectives(
        count=len(operations.starting_in(books.window)),
        per_step=nearest_rank(per_step(operations.start_ns, steps), 50) if steps.count else None,
        busy_ns=covered or 0,
        exposed_ns=exposed or 0,
        overlap=1 - exposed / covered if covered and exposed is not None else None,
        bytes_per_step=_bytes_per_step(operations, steps, moved),
        bus_gb_per_s=bus_gb_per_s(shared),
        skew_ns={"p50": nearest_rank(shared.skew_ns, 50), "max": int(shared.skew_ns.max())} if known else None,
        waiting_ns=int(shared.waiting_ns.sum()) if known else None,
        transfer_ns=int(shared.transfer_ns.sum()) if known else None,
        arrived_last_share=float(shared.is_last.mean()) if known else None,
        exposed_waiting_ns=_exposed_waiting(books, shared) if known else None,
        kinds=_kinds(gpu, operations, books, moved),
    )


def _exposed_waiting(books: Account, shared: Calls) -> int:
    exposed = ownership.owned_by(books.ownership, COLLECTIVE)
    return intervals.intersect(exposed, intervals.union(shared.start_ns, shared.start_ns + shared.waiting_ns)).total


def kind_of(names: pd.Index | pd.Series) -> NDArray[np.int8]:
    """The place in KINDS of each name, a kernel's or a range's."""
    plain = names.astype(str).str.lower().str.replace("_", "", regex=False)
    kind = np.full(len(names), len(KINDS) - 1, np.int8)
    for number, pattern in reversed(list(enumerate(KINDS.values()))):
        if pattern:
            kind[np.asarray(plain.str.contains(pattern, regex=True), dtype=bool)] = number
    return kind


def _kinds(gpu: Gpu, operations: Operations, books: Account, moved: Moved) -> dict[str, dict[str, int | None]]:
    """By kind of collective, of those that start in the window. A kernel for all kinds is what its range says."""
    kind = kind_of(gpu.names)[operations.name]
    kind[(kind == len(KINDS) - 1) & moved.all_reduce] = 0
    exposed = ownership.owned_by(books.ownership, COLLECTIVE)
    inside = (operations.start_ns >= books.window[0]) & (operations.start_ns < books.window[1])
    found: dict[str, dict[str, int | None]] = {}
    for number, name in enumerate(KINDS):
        rows = inside & (kind == number)
        if not rows.any():
            continue
        busy = intervals.clip(intervals.union(operations.start_ns[rows], operations.end_ns[rows]), *books.window)
        told = bool((moved.bytes[rows] != UNKNOWN).all())
        found[name] = {
            "count": int(rows.sum()),
            "busy_ns": busy.total,
            "exposed_ns": intervals.intersect(exposed, busy).total,
            "bytes": int(moved.bytes[rows].sum()) if told else None,
        }
    return found


def _bytes_per_step(operations: Operations, steps: FoundSteps, moved: Moved) -> int | None:
    """Median over the measured steps; None where one holds a collective whose bytes are not told, or none has any."""
    first, after = (np.searchsorted(operations.start_ns, edge) for edge in (steps.start_ns, steps.end_ns))
    which, place = one_after_another(after - first)
    inside = first[which] + place
    if not len(inside) or (moved.bytes[inside] == UNKNOWN).any():
        return None
    total = np.zeros(steps.count, np.int64)
    np.add.at(total, which, moved.bytes[inside])
    return nearest_rank(total, 50)
