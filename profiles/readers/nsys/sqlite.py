"""Read SQLite exports of Nsight Systems (`nsys export -t sqlite`), from schemas without a version number up to 3.25.

A table exists only if it has rows, and columns differ between schemas, so both are looked up by name. Times are ns
since the start of the session; a globalTid packs hardware:8 vm:8 pid:24 tid:24 bits.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ...model.possible import LIMIT_NS
from ...model.timeline import Recording, Timeline
from ..tables import cupti, sqlite
from ..tables.gathering import NO_TIME, Gathered, constant, gpus, require_gpu_work
from ..tables.scan import Column, present, scan
from ..tables.sqlite import Database
from ..tables.strings import Strings
from ..tables.texts import texts_by_number
from . import dropped, gpu_metrics, marks, prefetched
from .devices import Devices
from .marks import NVTX

_CUPTI: Final = "CUPTI_ACTIVITY_KIND_"
KERNEL, GRAPH, MEMCPY, MEMSET = (_CUPTI + name for name in ("KERNEL", "GRAPH_TRACE", "MEMCPY", "MEMSET"))
RUNTIME, SYNC = _CUPTI + "RUNTIME", _CUPTI + "SYNCHRONIZATION"
OVERHEAD: Final = "PROFILER_OVERHEAD"


_NO_STREAM: Final = (1 << 32) - 1
_STARTED: Final = "TARGET_INFO_SESSION_START_TIME"
_RECORD: Final = "record with `nsys profile -t cuda,nvtx` (on Linux itself: WSL 2 records no GPU work)"

_GRAPHICS: Final = (("VULKAN", "Vulkan"), ("OPENGL", "OpenGL"), ("DX12", "Direct3D 12"), ("DX11", "Direct3D 11"))
# (table, its content) for GPU data of other kinds, which the error names if an export has no CUDA work.
_IN_PLACE: Final = (
    *((f"{name}_WORKLOAD", f"graphics of {called}") for name, called in _GRAPHICS),
    (gpu_metrics.TABLE, "counters that were sampled (--gpu-metrics-devices)"),
)

Columns = dict[str, Any]


def detects(head: bytes, path: Path) -> bool:
    """True for an SQLite file with nsys's table of strings, which no other profiler writes."""
    return head.startswith(sqlite.MAGIC) and "StringIds" in sqlite.table_names(path)


def read(path: Path) -> Timeline:
    with closing(Database(path)) as database:
        return _timeline(database)


def _timeline(database: Database) -> Timeline:
    strings = _strings(database)
    wanted = {
        table: columns
        for table, columns in (
            (KERNEL, _kernel_columns(database, strings)),
            (RUNTIME, _runtime_columns(database, strings)),
            (GRAPH, _graph_columns(database)),
            (MEMCPY, _copy_columns(database)),
            (MEMSET, _memset_columns(database)),
            (SYNC, _sync_columns(database)),
            (NVTX, marks.columns(database, _host_columns(database, NVTX))),
            (OVERHEAD, _overhead_columns(database, strings)),
            (gpu_metrics.TABLE, gpu_metrics.columns(database)),
        )
        if columns
    }
    scanned = scan(database, wanted)
    gathered = Gathered()
    for table, rows in scanned.items():
        gathered.meet("mixed-types", table, rows.left_out)
    found = {table: rows.columns for table, rows in scanned.items()}
    devices = Devices(database)
    _add_operations(gathered, found, strings, devices)
    _add_host(gathered, found, strings, database)
    if sampled := found.get(gpu_metrics.TABLE):
        gpu_metrics.add(gathered, sampled, database, devices)
    gpu_metrics.add_power(gathered, database, devices)
    gathered.tables["devices"] = gpus(devices.listed(), gathered.tables)
    gathered.doubts += dropped.doubts(database, gathered.tables)
    holds = next((what for table, what in _IN_PLACE if database.has(table)), "")
    return require_gpu_work(gathered.timeline(_recording(database), _known(found)), database.path, _RECORD, holds)


def _known(found: Mapping[str, Columns]) -> frozenset[str]:
    """Names of the timeline's tables that nsys recorded, also of empty ones: it traces all CUDA work or none."""
    cuda = {"kernels", "graphs", "copies", "memsets"} if set(found) & {KERNEL, GRAPH, MEMCPY, MEMSET, RUNTIME} else ()
    others = {RUNTIME: "api", SYNC: "syncs", NVTX: "marks", OVERHEAD: "overheads"}
    return frozenset({"devices", *cuda, *(name for table, name in others.items() if table in found)})


