"""Copies by direction: bytes, rates, and how much of their time is hidden (docs/reference/measures.md)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ..gpus.operations import COPIES, D2D, D2H, DIRECTIONS, H2D, P2P, Gpu, Operations
from ..ground import intervals
from ..ledger import ownership as ledger
from ..ledger.account import Account
from ..ledger.causes import UNKNOWN
from ..ledger.input_copies import returned_sizes
from ..ledger.window import Window
from ..model.measures import CAUSES, CLASSES
from ..model.names import fitting, rows_of
from ..model.operations import Copies, Returned
from ..model.timeline import Timeline
from ..steps.found import FoundSteps
from . import kernels

if TYPE_CHECKING:
    import pandas as pd

# By process number, the results of `_waits`.
Waits: TypeAlias = "Sequence[Callable[[NDArray[np.int32]], NDArray[np.bool_]]]"
SMALL_BYTES = 64 * 1024
# GB/s above any link (NVLink 5: 900 one way) and any memory (B200: 8,000), so a faster copy is a wrong record.
_IMPOSSIBLE = {H2D: 1_000, D2H: 1_000, P2P: 1_000, D2D: 10_000}
_LARGE_BYTES = 1 << 20
_HOST_END = {H2D: "src_kind", D2H: "dst_kind"}
_BLOCKING = r"^(?!.*(?:Async|GraphLaunch))"  # these calls return before their copies are done


def measure(
    timelines: Sequence[Timeline],
    gpu: Gpu,
    steps: FoundSteps,
    books: Account,
) -> dict[str, Copies]:
    """Per direction, the copies that start in the window, and busy and exposed ns inside the window.

    Rate: bytes over the sum of the copies' durations. Bytes and rate are None if the recording does not tell them.
    Pageable: the share of bytes whose host end is pageable.
    """
    before_pages = _idle_before_pages(timelines, gpu, books)
    waits = [_waits(timelines[index].api) for index, _ in gpu.processes]
    sizes = returned_sizes(books.operations, steps)
    inside = books.window.starting(gpu.operations)
    inside = inside.chosen(inside.table == COPIES)
    every = np.flatnonzero(gpu.operations.table == COPIES)
    found = {}
    for kind in DIRECTIONS:
        chosen = inside.chosen(inside.kind == kind)
        moved = int(chosen.bytes.sum())
        lasted = int((chosen.end_ns - chosen.start_ns).sum())
        told = moved > 0 or not lasted  # copies of 0 ns move nothing
        exposed, covered = books.ledger_ns[CLASSES[kind]], books.busy_ns[CLASSES[kind]]
        if exposed is None or covered is None:
            found[CLASSES[kind]] = Copies(None, None, None, None, None, None, None, None, None)
            continue
        found[CLASSES[kind]] = Copies(
            count=len(chosen),
            bytes=moved if told else None,
            busy_ns=covered,
            exposed_ns=exposed,
            overlap=1 - exposed / covered if covered else None,
            gb_per_s=moved / lasted if moved and lasted else None,
            pageable_share=_share_of("pageable", timelines, gpu, chosen, kind),
            under_64kib=int((chosen.bytes < SMALL_BYTES).sum()) if told else None,
            synchronous=_synchronous(waits, chosen),
            managed_share=_share_of("managed", timelines, gpu, chosen, kind),
            managed_idle_ns=before_pages.get(kind, 0),
            per_step=kernels.median_per_step(gpu.operations, every[gpu.operations.kind[every] == kind], steps),
            called_idle_ns=_idle_since_call(waits, books, kind),
            returned=_returned(books, kind, sizes) if kind in _HOST_END and len(sizes) else None,
        )
    return found


def impossible(operations: Operations) -> dict[str, tuple[int, int]]:
    """Directions with a large copy that is recorded as faster than any link or memory: (bytes, ns) of the first one."""
    found = {}
    for kind, most in _IMPOSSIBLE.items():
        of_kind = operations.chosen(operations.kind == kind)
        moved, lasted = of_kind.bytes, of_kind.end_ns - of_kind.start_ns
        wrong = np.flatnonzero((moved >= _LARGE_BYTES) & (moved > most * lasted))  # bytes/ns is GB/s
        if len(wrong):
            found[CLASSES[kind]] = int(moved[wrong[0]]), int(lasted[wrong[0]])
    return found


def undirected(timelines: Sequence[Timeline], gpu: Gpu, window: Window) -> NDArray[np.int64]:
    """The bytes of each copy that starts in the window and whose direction the recording does not tell."""
    inside = window.starting(gpu.operations)
    inside = inside.chosen((inside.kind == D2D) & (inside.table == COPIES))
    unsaid = np.zeros(len(inside), bool)
    for place, (index, _) in enumerate(gpu.places):
        mine = np.flatnonzero(inside.place == place)
        kinds = timelines[index].copies["kind"].cat
        unsaid[mine] = rows_of(kinds.codes.to_numpy()[inside.row[mine]], fitting(kinds.categories, "^other$"))
    return inside.bytes[unsaid]


def _share_of(memory: str, timelines: Sequence[Timeline], gpu: Gpu, chosen: Operations, kind: int) -> float | None:
    """The share of bytes whose host end is this kind of memory. For managed memory only copies without a launch call
    count. None without a host end or bytes, or if the kind of any copy's memory is unknown."""
    column = _HOST_END.get(kind)
    if column is None or not chosen.bytes.sum():
        return None
    found = 0
    for place, (index, _) in enumerate(gpu.places):
        mine = chosen.place == place
        ends = timelines[index].copies[column].cat
        codes = ends.codes.to_numpy()[chosen.row[mine]]
        kinds = ends.categories.tolist()
        if "unknown" in kinds and (codes == kinds.index("unknown")).any():
            return None
        if memory in kinds:
            counted = (codes == kinds.index(memory)) & ~(chosen.launched[mine] & (memory == "managed"))
            found += int(chosen.bytes[mine][counted].sum())
    return found / int(chosen.bytes.sum())


