"""Find the physical GPUs in a set of recordings, and all that each of them did."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from ..ground.threads import release_unused
from ..model import marks
from ..model.operations import Launches
from ..model.timeline import Timeline
from . import assembly, host_clock, lost
from .lost import Lost
from .merged import told_apart
from .operations import TABLES, Gpu, Lacking, distinct
from .tables import Tables


@dataclass(frozen=True, slots=True)
class Taken:
    """Operations of recordings before they are sorted by GPU. `places`: for each GPU, the (recording, device number)
    pairs under which it appears."""

    places: list[list[tuple[int, int]]]
    tables: list[Tables]
    lost: list[Lost]  # one per recording


def gather(timelines: Sequence[Timeline], shift_ns: Sequence[int] | None = None) -> list[Gpu]:
    """All GPUs that ran any operation, sorted by rank, recording and device number.

    `shift_ns`: ns to add to each recording's times for the common clock. A GPU stays on the clock of its first
    recording; times of its other recordings are shifted to that clock.
    """
    timelines = list(map(told_apart, timelines))
    return made_of(take(timelines), timelines, [0] * len(timelines) if shift_ns is None else shift_ns)


def take(timelines: Sequence[Timeline]) -> Taken:
    """First half of `gather`: take the operations out of the recordings. Then their kernels' tables can be freed."""
    tables = [Tables(timeline) for timeline in timelines]
    gone = [lost.of_recording(*each) for each in zip(timelines, (one.columns for one in tables), strict=True)]
    return Taken(_places(timelines), tables, gone)


def made_of(taken: Taken, timelines: Sequence[Timeline], shift_ns: Sequence[int]) -> list[Gpu]:
    """Second half of `gather`: sort the operations by GPU. It empties `taken`, and reads no kernels in `timelines`."""
    marked = [marks.ranks(timeline) for timeline in timelines]
    done = assembly.gather(taken.tables, shift_ns, taken.places)
    used = Counter(process for did in done for process in did.processes)  # by how many GPUs
    found = [_gpu(timelines, marked, taken.lost, *each, used) for each in zip(taken.places, done, strict=True)]
    release_unused(sum(len(gpu.operations) for gpu in found))
    return sorted(found, key=lambda gpu: (gpu.rank is None, gpu.rank or 0, gpu.places))


def without_kernels(timeline: Timeline) -> Timeline:
    """A copy of the timeline without the kernels and the calls' correlations, which only `take` needs."""
    import pandas as pd

    # Build a new table from the columns, because pandas 2 would copy them.
    calls = {name: column.array for name, column in timeline.api.items()}
    calls["correlation"] = np.broadcast_to(np.int64(-1), len(timeline.api))
    return replace(timeline, kernels=timeline.kernels.iloc[:0].copy(), api=pd.DataFrame(calls, copy=False))


def _places(timelines: Sequence[Timeline]) -> list[list[tuple[int, int]]]:
    """For each physical GPU, the (recording, device number) pairs under which it appears."""
    by_identity: dict[tuple[object, ...], list[tuple[int, int]]] = {}
    for index, timeline in enumerate(timelines):
        for device in _used(timeline):
            by_identity.setdefault(identity(timeline, device), []).append((index, device))
    return list(by_identity.values())


def identity(timeline: Timeline, device: int) -> tuple[str | int | None, ...]:
    """A key that identifies a physical GPU in all recordings: its UUID, else host and bus id, else host, rank and
    device number. GPUs of unknown hosts may have equal bus ids, so their ranks tell them apart. A UUID or bus id that
    the recording lists for several devices (instances of one GPU may have their parent's) identifies none of them."""
    listed = timeline.devices.drop_duplicates("device")
    uuid, bus_id = (
        text if (listed[column] == text).sum() == 1 else None
        for column, text in zip(("uuid", "bus_id"), _listed(timeline, device), strict=False)
    )
    if uuid:
        return ("uuid", uuid)
    host, rank = timeline.recording.host, _first_rank(timeline)
    if bus_id:
        return "bus", host, rank if host is None else None, bus_id
    # A Kineto trace holds one process, or ranks that were merged. Without a rank, its GPUs are in no other recording.
    whose = timeline.recording.path if rank is None and timeline.recording.format == "kineto" else rank
    return "number", host, whose, device


def _first_rank(timeline: Timeline) -> int | None:
    """The recording's rank, or the lowest one in a recording of several; None if it names none."""
    rank = timeline.recording.rank
    return rank if rank is not None else min((one.number for one in marks.ranks(timeline).values()), default=None)