def _strings(database: Database) -> Strings:
    database.require("StringIds", "id", "value")
    return Strings(*texts_by_number(database, "StringIds", "id", "value"))


# ---- columns to read


def _operation_columns(database: Database, table: str) -> dict[str, Column]:
    if not database.has(table):
        return {}
    database.require(table, "start", "end", "deviceId", "streamId")
    columns = {
        "start_ns": Column("start", NO_TIME),
        "end_ns": Column("end", NO_TIME),
        "device": Column("deviceId", -1, "int32", usual="int8"),
        "stream": Column("streamId", -1, "int32", usual="int16"),
    }
    optional = {
        "context": Column("contextId", -1, "int32", usual="int16"),
        "correlation": Column("correlationId", -1, usual="int32"),
        "pid": Column("globalPid", convert=_pid),
    }
    return columns | present(database, table, optional)


def _kernel_columns(database: Database, strings: Strings) -> dict[str, Column]:
    columns = _operation_columns(database, KERNEL)
    if name := database.first(KERNEL, ("demangledName", "shortName", "mangledName")):
        columns["name"] = Column(name, -1, strings.dtype, strings.codes)
    if database.has(KERNEL, "graphNodeId"):
        columns["graph_node"] = Column("graphNodeId")
    return columns | cupti.grid_columns(database, KERNEL)


def _graph_columns(database: Database) -> dict[str, Column]:
    columns = _operation_columns(database, GRAPH)
    if graph := database.first(GRAPH, ("graphId", "graphExecId")):
        columns["graph"] = Column(graph, -1)
    return columns


def _copy_columns(database: Database) -> dict[str, Column]:
    columns = _operation_columns(database, MEMCPY)
    if columns:
        database.require(MEMCPY, "copyKind", "bytes")
    optional = {
        "kind": Column("copyKind"),
        "bytes": cupti.size("bytes"),
        "src_kind": Column("srcKind", -1),
        "dst_kind": Column("dstKind", -1),
        "src_device": Column("srcDeviceId", -1, "int32"),
        "dst_device": Column("dstDeviceId", -1, "int32"),
        "graph_node": Column("graphNodeId"),
        "cause": Column("migrationCause", usual="int8"),
    }
    return columns | present(database, MEMCPY, optional)


def _memset_columns(database: Database) -> dict[str, Column]:
    columns = _operation_columns(database, MEMSET)
    optional = {"bytes": cupti.size("bytes"), "graph_node": Column("graphNodeId")}
    return columns | present(database, MEMSET, optional)


def _sync_columns(database: Database) -> dict[str, Column]:
    columns = _operation_columns(database, SYNC)
    if columns:
        columns["stream"] = Column("streamId", -1, "int32", _stream)
        if database.has(SYNC, "syncType"):
            columns["type"] = Column("syncType")
    return columns


def _host_columns(database: Database, table: str) -> dict[str, Column]:
    if not database.has(table):
        return {}
    database.require(table, "start", "end", "globalTid")
    return {
        "start_ns": Column("start", NO_TIME),
        "end_ns": Column("end", NO_TIME),
        "pid": Column("globalTid", convert=_pid),
        "tid": Column("globalTid", convert=_tid, usual="int32"),
    }


def _runtime_columns(database: Database, strings: Strings) -> dict[str, Column]:
    columns = _host_columns(database, RUNTIME)
    if columns:
        database.require(RUNTIME, "nameId", "correlationId")
        columns["name"] = Column("nameId", -1, strings.dtype, strings.codes)
        columns["correlation"] = Column("correlationId", -1, usual="int32")
    return columns


def _overhead_columns(database: Database, strings: Strings) -> dict[str, Column]:
    columns = _host_columns(database, OVERHEAD)
    if database.has(OVERHEAD, "nameId"):
        columns["name"] = Column("nameId", -1, strings.dtype, strings.codes)
    return columns


def _pid(global_id: NDArray[np.int64]) -> NDArray[np.int64]:
    return (global_id >> 24) & 0xFFFFFF


def _tid(global_id: NDArray[np.int64]) -> NDArray[np.int64]:
    return global_id & 0xFFFFFF


