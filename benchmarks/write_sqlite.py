"""A generated run as SQLite files of Nsight Systems and nvprof: the same events in the tables and units of each."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import adbc_driver_sqlite.dbapi as adbc
import numpy as np
import pandas as pd
import pyarrow as pa

from . import schemas
from .tables import CALLS, CBIDS, DOMAINS, EPOCH_NS, GET_NEXT, MANGLED, NAMES, chunks, devices
from .training import Shape, one_process

COPY_KIND = {"h2d": 1, "d2h": 2, "d2d": 8, "p2p": 10}


def write_nsys(shape: Shape, path: Path, gpus: range | None = None) -> None:
    """An export of Nsight Systems, schema 3.20: all processes and GPUs in one file, times from the session's start."""
    gpus = gpus if gpus is not None else range(shape.gpus)
    steps = ["wait input", GET_NEXT, *(f"step {step}" for step in range(shape.steps))]
    ranks = [f"rank {rank} of {shape.processes}" for rank in range(shape.processes)]
    texts = [*NAMES, *MANGLED, *(f"{call}_v{version}" for call, version in zip(CALLS, (7000, 3020, 3020), strict=True))]
    # A plain name is its own mangled one, and stands twice.
    texts += [*steps, *ranks]
    string_id = {text: number for number, text in enumerate(texts, start=1)}
    memory = {"pageable": 0, "pinned": 1, "device": 2}
    with _Created(path, schemas.NSYS) as put:
        put("StringIds", {"id": np.arange(1, len(texts) + 1), "value": texts})
        put("META_DATA_EXPORT", {"name": [k for k, _ in schemas.NSYS_META], "value": [v for _, v in schemas.NSYS_META]})
        put("TARGET_INFO_SESSION_START_TIME", {"utcEpochNs": [EPOCH_NS], "utcTime": [""], "localTime": [""]})
        listed = devices(gpus)
        gpu_rows = {"vmId": 1 << 48, "id": listed["device"], "name": listed["name"], "busLocation": listed["bus_id"]}
        put("TARGET_INFO_GPU", {**gpu_rows, "uuid": listed["uuid"].str[4:], "cuDevice": listed["device"]})
        named = {"start": [0, 0], "end": None, "eventType": 75, "text": DOMAINS, "textId": None, "domainId": [1, 2]}
        put("NVTX_EVENTS", {**named, "globalTid": _global(shape.pid(gpus[0]), shape.pid(gpus[0]))})
        for tables in chunks(shape, gpus):
            kernels, api = tables["kernels"], tables["api"]
            codes = kernels["name"].cat.codes.to_numpy(dtype=np.int64)
            named = {"demangledName": codes + 1, "shortName": codes + 1, "mangledName": codes + 1 + len(NAMES)}
            put("CUPTI_ACTIVITY_KIND_KERNEL", {**_nsys_operation(kernels), **named, **schemas.NSYS_KERNEL})
            copies = tables["copies"]
            peer = (copies["kind"] == "p2p").to_numpy()
            copied = {
                "bytes": copies["bytes"],
                "copyKind": _mapped(copies["kind"], COPY_KIND),
                "srcKind": _mapped(copies["src_kind"], memory),
                "dstKind": _mapped(copies["dst_kind"], memory),
                "srcDeviceId": pa.array(copies["src_device"], mask=~peer),
                "dstDeviceId": pa.array(copies["dst_device"], mask=~peer),
            }
            put("CUPTI_ACTIVITY_KIND_MEMCPY", {**_nsys_operation(copies), **copied})
            memsets = tables["memsets"]
            set_to = {"value": 0, "bytes": memsets["bytes"], "memKind": 2}
            put("CUPTI_ACTIVITY_KIND_MEMSET", {**_nsys_operation(memsets), **set_to})
            called = {
                "globalTid": _global(api["pid"], api["tid"]),
                "nameId": api["name"].cat.codes.to_numpy(dtype=np.int64) + 1 + 2 * len(NAMES),
                "correlationId": api["correlation"],
            }
            put("CUPTI_ACTIVITY_KIND_RUNTIME", {**_times(api), **called, "eventClass": 0, "returnValue": 0})
            marks = tables["marks"]
            instant = (marks["start_ns"] == marks["end_ns"]).to_numpy()
            marked = {
                "start": marks["start_ns"],
                "end": pa.array(marks["end_ns"], mask=instant),
                "eventType": np.where(instant, 34, 60),
                "globalTid": _global(marks["pid"], marks["tid"]),
                "text": None,
                "textId": _mapped(marks["name"], string_id),
                "domainId": marks["domain"].cat.codes.to_numpy(dtype=np.int64) + 1,
            }
            put("NVTX_EVENTS", marked)


