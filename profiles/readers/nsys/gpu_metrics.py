"""Read the GPU counters that nsys samples (`--gpu-metrics-devices`), and the power readings of its NVML plugin.

Each row of GPU_METRICS is one counter of one sample. The lowest byte of its typeId is the number of the GPU, and
TARGET_INFO_GPU_METRICS names the counters of each type: names and numbers differ by chip and version, so counters are
found by name. A sample's timestamp is its beginning: in a recording of two H200s the counters agree best with the
kernels of the period that follows the timestamp (tests/data/README.md). nsys computes some counters as differences, so
small negative values occur.

Power readings are generic events with one event type per GPU, in the order of NVML's GPU numbers. No name says which
GPU a type belongs to.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ...model.gpu_metrics import METRICS
from ...model.possible import LIMIT_NS
from ..tables.gathering import NO_TIME, Gathered
from ..tables.scan import Column
from ..tables.sqlite import Database
from .devices import Devices

TABLE: Final = "GPU_METRICS"
NAMES: Final = "TARGET_INFO_GPU_METRICS"
EVENTS, VALUES, FIELDS = "GENERIC_EVENTS", "GENERIC_EVENT_DATA", "GENERIC_EVENT_TYPE_FIELDS"
GENERIC: Final = (EVENTS, VALUES, FIELDS)
_POWER, _BESIDE = "Power", "Temperature"  # the NVML plugin's events have both fields
_NUMBERED: Final = ("uintVal", "intVal", "doubleVal", "floatVal")

# Requests, responses, protocol and user data are added.
_LINK: Final = "NVLink {}(?: (?:Requests?|Responses?|Protocol|User|Data|Bandwidth|Throughput)){{1,4}}"
_NAMED: Final = {
    "gr_active": "GR Active",
    "sm_active": "SMs? Active",
    "sm_issue": "SM Issue",
    "tensor_active": "Tensor Active",
    "dram_read": "DRAM Read (?:Bandwidth|Throughput)",
    "dram_write": "DRAM Write (?:Bandwidth|Throughput)",
    "nvlink_rx": _LINK.format("RX"),
    "nvlink_tx": _LINK.format("TX"),
    "pcie_rx": "PCIe (?:RX|Read) (?:Bandwidth|Throughput)",
    "pcie_tx": "PCIe (?:TX|Write) (?:Bandwidth|Throughput)",
}
_OF_NAME: Final = {key: re.compile(rf"{name}(?: \[(?:Throughput )?%\])?") for key, name in _NAMED.items()}

NAMED: Final = "|".join(pattern.pattern for pattern in _OF_NAME.values())

_ABOVE: Final = 200  # values from 100 % to this count as 100 %, larger values as damaged
_MOST_TYPES: Final = 1 << 10
_MOST_WATTS: Final = 10_000
_UNKNOWN: Final = -1

Int64s = NDArray[np.int64]
Names = dict[tuple[int, int], str]  # (type, metric) -> name


def columns(database: Database) -> dict[str, Column]:
    """The columns of the samples; {} if the recording lacks one of them, or lacks the names of the counters."""
    if not database.has(TABLE, "timestamp", "typeId", "metricId", "value"):
        return {}
    types = np.array(_types(_names(database)), np.int64)
    if not len(types):
        return {}

    def place(ids: Int64s) -> NDArray[np.int16]:
        found = np.minimum(np.searchsorted(types, ids), len(types) - 1)
        return np.where(types[found] == ids, found, _UNKNOWN).astype(np.int16)

    return {
        "at_ns": Column("timestamp", NO_TIME),
        "type": Column("typeId", _UNKNOWN, "int16", place),
        "metric": Column("metricId", _UNKNOWN, "int16", _small),
        "value": Column("value", _UNKNOWN, "int16", _percent),
    }


def _small(ids: Int64s) -> NDArray[np.int16]:
    return np.where((ids >= 0) & (ids < 1 << 15), ids, _UNKNOWN).astype(np.int16)


def _percent(values: Int64s) -> NDArray[np.int16]:
    known = (values >= 0) & (values <= _ABOVE)
    return np.where(known, np.minimum(values, 100), _UNKNOWN).astype(np.int16)


def _names(database: Database) -> Names:
    """(typeId, metricId) -> name of each counter, the first if there are several; {} if there are too many types."""
    if not database.has(NAMES, "typeId", "metricId", "metricName"):
        return {}
    found: Names = {}
    asked = f"SELECT typeId, metricId, metricName FROM {database.stored(NAMES)}"
    for kind, metric, name in database.query(asked):
        if _fits(kind) and isinstance(metric, int) and isinstance(name, str):
            found.setdefault((kind, metric), name)
    return found if len(_types(found)) <= _MOST_TYPES else {}


def _fits(number: object) -> bool:
    return isinstance(number, int) and -LIMIT_NS < number < LIMIT_NS


def _types(names: Names) -> list[int]:
    return sorted({kind for kind, _ in names})


def add(gathered: Gathered, found: Mapping[str, Any], database: Database, devices: Devices) -> None:
    """Add the table `gpu_metrics`, with one row per sample and GPU."""
    names = _names(database)
    types = _types(names)
    there = (found["at_ns"] > -LIMIT_NS) & (found["at_ns"] < LIMIT_NS)
    gathered.meet("impossible times", TABLE, int((~there).sum()))
    by_device: dict[int, list[int]] = {}
    for place, kind in enumerate(types):
        by_device.setdefault(devices.number_of(kind & 0xFF), []).append(place)
    for device, places in sorted(by_device.items()):
        rows = np.flatnonzero(there & np.isin(found["type"], places))
        at = np.unique(found["at_ns"][rows])
        if len(at):
            told = {name: column[rows] for name, column in found.items()}
            values, bad = _values(told, at, types, places, names)
            gathered.meet("values that are no percentage", TABLE, bad)
            gathered.add(
                "gpu_metrics",
                {"at_ns": at, "lasts_ns": _lasts(at), "device": np.full(len(at), device, np.int32), **values},
            )


def _values(
    told: Mapping[str, Any], at: Int64s, types: list[int], places: list[int], names: Names
) -> tuple[dict[str, NDArray[np.int16]], int]:
    """(each metric in % at each instant, -1 where unknown; number of values that are no percentage). Several types may
    describe one GPU. For each counter and instant, the first type with a value counts."""
    of_name: dict[str, NDArray[np.int16]] = {}
    bad = 0
    for place in places:
        mine = np.flatnonzero(told["type"] == place)
        for metric in np.unique(told["metric"][mine]).tolist():
            name = names.get((types[place], metric), "")
            if not any(pattern.fullmatch(name) for pattern in _OF_NAME.values()):
                continue
            rows = mine[told["metric"][mine] == metric][::-1]  # reversed, so that the first value at an instant is kept
            bad += int((told["value"][rows] < 0).sum())
            own = np.full(len(at), _UNKNOWN, np.int16)
            own[np.searchsorted(at, told["at_ns"][rows])] = told["value"][rows]
            before = of_name.get(name)
            of_name[name] = own if before is None else np.where(before < 0, own, before)
    values = {}
    for key in METRICS:
        total = np.full(len(at), _UNKNOWN, np.int16)
        for name, own in of_name.items():
            if _OF_NAME[key].fullmatch(name):
                total = np.where(own < 0, total, np.minimum(np.maximum(total, 0) + own, 100)).astype(np.int16)
        values[key] = total
    return values, bad


def _lasts(at: Int64s) -> Int64s:
    """Length of each sample in ns: to the next one, or the median period where samples are missing; 0 for a single
    one."""
    if len(at) < 2:
        return np.zeros(len(at), np.int64)
    to_next = np.diff(at)
    period = int(np.median(to_next))
    return np.append(np.where(2 * to_next <= 3 * period, to_next, period), period).astype(np.int64)


def add_power(gathered: Gathered, database: Database, devices: Devices) -> None:
    """Add the table `power`, with one row per reading, in watts. device: -1 if the recording does not name the GPU."""
    kinds = _powered(database)
    if not kinds or not database.has(EVENTS, "genericEventId", "timestamp", "typeId"):
        return
    present = [name for name in _NUMBERED if database.has(VALUES, name)]
    if not present or not database.has(VALUES, "genericEventId", "fieldIdx"):
        return
    events = database.stored(EVENTS)
    of_kinds = f"FROM {events} WHERE typeId IN ({', '.join(map(str, kinds))})"
    data = database.query(
        f"SELECT genericEventId, fieldIdx, {', '.join(present)} FROM {database.stored(VALUES)} "
        f"WHERE genericEventId IN (SELECT genericEventId {of_kinds})"
    )
    watts: dict[tuple[Any, Any], Any] = {}
    for event, field, *values in data:
        watts.setdefault((event, field), next((one for one in values if isinstance(one, int | float)), None))
    gpus = devices.of_host
    own = [devices.number_of(gpu) for gpu in gpus] if len(gpus) == len(kinds) else [-1] * len(kinds)
    device = dict(zip(sorted(kinds), own, strict=True))
    read: dict[tuple[int, int], float] = {}
    for event, at, kind in database.query(f"SELECT genericEventId, timestamp, typeId {of_kinds}"):
        value = watts.get((event, kinds[kind])) if kind in kinds else None  # a column of texts gives "5" for 5
        if value is not None and 0 <= value <= _MOST_WATTS and _fits(at):
            read.setdefault((device[kind], at), float(value))
    if read:
        ordered = sorted(read)
        number, at_ns = (np.array(column) for column in zip(*ordered, strict=True))
        columns = {"at_ns": at_ns, "device": number.astype(np.int32), "watts": np.array([read[one] for one in ordered])}
        gathered.add("power", columns)


def _powered(database: Database) -> dict[int, int]:
    """For each event type that holds power readings: typeId -> fieldIdx of the power."""
    if not database.has(FIELDS, "typeId", "fieldIdx", "fieldNameId"):
        return {}
    strings = database.query(f"SELECT id, value FROM StringIds WHERE value IN ('{_POWER}', '{_BESIDE}')")
    named = dict(strings)
    found: dict[str, dict[int, int]] = {_POWER: {}, _BESIDE: {}}
    for kind, field, name in database.query(f"SELECT typeId, fieldIdx, fieldNameId FROM {database.stored(FIELDS)}"):
        if named.get(name) in found and _fits(kind) and _fits(field):  # SQLite may compare without case
            found[named[name]].setdefault(kind, field)
    both = {kind: field for kind, field in found[_POWER].items() if kind in found[_BESIDE]}
    return both if len(both) <= _MOST_TYPES else {}


def rows_of_power(database: Database, table: str) -> str:
    """The SQL condition for the rows of a table in GENERIC that belong to power readings. `source` is attached. The
    other rows come from other programs, or are the user's own counters."""
    kinds = ", ".join(map(str, _powered(database)))
    if table == FIELDS and kinds:
        named = f"SELECT id FROM source.StringIds WHERE value IN ('{_POWER}', '{_BESIDE}')"
        return f"typeId IN ({kinds}) AND fieldNameId IN ({named})"
    if table == EVENTS and kinds and database.has(EVENTS, "typeId"):
        return f"typeId IN ({kinds})"
    if table == VALUES and kinds and database.has(EVENTS, "typeId", "genericEventId"):
        events = f"SELECT genericEventId FROM source.{database.stored(EVENTS)} WHERE typeId IN ({kinds})"
        return f"genericEventId IN ({events})" if database.has(VALUES, "genericEventId") else "FALSE"
    return "FALSE"
