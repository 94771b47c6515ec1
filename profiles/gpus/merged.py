"""Tell GPUs apart in a file that several ranks' recordings were merged into.

In such a file, the same device number of two processes may mean two GPUs.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from ..ground import intervals
from ..model.names import rows_of
from ..model.timeline import Timeline
from .collective_kernels import is_collective
from .operations import TABLES, distinct

if TYPE_CHECKING:
    import pandas as pd

_LEAST = 3  # this many equal calls or overlapping collectives are no accident
_CALL = ["context", "stream", "correlation"]
# A file with more processes on one device is damaged. There is a limit because each is compared with all others.
_MOST_PROCESSES = 512


def told_apart(timeline: Timeline) -> Timeline:
    """Give each rank a device number of its own where several ranks share one.

    Two processes are different ranks if their collectives overlap, since one GPU does not run collectives of two
    ranks. In a format with one process per file, they also are if both launched on the same streams by calls with
    the same correlations. A GPU whose UUID or bus id is recorded is one GPU, however many processes use it.
    """
    kernels = timeline.kernels
    if len(distinct(kernels["pid"].to_numpy())) < 2:
        return timeline
    tables = {name: getattr(timeline, name) for name in TABLES}
    devices, untimed = timeline.devices, timeline.untimed
    named = devices["device"][((devices["uuid"] != "") | (devices["bus_id"] != "")).to_numpy()]
    for device in sorted(set(distinct(kernels["device"].to_numpy()).tolist()) - set(named.tolist())):
        for ranks in _ranks(timeline, kernels[(kernels["device"] == device).to_numpy()])[1:]:
            number = _free(tables)
            tables = {name: _renumbered(table, device, ranks, number) for name, table in tables.items()}
            untimed = None if untimed is None else _renumbered(untimed, device, ranks, number)
            devices = _with(devices, device, number)
    return replace(timeline, **tables, untimed=untimed, devices=devices)


def _ranks(timeline: Timeline, kernels: pd.DataFrame) -> list[list[int]]:
    """The processes that ran these kernels of one device, grouped by rank, in order of appearance."""
    names = kernels["name"].cat
    exchanges = _by_process(kernels[rows_of(names.codes.to_numpy(), is_collective(names.categories))])
    processes = _by_process(kernels)
    if len(processes) > _MOST_PROCESSES:
        return [list(processes)]
    one_a_file = timeline.recording.format == "kineto"
    calls = {pid: set(map(tuple, rows[_CALL].to_numpy().tolist())) for pid, rows in processes.items() if one_a_file}
    found: list[list[int]] = []
    for pid in processes:
        apart = (
            any(
                _overlap(exchanges.get(pid), exchanges.get(one))
                or (one_a_file and len(calls[pid] & calls[one]) >= _LEAST)
                for one in others
            )
            for others in found
        )
        place = next((at for at, is_apart in enumerate(apart) if not is_apart), None)
        if place is None:
            found.append([pid])
        else:
            found[place].append(pid)
    return found


def _by_process(table: pd.DataFrame) -> dict[int, pd.DataFrame]:
    """pid -> its rows, in order of appearance."""
    return {int(pid): rows for pid, rows in table.groupby("pid", sort=False)}


def _overlap(one: pd.DataFrame | None, other: pd.DataFrame | None) -> bool:
    """True if at least half of the collectives of one process (the one with fewer) run during collectives of the
    other."""
    if one is None or other is None or min(len(one), len(other)) < _LEAST:
        return False
    fewer, more = sorted((one, other), key=len)
    busy = intervals.union(more["start_ns"].to_numpy(), more["end_ns"].to_numpy())
    within = intervals.total_in(busy, fewer["start_ns"].to_numpy(), fewer["end_ns"].to_numpy()) > 0
    return bool(within.sum() >= len(fewer) / 2 and within.sum() >= _LEAST)


def _free(tables: dict[str, pd.DataFrame]) -> int:
    """The lowest number that no operation has for its device."""
    used = {number for table in tables.values() for number in distinct(table["device"].to_numpy()).tolist()}
    return next(number for number in range(len(used) + 1) if number not in used)


def _renumbered(table: pd.DataFrame, device: int, processes: list[int], number: int) -> pd.DataFrame:
    """The table in which the operations of these processes on `device` have the device number `number` instead."""
    rows = ((table["device"] == device) & table["pid"].isin(processes)).to_numpy()
    return table.assign(device=np.where(rows, np.int32(number), table["device"].to_numpy().astype(np.int32)))


def _with(devices: pd.DataFrame, device: int, number: int) -> pd.DataFrame:
    """The table of devices with device `number` added; it gets the name of `device`."""
    import pandas as pd

    if (devices["device"] == number).any():
        return devices
    more = devices[(devices["device"] == device).to_numpy()].assign(device=np.int32(number))
    return pd.concat([devices, more], ignore_index=True)