def _idle_before_pages(timelines: Sequence[Timeline], gpu: Gpu, books: Account) -> dict[int, int]:
    """Per direction, ns of idle time of unknown cause that ends with the move of a page of managed memory."""
    spans = ledger.owned_by(books.ownership, len(CLASSES) + UNKNOWN)
    operations = books.operations
    ender = np.searchsorted(operations.start_ns, spans.end)
    known = np.flatnonzero(ender < len(operations))
    ended = operations.at(ender[known])
    lasted = (spans.end - spans.start)[known] * (ended.start_ns == spans.end[known])
    found = {}
    for kind in _HOST_END:
        found[kind] = int(lasted[are_pages(timelines, gpu, ended, kind)].sum())
    return found


def are_pages(timelines: Sequence[Timeline], gpu: Gpu, chosen: Operations, kind: int) -> NDArray[np.bool_]:
    """True for each operation that moved a page of managed memory in this direction and has no launch call."""
    pages: NDArray[np.bool_] = (chosen.kind == kind) & ~chosen.launched
    for place, (index, _) in enumerate(gpu.places):
        mine = np.flatnonzero(pages & (chosen.place == place))
        moved = timelines[index].copies[_HOST_END[kind]].cat
        pages[mine] = rows_of(moved.codes.to_numpy()[chosen.row[mine]], fitting(moved.categories, "^managed$"))
    return pages


def _waits(api: pd.DataFrame) -> Callable[[NDArray[np.int32]], NDArray[np.bool_]]:
    """A function that takes rows of `api` and returns True for each call that returns only when its copy is done."""
    names = api["name"].cat
    codes, fits = names.codes.to_numpy(), fitting(names.categories, _BLOCKING)
    return lambda rows: rows_of(codes[rows], fits)


def _synchronous(waits: Waits, chosen: Operations) -> int | None:
    """The number of copies made by a call that waits for them; None if no copy's call is known."""
    if not len(chosen):
        return 0
    return int(_called_to_wait(waits, chosen).sum()) if chosen.launched.any() else None


def _called_to_wait(waits: Waits, chosen: Operations) -> NDArray[np.bool_]:
    """True for each copy whose call waits until the copy is done."""
    found = np.zeros(len(chosen), bool)
    for number, waiting in enumerate(waits):
        mine = np.flatnonzero((chosen.process == number) & chosen.launched)
        found[mine] = waiting(chosen.call_row[mine])
    return found


def _returned(books: Account, kind: int, sizes: NDArray[np.int64]) -> Returned | None:
    """For copies of these sizes in the window: their bytes, the ns in which they owned the GPU, and the ns of idle time
    that they ended."""
    operations = books.operations.chosen(books.operations.kind == kind)
    operations = operations.chosen(np.isin(operations.bytes, sizes) & operations.launched)
    owned = ledger.owned_by(books.ownership, kind)
    copied = intervals.intersect(owned, intervals.union(operations.start_ns, operations.end_ns))
    idle = {}
    for cause, owner in enumerate(CAUSES):
        spans = ledger.owned_by(books.ownership, len(CLASSES) + cause)
        idle[f"idle_{owner}"] = int((spans.end - spans.start)[np.isin(spans.end, operations.start_ns)].sum())
    moved = int(books.window.starting(operations).bytes.sum())
    return Returned(moved, copied.total, {owner: ns for owner, ns in idle.items() if ns}) if moved else None


def _idle_since_call(waits: Waits, books: Account, kind: int) -> dict[str, int]:
    """ns of `idle_launch` and `idle_wait` between the start of a call that waits for its copy and the copy's start."""
    operations, owned = books.operations, books.ownership
    before = np.maximum.accumulate(np.append(np.iinfo(np.int64).min, operations.end_ns))[:-1]
    rows = np.flatnonzero((operations.kind == kind) & (before < operations.start_ns))
    rows = rows[_called_to_wait(waits, operations.at(rows))]
    _, called, _ = operations.calls(rows)
    start, (first, last) = operations.start_ns[rows], (owned.start_ns[0], owned.end_ns[-1])
    since = np.clip(np.maximum(called, before[rows]), first, last)
    waited = np.flatnonzero((since < start) & (start <= last))
    _, once = np.unique(start[waited], return_index=True)  # count the idle span once if copies start together
    ns = ledger.per_bin(owned, since[waited[once]], start[waited[once]])
    found = {owner: int(ns[owner].sum()) for owner in ("idle_launch", "idle_wait")}
    return {owner: total for owner, total in found.items() if total}