def _stream(stream: NDArray[np.int64]) -> NDArray[np.int32]:
    inside = (stream >= 0) & (stream < _NO_STREAM >> 1)
    narrow: NDArray[np.int32] = np.where(inside, stream, -1).astype(np.int32)
    return narrow


# ---- tables of a Timeline from the columns


def _add_operations(gathered: Gathered, found: dict[str, Columns], strings: Strings, devices: Devices) -> None:
    for table, columns in found.items():
        if table in (KERNEL, GRAPH, MEMCPY, MEMSET, SYNC):
            count = len(columns["start_ns"])
            columns.setdefault("context", constant(-1, count, "int32"))
            columns.setdefault("correlation", constant(-1, count))
            columns.setdefault("pid", constant(0, count))
            columns["device"] = devices.renumbered(columns["pid"], columns["device"])
    if kernels := found.get(KERNEL):
        count = len(kernels["start_ns"])
        codes = kernels.pop("name", np.full(count, -1, dtype=np.int32))
        gathered.meet("missing-strings", KERNEL, int((codes < 0).sum()))
        told = {"name": strings.categorical(codes), "graph_node": _nodes(kernels, count)}
        gathered.add("kernels", cupti.with_blocks(kernels) | told)
    if graphs := found.get(GRAPH):
        gathered.add("graphs", {"graph": constant(-1, len(graphs["start_ns"])), **graphs})
    if copies := found.get(MEMCPY):
        nodes = _nodes(copies, len(copies["start_ns"]))
        copies["correlation"] = prefetched.calls(copies, found.get(RUNTIME), strings)
        copies.pop("cause", None)
        gathered.add("copies", {**cupti.copies(copies, cupti.NSYS_MEMORY), "graph_node": nodes})
    if memsets := found.get(MEMSET):
        count = len(memsets["start_ns"])
        gathered.add("memsets", {"bytes": constant(0, count), **memsets, "graph_node": _nodes(memsets, count)})
    if syncs := found.get(SYNC):
        types = syncs.pop("type", constant(0, len(syncs["start_ns"])))
        gathered.add("syncs", {**syncs, "name": cupti.sync_names(types)})


def _nodes(columns: Columns, count: int) -> NDArray[np.int64]:
    """The CUDA graph node of each operation, 0 for none. If no operation has one, a constant that takes no memory."""
    nodes = columns.get("graph_node")
    return nodes if nodes is not None and nodes.any() else constant(0, count)


def _add_host(gathered: Gathered, found: dict[str, Columns], strings: Strings, database: Database) -> None:
    if api := found.get(RUNTIME):
        gathered.meet("missing-strings", RUNTIME, int((api["name"] < 0).sum()))
        gathered.add("api", {**api, "name": strings.categorical(api.pop("name"), cupti.api_name)})
    if said := found.get(NVTX):
        marks.add(gathered, said, strings, database)
    if overheads := found.get(OVERHEAD):
        codes = overheads.pop("name", np.full(len(overheads["start_ns"]), -1, dtype=np.int32))
        gathered.add("overheads", {**overheads, "name": strings.categorical(codes)})


def _recording(database: Database) -> Recording:
    told: dict[str, str] = {}
    for table in ("EXPORT_META_DATA", "META_DATA_EXPORT"):
        if database.has(table, "name", "value"):
            told |= {
                str(name): str(value)
                for name, value in database.query(f"SELECT name, value FROM {database.stored(table)}")
            }
    utc = None
    if database.has(_STARTED, "utcEpochNs"):
        rows = database.query(f"SELECT utcEpochNs FROM {database.stored(_STARTED)} LIMIT 1")
        utc = rows[0][0] if rows and isinstance(rows[0][0], int) and 0 < rows[0][0] < LIMIT_NS else None
    return Recording(
        path=str(database.path),
        format="nsys-sqlite",
        tool="Nsight Systems",
        tool_version=told.get("EXPORT_PRODUCT_VERSION"),
        schema_version=told.get("EXPORT_SCHEMA_VERSION"),
        origin_utc_ns=utc,
        host=_host(database),
    )


def _host(database: Database) -> str | None:
    """The host name of the recorded machine; None if the export lacks it."""
    if not database.has("TARGET_INFO_SYSTEM_ENV", "name", "value"):
        return None
    rows = database.query("SELECT value FROM TARGET_INFO_SYSTEM_ENV WHERE name = 'Hostname' LIMIT 1")
    return str(rows[0][0]) if rows and isinstance(rows[0][0], str) and rows[0][0] else None
