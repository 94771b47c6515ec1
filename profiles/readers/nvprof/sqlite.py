"""Read the SQLite files of `nvprof -o` (.nvvp, .prof, .sql, any name), versions 8 to 22.

Each file has all tables, most of them empty; newer versions have more columns. One file is one process. Times are ns
since the Unix epoch, too large for a float64 to hold exactly, so integer arithmetic makes them relative to the first
GPU operation.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any, Final

import numpy as np
import pandas as pd

from ...doubts.recordings import clocks_apart
from ...ground.errors import UnreadableRecording
from ...model.possible import OPERATIONS
from ...model.timeline import Doubt, Recording, Timeline
from ..tables import cupti, sqlite
from ..tables.gathering import NO_TIME, Gathered, constant, gpus, require_gpu_work
from ..tables.scan import Column, present, scan
from ..tables.sqlite import Database
from ..tables.strings import Strings, categorical
from ..tables.texts import texts_by_number
from . import api_names, devices
from . import marks as nvprof_marks
from .marks import MARKER

_CUPTI: Final = "CUPTI_ACTIVITY_KIND_"
KERNELS: Final = (_CUPTI + "CONCURRENT_KERNEL", _CUPTI + "KERNEL")
MEMCPY, PEER, MEMSET = _CUPTI + "MEMCPY", _CUPTI + "MEMCPY2", _CUPTI + "MEMSET"
RUNTIME, DRIVER = _CUPTI + "RUNTIME", _CUPTI + "DRIVER"
_METRICS: Final = tuple(_CUPTI + name for name in ("METRIC", "EVENT", "METRIC_INSTANCE", "EVENT_INSTANCE"))
SYNC, OVERHEAD = _CUPTI + "SYNCHRONIZATION", _CUPTI + "OVERHEAD"
_COPIES: Final = (MEMCPY, PEER)

# values of CUpti_ActivityOverheadKind
_OVERHEADS: Final = {
    1: "driver compiler",
    1 << 16: "buffer flush",
    2 << 16: "instrumentation",
    3 << 16: "resources",
    4 << 16: "module loading",
    5 << 16: "function loading",
}

# An operation waits in its queue for milliseconds, or seconds at most; after a longer delay the clocks disagree.
_QUEUE_NS: Final = 10_000_000_000
# An operation may seem to begin this long before its call. nvprof stamps a copy's call after it has prepared the
# copy, so copies in real recordings begin 51 to 134 µs before their calls.
_EARLY_NS: Final = {"kernels": 20_000, "copies": 1_000_000, "memsets": 1_000_000}
_RECORD: Final = (
    "record the part that trains on the GPU, and let it end by itself (nvprof loses events that it has not flushed)"
)

Columns = dict[str, Any]


def detects(head: bytes, path: Path) -> bool:
    return head.startswith(sqlite.MAGIC) and {"StringTable", "Version"} <= sqlite.table_names(path)


def read(path: Path) -> Timeline:
    with closing(Database(path)) as database:
        if any(table in database.tables and database.query(f"SELECT 1 FROM {table} LIMIT 1") for table in _METRICS):
            problem = (
                "a profile with metrics or events, for which nvprof runs kernels one by one and repeatedly: no timeline"
            )
            raise UnreadableRecording(
                path, problem, "record again with `nvprof -o FILE`, without --metrics and --events"
            )
        return _timeline(database)


def _timeline(database: Database) -> Timeline:
    database.require("StringTable", "_id_", "value")
    strings = Strings(*texts_by_number(database, "StringTable", "_id_", "value"))
    scanned = scan(
        database,
        {
            table: columns(database, strings, table)
            for table, columns in _TABLES.items()
            if table in database.tables and database.query(f"SELECT 1 FROM {table} LIMIT 1")
        },
    )
    gathered = Gathered()
    for table, rows in scanned.items():
        gathered.meet("mixed-types", table, rows.left_out)
    found = {table: rows.columns for table, rows in scanned.items()}
    for columns in found.values():
        for time in {"start_ns", "end_ns"} & set(columns):
            if not columns[time].all():  # CUPTI writes 0 for a time that it could not take
                columns[time] = np.where(columns[time] == 0, NO_TIME, columns[time])
    pid = _process(found)
    _add_operations(gathered, found, strings, pid)
    _add_host(gathered, found, strings, database, pid)
    gathered.tables["devices"] = gpus(devices.listed(database), gathered.tables)
    known = _known(found)
    if apart := _clocks_apart(gathered.tables):
        for table in ("api", "marks"):
            dropped = gathered.tables.pop(table, None)
            gathered.meet("clocks-apart", table, 0 if dropped is None else len(dropped))
        gathered.doubts.append(apart)
        known -= {"api", "marks"}
    return require_gpu_work(gathered.timeline(_recording(database), known, OPERATIONS), database.path, _RECORD)


def _known(found: Mapping[str, Columns]) -> frozenset[str]:
    """Names of the tables that nvprof recorded: always all GPU work, but API calls, marks and others only if
    switched on."""
    others = {RUNTIME: "api", DRIVER: "api", MARKER: "marks", SYNC: "syncs", OVERHEAD: "overheads"}
    written = {name for table, name in others.items() if table in found}
    return frozenset({"kernels", "copies", "memsets", "devices", *written})


# ---- columns to read


def _operation_columns(database: Database, table: str) -> dict[str, Column]:
    database.require(table, "start", "end", "deviceId", "contextId", "streamId", "correlationId")
    return {
        "start_ns": Column("start", NO_TIME),
        "end_ns": Column("end", NO_TIME),
        "device": Column("deviceId", -1, "int32", usual="int8"),
        "context": Column("contextId", -1, "int32", usual="int16"),
        "stream": Column("streamId", -1, "int32", usual="int16"),
        "correlation": Column("correlationId", -1, usual="int32"),
    }


def _kernel_columns(database: Database, strings: Strings, table: str) -> dict[str, Column]:
    database.require(table, "name")
    columns = _operation_columns(database, table) | {"name": Column("name", -1, strings.dtype, strings.codes)}
    columns |= present(database, table, {"graph_node": Column("graphNodeId")})
    return columns | cupti.grid_columns(database, table)


def _copy_columns(database: Database, strings: Strings, table: str) -> dict[str, Column]:
    database.require(table, "copyKind", "bytes")
    columns = {
        "kind": Column("copyKind"),
        "bytes": cupti.size("bytes"),
        "src_kind": Column("srcKind"),
        "dst_kind": Column("dstKind"),
        "src_device": Column("srcDeviceId", -1, "int32"),
        "dst_device": Column("dstDeviceId", -1, "int32"),
        "graph_node": Column("graphNodeId"),
    }
    return _operation_columns(database, table) | present(database, table, columns)


def _memset_columns(database: Database, strings: Strings, table: str) -> dict[str, Column]:
    columns = {"bytes": cupti.size("bytes"), "graph_node": Column("graphNodeId")}
    return _operation_columns(database, table) | present(database, table, columns)


def _call_columns(database: Database, strings: Strings, table: str) -> dict[str, Column]:
    database.require(table, "cbid", "start", "end", "processId", "threadId", "correlationId")
    return {
        "start_ns": Column("start", NO_TIME),
        "end_ns": Column("end", NO_TIME),
        "pid": Column("processId"),
        "tid": Column("threadId", usual="int32"),
        "correlation": Column("correlationId", -1, usual="int32"),
        "cbid": Column("cbid", -1),
    }


def _sync_columns(database: Database, strings: Strings, table: str) -> dict[str, Column]:
    database.require(table, "type", "start", "end", "correlationId", "contextId", "streamId")
    return {
        "start_ns": Column("start", NO_TIME),
        "end_ns": Column("end", NO_TIME),
        "context": Column("contextId", -1, "int32"),
        "stream": Column("streamId", -1, "int32"),
        "correlation": Column("correlationId", -1),
        "type": Column("type"),
    }


def _overhead_columns(database: Database, strings: Strings, table: str) -> dict[str, Column]:
    database.require(table, "overheadKind", "start", "end")
    return {
        "start_ns": Column("start", NO_TIME),
        "end_ns": Column("end", NO_TIME),
        "kind": Column("overheadKind"),
    }


_TABLES: Final[dict[str, Callable[[Database, Strings, str], dict[str, Column]]]] = {
    **dict.fromkeys(KERNELS, _kernel_columns),
    **dict.fromkeys(_COPIES, _copy_columns),
    MEMSET: _memset_columns,
    RUNTIME: _call_columns,
    DRIVER: _call_columns,
    MARKER: nvprof_marks.columns,
    SYNC: _sync_columns,
    OVERHEAD: _overhead_columns,
}


# ---- tables of a Timeline from the columns


def _process(found: Mapping[str, Columns]) -> int:
    for table in (RUNTIME, DRIVER):
        if (columns := found.get(table)) and len(columns["pid"]):
            return int(columns["pid"][0])
    return 0


def _add_operations(gathered: Gathered, found: Mapping[str, Columns], strings: Strings, pid: int) -> None:
    for table in (*KERNELS, *_COPIES, MEMSET):
        if columns := found.get(table):
            count = len(columns["start_ns"])
            columns["pid"] = constant(pid, count)
            columns.setdefault("graph_node", constant(0, count))
    for table in KERNELS:
        if kernels := found.get(table):
            codes = kernels.pop("name")
            gathered.meet("missing-strings", table, int((codes < 0).sum()))
            gathered.add("kernels", cupti.with_blocks(kernels) | {"name": strings.categorical(codes, demangled)})
    for table in _COPIES:
        if copies := found.get(table):
            gathered.add("copies", cupti.copies(copies, cupti.NVPROF_MEMORY))
    if memsets := found.get(MEMSET):
        gathered.add("memsets", {"bytes": constant(0, len(memsets["start_ns"])), **memsets})


def demangled(name: str) -> str:
    """The demangled C++ name; the name unchanged if it is not mangled or cannot be demangled."""
    if not name.startswith("_Z"):
        return name
    import cxxfilt

    try:
        return str(cxxfilt.demangle(name))
    except (cxxfilt.InvalidName, UnicodeError):
        return name


def _add_host(gathered: Gathered, found: Mapping[str, Columns], strings: Strings, database: Database, pid: int) -> None:
    for table, names, kind in ((RUNTIME, api_names.RUNTIME, "runtime"), (DRIVER, api_names.DRIVER, "driver")):
        if calls := found.get(table):
            numbers, codes = np.unique(calls.pop("cbid"), return_inverse=True)
            texts = [names.get(int(number), f"{kind} call {number}") for number in numbers]
            gathered.add("api", {**calls, "name": categorical(codes, texts)})
    if marks := found.get(MARKER):
        gathered.add("marks", nvprof_marks.rows(marks, strings, database))
    if syncs := found.get(SYNC):
        of_context = devices.of_contexts(database)
        contexts, places = np.unique(syncs["context"], return_inverse=True)
        device = np.array([of_context.get(int(context), -1) for context in contexts], dtype=np.int32)[places]
        names = cupti.sync_names(syncs.pop("type"))
        gathered.add("syncs", {**syncs, "device": device, "pid": constant(pid, len(device)), "name": names})
    if overheads := found.get(OVERHEAD):
        kinds, codes = np.unique(overheads.pop("kind"), return_inverse=True)
        texts = [_OVERHEADS.get(int(kind), f"overhead {kind}") for kind in kinds]
        gathered.add("overheads", {**overheads, "pid": constant(pid, len(codes)), "name": categorical(codes, texts)})


def _clocks_apart(tables: Mapping[str, pd.DataFrame]) -> Doubt | None:
    """A doubt if the clocks of GPU and host were not synchronised: operations begin before, or over 10 s after, their
    launch. Published recordings have kernels 414 s after the calls that launched them."""
    if "api" not in tables or not len(tables["api"]):
        return None
    calls = tables["api"].drop_duplicates("correlation").set_index("correlation")["start_ns"]
    for name, early_ns in _EARLY_NS.items():
        if name not in tables:
            continue
        called = calls.reindex(tables[name]["correlation"]).to_numpy(dtype="float64", na_value=np.nan)
        delay = tables[name]["start_ns"].to_numpy() - called
        delay = delay[~np.isnan(delay)]
        if len(delay):  # the first table with matched calls decides, since all tables have the same clocks
            typical = float(np.median(delay))
            if -early_ns <= typical <= _QUEUE_NS:
                return None
            return clocks_apart(abs(typical), "after" if typical > 0 else "before")
    return None


def _recording(database: Database) -> Recording:
    database.require("Version", "version")
    version = database.query("SELECT version FROM Version")
    return Recording(
        path=str(database.path),
        format="nvprof-sqlite",
        tool="nvprof",
        schema_version=str(version[0][0]) if version else None,
        origin_utc_ns=0,
    )
