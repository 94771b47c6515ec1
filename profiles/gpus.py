"""The physical GPUs of a set of recordings, each with all that it did."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from . import ranks
from .launches import LaunchCalls
from .operations import (
    COLLECTIVE,
    COMPUTE,
    D2D,
    D2H,
    H2D,
    MEMSET,
    P2P,
    TABLES,
    Gpu,
    Operations,
    Source,
    distinct,
    is_collective,
)
from .threads import each
from .timeline import Timeline

if TYPE_CHECKING:
    import pandas as pd

Columns = dict[str, NDArray[Any]]
# Copies of a kind the tool could not name keep the GPU busy all the same; host-to-host copies do not.
_COPY_CLASS = {"h2d": H2D, "d2h": D2H, "p2p": P2P, "d2d": D2D, "other": D2D, "h2h": -1}
_LATE_NS, _EARLY_NS = 1_000_000_000, 1_000_000


def gather(timelines: Sequence[Timeline], shift_ns: Sequence[int] | None = None) -> list[Gpu]:
    """The GPUs that did anything, each once, in the order of rank, recording and device number.

    `shift_ns`: per recording, what brings its times on the common clock. A GPU's times are those of the first
    recording it lies in; those of further ones are brought to it.
    """
    shifts = [0] * len(timelines) if shift_ns is None else list(shift_ns)
    launches = [LaunchCalls(timeline) for timeline in timelines]
    marked = [ranks.marked(timeline) for timeline in timelines]
    found = each(partial(_gpu, timelines, shifts, launches, marked), _places(timelines))
    return sorted(found, key=lambda gpu: (gpu.rank is None, gpu.rank or 0, gpu.places))


def _places(timelines: Sequence[Timeline]) -> list[list[tuple[int, int]]]:
    """Where each physical GPU lies. One uuid, else one bus id, is one GPU; without either one number is, per rank."""
    by_identity: dict[tuple[object, ...], list[tuple[int, int]]] = {}
    for index, timeline in enumerate(timelines):
        listed = timeline.devices.set_index("device")
        for device in _used(timeline):
            uuid, bus_id = _listed(listed, device, "uuid"), _listed(listed, device, "bus_id")
            rank = timeline.recording.rank
            identity = ("uuid", uuid) if uuid else ("bus", bus_id) if bus_id else ("number", rank, device)
            by_identity.setdefault(identity, []).append((index, device))
    return list(by_identity.values())


def _used(timeline: Timeline) -> list[int]:
    used: set[int] = set()
    for table in TABLES:
        used.update(distinct(getattr(timeline, table)["device"].to_numpy()).tolist())
    return sorted(used)


def _listed(listed: pd.DataFrame, device: int, column: str) -> str | None:
    return str(listed.at[device, column]) or None if device in listed.index else None


def _gpu(
    timelines: Sequence[Timeline],
    shifts: Sequence[int],
    launches: Sequence[LaunchCalls],
    marked: Sequence[Mapping[int, ranks.Rank]],
    places: list[tuple[int, int]],
) -> Gpu:
    index, device = places[0]
    listed = timelines[index].devices.set_index("device")
    names = _names([timelines[place] for place, _ in places])
    operations, processes = _operations(timelines, shifts, launches, places, names)
    off_clock = tuple(number for number in range(len(processes)) if _off_clock(operations, number))
    operations.call_row[np.isin(operations.process, off_clock)] = -1
    return Gpu(
        places=tuple(places),
        rank=_rank(timelines, marked, processes),
        uuid=_listed(listed, device, "uuid"),
        bus_id=_listed(listed, device, "bus_id"),
        name=_listed(listed, device, "name"),
        operations=operations,
        names=names,
        processes=processes,
        off_clock=off_clock,
    )


def _rank(
    timelines: Sequence[Timeline],
    marked: Sequence[Mapping[int, ranks.Rank]],
    processes: Sequence[tuple[int, int]],
) -> int | None:
    """That of the processes that used the GPU, else of their recordings; None where they are of several ranks."""
    told: set[int] = set()
    for index, pid in processes:
        own, rank = marked[index].get(pid), timelines[index].recording.rank
        told.update([own.number] if own else [rank] if rank is not None else [])
    return told.pop() if len(told) == 1 else None


def _off_clock(operations: Operations, process: int) -> bool:
    """Is even the quickest launch of this process over a second late, or is one in twenty over 1 ms early?

    Some nvprof recordings hold API rows hundreds of seconds before their kernels.
    """
    mine = operations.launched & (operations.process == process)
    latency = (operations.start_ns - operations.call_start_ns)[mine]
    if not len(latency):
        return False
    return bool(latency.min() > _LATE_NS or (latency < -_EARLY_NS).mean() > 0.05)


def _operations(
    timelines: Sequence[Timeline],
    shifts: Sequence[int],
    launches: Sequence[LaunchCalls],
    places: list[tuple[int, int]],
    names: pd.Index,
) -> tuple[Operations, tuple[tuple[int, int], ...]]:
    parts: list[Columns] = []
    processes: list[tuple[int, int]] = []
    origin = shifts[places[0][0]]
    for place, (index, device) in enumerate(places):
        for number, table in enumerate(TABLES):
            frame = getattr(timelines[index], table)
            rows = np.flatnonzero(frame["device"].to_numpy() == device)
            if not len(rows):
                continue
            part = _columns(table, frame, rows, names)
            part["row"] = rows.astype(np.int32)
            part["place"] = np.full(len(rows), place, np.int8)
            part["table"] = np.full(len(rows), number, np.int8)
            part["process"] = _processes(frame["pid"].to_numpy()[rows], index, processes)
            correlation = frame["correlation"].to_numpy()[rows]
            part["call_row"] = _calls(part["process"], correlation, processes, launches[index])
            shift = shifts[index] - origin
            if shift:
                for column in ("start_ns", "end_ns"):
                    part[column] = part[column] + shift
            parts.append(part)
    sources = tuple(_source(timelines[index], shifts[index] - origin) for index, _ in places)
    return Operations(**_sorted(parts), sources=sources), tuple(processes)


def _source(timeline: Timeline, shift: int) -> Source:
    api = timeline.api
    sizes = (getattr(timeline, table) for table in TABLES)
    return Source(
        call_start_ns=api["start_ns"].to_numpy(),
        call_end_ns=api["end_ns"].to_numpy(),
        shift_ns=shift,
        bytes_of=tuple(frame["bytes"].to_numpy() if "bytes" in frame else None for frame in sizes),
        node_of=timeline.kernels["graph_node"].to_numpy(),
    )


def _columns(table: str, frame: pd.DataFrame, rows: NDArray[np.int64], names: pd.Index) -> Columns:
    kind: NDArray[np.int8]
    name = np.zeros(len(rows), np.int32)
    if table == "kernels":
        column = frame["name"].cat
        code = column.codes.to_numpy()[rows]
        of_name = np.where(is_collective(names), COLLECTIVE, COMPUTE).astype(np.int8)
        name = names.get_indexer(column.categories).astype(np.int32)[code]
        kind = of_name[name]
    elif table == "copies":
        of_kind = np.array([_COPY_CLASS.get(str(one), D2D) for one in frame["kind"].cat.categories], np.int8)
        kind = of_kind[frame["kind"].cat.codes.to_numpy()[rows]]
    else:
        kind = np.full(len(rows), COMPUTE if table == "graphs" else MEMSET, np.int8)
        if table == "graphs":
            name = -1 - np.unique(frame["graph"].to_numpy()[rows], return_inverse=True)[1].astype(np.int32)
    return {
        **{column: frame[column].to_numpy()[rows] for column in ("start_ns", "end_ns", "context", "stream")},
        "kind": kind,
        "name": name,
    }


def _names(timelines: Sequence[Timeline]) -> pd.Index:
    names = timelines[0].kernels["name"].cat.categories
    for timeline in timelines[1:]:
        names = names.union(timeline.kernels["name"].cat.categories, sort=False)
    return names


def _processes(pid: NDArray[np.int64], index: int, processes: list[tuple[int, int]]) -> NDArray[np.int32]:
    """Process number per row; `processes` grows by those not met before."""
    number = np.zeros(len(pid), np.int32)
    for one in distinct(pid).tolist():
        if (index, one) not in processes:
            processes.append((index, one))
        number[pid == one] = processes.index((index, one))
    return number


def _calls(
    process: NDArray[np.int64],
    correlation: NDArray[np.int64],
    processes: Sequence[tuple[int, int]],
    launches: LaunchCalls,
) -> NDArray[np.int32]:
    """Row of `api` of each operation's launch call; -1: none."""
    numbers = np.flatnonzero(np.bincount(process)).tolist()
    if len(numbers) == 1:
        row = launches.rows(processes[numbers[0]][1], correlation)
    else:
        row = np.empty(len(process), np.int32)
        for number in numbers:
            mine = process == number
            row[mine] = launches.rows(processes[number][1], correlation[mine])
    return row