def write_nvprof(shape: Shape, path: Path, gpus: range | None = None) -> None:
    """What `nvprof -o` writes, version 14: one process, epoch times, mangled names, peer copies in MEMCPY2.

    Raises ValueError if `gpus` belong to several processes.
    """
    gpus = gpus if gpus is not None else range(shape.gpus)
    one_process(shape, gpus)
    steps = ["wait input", GET_NEXT, *(f"step {step}" for step in range(shape.steps))]
    ranks = [f"rank {rank} of {shape.processes}" for rank in range(shape.processes)]
    string_id = {text: number for number, text in enumerate([*MANGLED, "NVIDIA Generated", *DOMAINS, *steps, *ranks])}
    string_id = {text: number + 1 for text, number in string_id.items()}
    memory = {"pageable": 1, "pinned": 2, "device": 3}
    rows: dict[str, int] = {}
    with _Created(path, schemas.NVPROF) as put_plain:

        def put(table: str, columns: Mapping[str, Any]) -> None:
            """Adds the running number that every table of nvprof has."""
            length = next(len(column) for column in columns.values() if not _single(column))
            first = rows.get(table, 0) + 1
            rows[table] = first + length - 1
            put_plain(f"CUPTI_ACTIVITY_KIND_{table}", {"_id_": np.arange(first, first + length), **columns})

        put_plain("StringTable", {"_id_": list(string_id.values()), "value": list(string_id)})
        put_plain("Version", {"version": [14]})
        uuids = [bytes([gpu, *(0,) * 15]) for gpu in gpus]
        put("DEVICE", {"id": list(gpus), "uuid": uuids, "name": string_id["NVIDIA Generated"]})
        for tables in chunks(shape, gpus):
            kernels, copies, memsets = tables["kernels"], tables["copies"], tables["memsets"]
            name = kernels["name"].cat.codes.to_numpy(dtype=np.int64) + 1
            completed = kernels["end_ns"] + EPOCH_NS
            put("CONCURRENT_KERNEL", {**_nvprof_operation(kernels), "name": name, "completed": completed})
            peer = (copies["kind"] == "p2p").to_numpy()
            for table, part in (("MEMCPY", copies[~peer]), ("MEMCPY2", copies[peer])):
                copied = {
                    "copyKind": _mapped(part["kind"], COPY_KIND),
                    "srcKind": _mapped(part["src_kind"], memory),
                    "dstKind": _mapped(part["dst_kind"], memory),
                    "bytes": part["bytes"],
                }
                if table == "MEMCPY2":
                    copied |= {"srcDeviceId": part["src_device"], "dstDeviceId": part["dst_device"]}
                put(table, {**_nvprof_operation(part), **copied})
            put("MEMSET", {**_nvprof_operation(memsets), "bytes": memsets["bytes"], "memoryKind": 3})
            api = tables["api"]
            called = {
                "cbid": _mapped(api["name"], CBIDS),
                "processId": api["pid"],
                "threadId": api["tid"],
                "correlationId": api["correlation"],
            }
            put("RUNTIME", {**_times(api, EPOCH_NS), **called})
            put("MARKER", _nvprof_marks(tables["marks"], string_id, rows.get("MARKER", 0)))


