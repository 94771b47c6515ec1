"""Find the calls in which the host waited while the GPU ran dry (docs/reference/measures.md, "The host meanwhile")."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ..gpus.operations import D2D, D2H, H2D, P2P, Gpu, Operations
from ..ground import intervals
from ..ledger import ownership as ledger
from ..ledger.causes import SYNC
from ..model.analysed import Ownership
from ..model.launching import SYNCHRONISING
from ..model.measures import CLASSES
from ..model.names import fitting, rows_named, rows_of
from ..model.timeline import Timeline
from .catching_up import Waits, catching_up
from .host import Meanwhile

if TYPE_CHECKING:
    import pandas as pd

Int64s = NDArray[np.int64]
_MOVES = (H2D, D2H, P2P, D2D)
# Ranges of operators among a recording's marks: PyTorch's from emit_nvtx, and JAX's calls that fetch a result.
_OPERATORS = r"^(?:aten::|np\.asarray|(?:\$.*)?block_until_ready)"
_ARRIVES_NS = 100_000  # a launch reaches the GPU within this time
_BEFORE = 4  # number of the latest operations that are searched for the one after whose end the GPU was dry


def host_waits(
    timelines: Sequence[Timeline],
    shift_ns: Sequence[int],
    gpu: Gpu,
    ownership: Ownership,
    outside: Meanwhile | None,
    allocating: Meanwhile,
) -> list[dict[str, Any]]:
    """The ledger's `idle_sync` divided by the call in which the host waited, the longest first; `ns` add up to it.

    An idle span belongs to the synchronising call that was under way when the GPU ran dry (the one that began last, if
    several were); if none was, to the call of the next copy to the host, for which the host had to wait. Each entry is
    {"call": None if neither is known; "within": the framework's operator around the call; "moves": the direction of the
    copy that the call made, or that ended when the GPU ran dry; "ns"; "count": idle spans; "held_ns": part of `ns` in
    which the next kernel had been launched and did not start; "own_ns": part of `ns` in which the host was in no CUDA
    call (`outside`) and had not begun the next launch; "allocating_ns": part of `ns` in which it allocated or freed
    memory all along (`allocating`) and had not begun the next launch; "waited_ns": duration of the waits, or the idle
    time where the recording does not tell it; "launch_ns": launch idle after the waits (`catching_up`)}."""
    operations = gpu.operations.lasting()
    origin = shift_ns[gpu.places[0][0]]
    calls = [_calls(timelines[index].api, pid, shift_ns[index] - origin) for index, pid in gpu.processes]
    threads = [timelines[index].api["tid"].to_numpy() for index, _ in gpu.processes]
    later = catching_up(gpu, ownership, threads, calls)
    spans = ledger.owned_by(ownership, len(CLASSES) + SYNC)
    if not len(spans) and not len(later.ns):
        return []
    ender = np.minimum(np.searchsorted(operations.start_ns, spans.start, side="right"), len(operations) - 1)
    left_dry = _left_dry(operations, spans.start, ender)
    ended_by = _directions(operations, left_dry)
    called = np.full(len(spans), -1, np.int64)  # the row of `api`
    process = np.zeros(len(spans), np.int64)
    moves = np.full(len(spans), -1, np.int64)
    launched, call_start, call_end = operations.calls(ender)
    waited_ns = spans.end - spans.start
    for number, of in enumerate(calls):
        place = _under_way(of.start_ns, of.end_ns, spans.start, np.maximum(call_start, spans.start))
        mine = np.flatnonzero((place >= 0) & (called < 0))
        call = place[mine]
        called[mine], process[mine] = of.row[call], number
        begun = np.minimum(of.start_ns[call], _waits_from(operations, left_dry[mine], number))
        waited_ns[mine] = of.end_ns[call] - begun
    waited = np.flatnonzero(called >= 0)
    moves[waited] = _moved(operations, called[waited], process[waited])
    moves[waited] = np.where(moves[waited] < 0, ended_by[waited], moves[waited])
    fetched = np.flatnonzero(called < 0)
    copies = np.flatnonzero(operations.kind == D2H)
    following = np.searchsorted(operations.start_ns[copies], spans.start[fetched])
    fetched, following = fetched[following < len(copies)], following[following < len(copies)]
    called[fetched] = operations.call_row[copies[following]]
    process[fetched], moves[fetched] = operations.process[copies[following]], D2H
    held = np.where(launched & operations.is_kernel[ender], spans.end - np.maximum(call_end, spans.start), 0)
    held[held <= _ARRIVES_NS] = 0
    moved = _moved(operations, later.row, later.process)
    before = np.searchsorted(operations.start_ns, later.dry_ns, side="right")
    ended_by = _directions(operations, _left_dry(operations, later.dry_ns, before))
    some, none = np.ones_like(called), np.zeros_like(later.ns)
    columns = {"ns": (spans.end - spans.start, none), "count": (some, none), "held_ns": (held, none)}
    until = np.where(launched, np.clip(call_start, spans.start, spans.end), spans.end)
    own = np.zeros_like(called) if outside is None else intervals.total_in(outside.sync, spans.start, until)
    spent = intervals.total_in(allocating.sync, spans.start, until)
    columns |= {
        "own_ns": (own, none),
        "allocating_ns": (spent, none),
        "waited_ns": (waited_ns, none),
        "launch_ns": (np.zeros_like(called), later.ns),
    }
    return _summed(
        timelines,
        gpu,
        {name: np.concatenate(parts) for name, parts in columns.items()},
        np.append(called, later.row),
        np.append(process, later.process),
        np.append(moves, np.where(moved < 0, ended_by, moved)),
    )


def _calls(api: pd.DataFrame, pid: int, shift: int) -> Waits:
    """The process's synchronising calls, sorted by end, on the GPU's clock."""
    rows = rows_named(api, SYNCHRONISING, pid)
    start, end = (api[column].to_numpy()[rows] + shift for column in ("start_ns", "end_ns"))
    order = np.argsort(end, kind="stable")
    return Waits(rows[order], api["tid"].to_numpy()[rows[order]], start[order], end[order])


def _under_way(start: Int64s, end: Int64s, dry: Int64s, until: Int64s) -> Int64s:
    """Per idle span the index of the call that was under way at `dry` and had ended at `until`; -1: none. If there are
    several, the one that began last."""
    first = np.searchsorted(end, dry, side="right")
    which, place = intervals.one_after_another(np.maximum(np.searchsorted(end, until, side="right") - first, 0))
    call = first[which] + place
    waiting = start[call] <= dry[which]
    which, call = which[waiting], call[waiting]
    order = np.argsort(start[call], kind="stable")
    found = np.full(len(dry), -1, np.int64)
    # Calls are in order of start, so the call that began last overwrites earlier ones.
    found[which[order]] = call[order]
    return found


def _left_dry(operations: Operations, dry: Int64s, ender: Int64s) -> Int64s:
    """Per idle span the row of the operation that ended when it began; -1: none of the last `_BEFORE` operations."""
    found = np.full(len(dry), -1, np.int64)
    for back in range(_BEFORE, 0, -1):
        before = np.maximum(ender - back, 0)
        last = (operations.end_ns[before] == dry) & (ender >= back)
        found[last] = before[last]
    return found


def _directions(operations: Operations, rows: Int64s) -> Int64s:
    """The class (H2D, D2H, P2P, D2D) of each operation that is a copy; -1 for others."""
    kind = operations.kind[rows]
    return np.where((rows >= 0) & np.isin(kind, _MOVES), kind, -1)


def _waits_from(operations: Operations, rows: Int64s, process: int) -> Int64s:
    """Start in ns of each operation's launch call if the host waited in that call, else the largest int64. The host
    waited if the call returned after the operation's end, as the call of a copy to pageable memory does. Unknown calls
    and calls of other processes do not count."""
    known, begun, returned = operations.calls(rows)
    waits = (rows >= 0) & known & (operations.process[rows] == process) & (returned >= operations.end_ns[rows])
    return np.where(waits, begun, np.iinfo(np.int64).max)


def _moved(operations: Operations, called: Int64s, process: Int64s) -> Int64s:
    """Per call (row of `api`, number of the process) the class of the copy that the call made; -1: it made no copy."""
    found = np.full(len(called), -1, np.int64)
    copies = np.flatnonzero(np.isin(operations.kind, _MOVES) & operations.launched)
    for number in np.unique(process).tolist():
        mine = copies[operations.process[copies] == number]
        by_call = mine[np.argsort(operations.call_row[mine], kind="stable")]
        rows = operations.call_row[by_call]
        asked = np.flatnonzero(process == number)
        place = np.minimum(np.searchsorted(rows, called[asked]), max(len(rows) - 1, 0))
        made = np.flatnonzero(rows[place] == called[asked]) if len(rows) else np.empty(0, np.int64)
        found[asked[made]] = operations.kind[by_call[place[made]]]
    return found


def _summed(
    timelines: Sequence[Timeline],
    gpu: Gpu,
    columns: Mapping[str, Int64s],
    called: Int64s,
    process: Int64s,
    moves: Int64s,
) -> list[dict[str, Any]]:
    entries: dict[tuple[str | None, str | None, str | None], Int64s] = defaultdict(
        lambda: np.zeros(len(columns), np.int64)
    )
    values = np.stack(list(columns.values()), axis=1)
    for number, (index, pid) in enumerate(gpu.processes):
        mine = np.flatnonzero(process == number)
        rows, which = np.unique(called[mine], return_inverse=True)
        named = list(_named(timelines[index], pid, rows))
        for place, direction, each in zip(which.tolist(), moves[mine].tolist(), values[mine], strict=True):
            entries[(*named[place], CLASSES[direction] if direction >= 0 else None)] += each
    found = [
        {"call": call, "within": within, "moves": moved} | dict(zip(columns, total.tolist(), strict=True))
        for (call, within, moved), total in entries.items()
    ]
    return sorted((one for one in found if one["ns"] or one["launch_ns"]), key=lambda one: -one["ns"])


def _named(timeline: Timeline, pid: int, rows: Int64s) -> Iterator[tuple[str | None, str | None]]:
    """For each call its name and the name of the outermost operator around it on its thread; None if unknown."""
    api, outer = timeline.api, {}
    for tid in set(api["tid"].to_numpy()[rows[rows >= 0]].tolist()):
        outer[tid] = _outermost(timeline, pid, tid)
    for row in rows.tolist():
        if row < 0:
            yield None, None
            continue
        start, end = int(api["start_ns"].iat[row]), int(api["end_ns"].iat[row])
        first, last, names = outer[int(api["tid"].iat[row])]
        at = int(np.searchsorted(first, start, side="right")) - 1
        yield str(api["name"].iat[row]), names[at] if at >= 0 and last[at] >= end else None


def _outermost(timeline: Timeline, pid: int, tid: int) -> tuple[Int64s, Int64s, list[str]]:
    """Start, end and name of a thread's outermost operators, in order of start."""
    started, ended, names = [], [], []
    for table, pattern in ((timeline.operators, ""), (timeline.marks, _OPERATORS)):
        known = table["name"].cat
        fits = rows_of(known.codes.to_numpy(), fitting(known.categories, pattern)) if len(table) else np.empty(0, bool)
        rows = np.flatnonzero(fits & (table["pid"] == pid).to_numpy() & (table["tid"] == tid).to_numpy())
        if table is timeline.operators:
            rows = rows[~table["module"].to_numpy()[rows]]
        started.append(table["start_ns"].to_numpy()[rows])
        ended.append(table["end_ns"].to_numpy()[rows])
        names += table["name"].iloc[rows].astype(str).tolist()
    start, end = np.concatenate(started), np.concatenate(ended)
    order = np.lexsort((-end, start))
    start, end = start[order], end[order]
    reach = np.maximum.accumulate(np.append(np.iinfo(np.int64).min, end))[:-1]
    outer = np.flatnonzero(start >= reach)
    return start[outer], end[outer], [names[order[at]].partition(",")[0] for at in outer.tolist()]