def _sorted(parts: list[Columns]) -> Columns:
    """Column after column, so that no more than one is held twice."""

    def whole(name: str) -> NDArray[Any]:
        return np.concatenate([part.pop(name) for part in parts])

    columns: Columns = {"start_ns": whole("start_ns"), "kind": whole("kind"), "process": whole("process")}
    columns["stream"] = _numbered(columns["process"], whole("context"), whole("stream"))
    order = _order(columns["start_ns"], columns["kind"])
    for name in (*columns, *parts[0]):
        columns[name] = (columns[name] if name in columns else whole(name))[order]
    return columns


def _order(start: NDArray[np.int64], kind: NDArray[np.int8]) -> NDArray[np.int64]:
    """Those with a class, by start, then class. Tables are mostly in order already, and equal starts are rare: a
    stable sort of runs is far the quickest."""
    order = np.argsort(start, kind="stable")
    start, kind = start[order], kind[order]
    if ((start[1:] == start[:-1]) & (kind[1:] < kind[:-1])).any():
        by_class = np.lexsort((kind, start))
        order, kind = order[by_class], kind[by_class]
    return order if kind.min() >= 0 else order[kind >= 0]


def _numbered(*keys: NDArray[Any]) -> NDArray[np.int32]:
    """A small number for each distinct tuple of keys."""
    import pandas as pd

    varying = [pd.factorize(key) for key in keys if (key != key[0]).any()]
    number = varying.pop(0)[0] if varying else np.zeros(len(keys[0]), np.int64)
    for code, values in varying:
        number = pd.factorize(number * len(values) + code)[0]
    return number.astype(np.int32)