def _nvprof_marks(marks: pd.DataFrame, string_id: Mapping[str, int], before: int) -> dict[str, Any]:
    """Two rows per range (flags 2 with the name, 4 without), one per instant (flags 1)."""
    names, domains = (_mapped(marks[column], string_id) for column in ("name", "domain"))
    start, end = marks["start_ns"].to_numpy(), marks["end_ns"].to_numpy()
    ids = before + np.arange(len(marks)) + 1
    owner = np.array([pid.to_bytes(4, "little") + tid.to_bytes(8, "little") for pid, tid in
                      zip(marks["pid"].tolist(), marks["tid"].tolist(), strict=True)], dtype=object)  # fmt: skip
    ranges = start != end
    return {
        "flags": np.concatenate((np.where(ranges, 2, 1), np.full(ranges.sum(), 4))),
        "timestamp": np.concatenate((start, end[ranges])) + EPOCH_NS,
        "id": np.concatenate((ids, ids[ranges])),
        "objectKind": 2,
        "objectId": [*owner.tolist(), *owner[ranges].tolist()],
        "name": np.concatenate((names, np.zeros(ranges.sum(), dtype=np.int64))),
        "domain": np.concatenate((domains, domains[ranges])),
    }


class _Created:
    """A new SQLite file with the tables of `schema`; gives put(table, columns), which fills what is not given."""

    def __init__(self, path: Path, schema: Mapping[str, Mapping[str, Any]]) -> None:
        path.unlink(missing_ok=True)
        with closing(sqlite3.connect(path)) as connection, connection:
            connection.execute("BEGIN")  # else the disk is waited for at every table
            for table, columns in schema.items():
                body = ", ".join(f'"{column}" {schemas.TYPES[type(value)]}' for column, value in columns.items())
                connection.execute(f'CREATE TABLE "{table}" ({body})')
        self.schema = schema
        self.connection = adbc.connect(str(path))

    def __enter__(self) -> Callable[[str, Mapping[str, Any]], None]:
        return self.put

    def __exit__(self, *error: object) -> None:
        self.connection.commit()
        self.connection.close()

    def put(self, table: str, columns: Mapping[str, Any]) -> None:
        length = next(len(column) for column in columns.values() if not _single(column))
        unknown = set(columns) - set(self.schema[table])
        if unknown:
            raise KeyError(f"{table} has no {sorted(unknown)}")
        filled = {name: columns.get(name, default) for name, default in self.schema[table].items()}
        arrays = {name: _column(value, length) for name, value in filled.items()}
        if length:
            with self.connection.cursor() as cursor:
                cursor.adbc_ingest(table, pa.table(arrays), mode="append")


def _single(column: Any) -> bool:
    return (
        column is None
        or isinstance(column, (int, str, bytes, np.integer))
        or (isinstance(column, np.ndarray) and column.ndim == 0)
    )


def _column(value: Any, length: int) -> pa.Array:
    if value is None:
        return pa.nulls(length, pa.int64())
    if _single(value):
        return pa.repeat(pa.scalar(value.item() if isinstance(value, np.ndarray) else value), length)
    return pa.array(value) if not isinstance(value, pa.Array) else value


def _times(rows: pd.DataFrame, origin_ns: int = 0) -> dict[str, Any]:
    return {"start": rows["start_ns"].to_numpy() + origin_ns, "end": rows["end_ns"].to_numpy() + origin_ns}


def _where(rows: pd.DataFrame) -> dict[str, Any]:
    columns = {"deviceId": "device", "contextId": "context", "streamId": "stream", "correlationId": "correlation"}
    return {name: rows[column].to_numpy() for name, column in columns.items()}


def _nsys_operation(rows: pd.DataFrame) -> dict[str, Any]:
    return {**_times(rows), **_where(rows), "globalPid": _global(rows["pid"], 0)}


def _nvprof_operation(rows: pd.DataFrame) -> dict[str, Any]:
    return {**_times(rows, EPOCH_NS), **_where(rows)}


def _global(pid: Any, tid: Any) -> Any:
    return (1 << 48) + np.asarray(pid) * (1 << 24) + np.asarray(tid)


def _mapped(texts: pd.Series, numbers: Mapping[str, int]) -> np.ndarray:
    return texts.astype(object).map(numbers).to_numpy(dtype=np.int64)