def _used(timeline: Timeline) -> list[int]:
    """The numbers of devices that ran an operation longer than 0 ns; copies from host to host do not count."""
    used: set[int] = set()
    for table in TABLES:
        rows = getattr(timeline, table)
        if not len(rows):
            continue
        lasts = rows["end_ns"].to_numpy() > rows["start_ns"].to_numpy()
        if table == "copies":
            lasts = lasts & (rows["kind"] != "h2h").to_numpy()
        device = rows["device"].to_numpy()
        used.update(distinct(device if lasts.all() else device[lasts]).tolist())
    return sorted(used)


def _listed(timeline: Timeline, device: int) -> tuple[str | None, ...]:
    """UUID, bus id and name of a device; None for each that is not known."""
    rows = np.flatnonzero(timeline.devices["device"].to_numpy() == device)
    columns = ("uuid", "bus_id", "name")
    return tuple(str(timeline.devices[one].iat[rows[0]]) or None if len(rows) else None for one in columns)


def _multiprocessors(timeline: Timeline, device: int) -> int | None:
    told = timeline.devices["multiprocessors"].to_numpy()[timeline.devices["device"].to_numpy() == device]
    return int(told[0]) or None if len(told) else None


def _gpu(
    timelines: Sequence[Timeline],
    marked: Sequence[Mapping[int, marks.Rank]],
    gone: Sequence[Lost],
    places: list[tuple[int, int]],
    did: assembly.Gathered,
    used: Mapping[tuple[int, int], int],
) -> Gpu:
    index, device = places[0]
    uuid, bus_id, name = _listed(timelines[index], device)
    off_clock = tuple(
        number
        for number, (at, pid) in enumerate(did.processes)
        if host_clock.apart(did.operations, number, timelines[at], pid, alone=used[at, pid] == 1)
    )
    if off_clock:
        did.operations.call_row[np.isin(did.operations.process, off_clock)] = -1
    early = host_clock.before_their_calls(did.operations)
    if not len(did.operations.chosen(~early).lasting()):
        early[:] = False
    return Gpu(
        places=tuple(places),
        rank=_rank(timelines, marked, did.processes),
        uuid=uuid,
        bus_id=bus_id,
        name=name,
        multiprocessors=_multiprocessors(timelines[index], device),
        operations=did.operations.chosen(~early) if early.any() else did.operations,
        names=did.names,
        processes=did.processes,
        streams=did.streams,
        off_clock=off_clock,
        too_early=int(early.sum()),
        launches=lost.together([gone[at].launches.get(pid, Launches()) for at, pid in did.processes]),
        lacking=_lacking(did, early, places, gone, off_clock),
    )


def _lacking(
    did: assembly.Gathered,
    early: NDArray[np.bool_],
    places: list[tuple[int, int]],
    gone: Sequence[Lost],
    off_clock: Sequence[int],
) -> Lacking:
    """The operations of this GPU without a usable time: the rows in `early`, and operations missing in its
    recordings."""
    operations = did.operations.at(np.flatnonzero(early))
    parts = [(operations.call_start_ns, operations.process, operations.stream)]
    numbers = {stream: number for number, stream in enumerate(did.streams)}
    for number, (at, pid) in enumerate(did.processes):
        found = gone[at].missing
        if not len(found.pid) or number in off_clock:
            continue
        devices = [device for index, device in places if index == at]
        found = found.at((found.pid == pid) & (np.isin(found.device, devices) | (found.device < 0)))
        source = did.operations.sources[[index for index, _ in places].index(at)]
        pairs = zip(found.context.tolist(), found.stream.tolist(), strict=True)
        stream = [numbers.get((number, *pair), -1) for pair in pairs]
        called = source.call_start_ns[found.call] + source.shift_ns
        parts.append((called, np.full(len(called), number), np.array(stream, np.int64)))
    return Lacking(*(np.concatenate(column).astype(np.int64) for column in zip(*parts, strict=True)))


def _rank(
    timelines: Sequence[Timeline],
    marked: Sequence[Mapping[int, marks.Rank]],
    processes: Sequence[tuple[int, int]],
) -> int | None:
    """The rank of the processes that used the GPU, by their marks or else by their recordings; None if there are
    several."""
    told: set[int] = set()
    for index, pid in processes:
        own, rank = marked[index].get(pid), timelines[index].recording.rank
        told.update([own.number] if own else [rank] if rank is not None else [])
    return told.pop() if len(told) == 1 else None
