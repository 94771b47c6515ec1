"""A timeline made by hand (`Build`) as files of the profilers: the same kernels, copies, calls and ranges in each."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from sqlite3 import connect
from typing import Any

from benchmarks import schemas
from profiles.readers import xplane

from .build import Build
from .planes import Plane

ORIGIN_NS = 1_700_000_000_000_000_000
_COPY = {"h2d": (1, "HtoD", "MemcpyH2D", "HOST_TO_DEVICE"), "d2h": (2, "DtoH", "MemcpyD2H", "DEVICE_TO_HOST"),
         "d2d": (8, "DtoD", "MemcpyD2D", "DEVICE_TO_DEVICE")}  # fmt: skip
_MEMORY = {"pageable": 0, "pinned": 1, "device": 2}
_NAMES_IN_HIP = {"cudaLaunchKernel_v7000": "hipLaunchKernel", "cudaMemcpyAsync_v3020": "hipMemcpyAsync"}


def nsys(made: Build, path: Path) -> None:
    """An export of Nsight Systems, schema 3.20."""
    rows = made.rows
    texts = sorted({row["name"] for table in ("kernels", "api", "marks") for row in rows[table]})
    number = {text: at for at, text in enumerate(texts, start=1)}
    domains = {text: at for at, text in enumerate(sorted({row["domain"] for row in rows["marks"]}), start=1)}
    thread = {(row["pid"], row["tid"]): (1 << 48) + (row["pid"] << 24) + row["tid"] for row in rows["api"]}

    def operation(row: dict[str, Any]) -> dict[str, Any]:
        return {**_times(row), "deviceId": row["device"], "contextId": 1, "streamId": row["stream"]} | {
            "correlationId": row["correlation"], "globalPid": (1 << 48) + (row["pid"] << 24)}  # fmt: skip

    with closing(connect(path)) as connection, connection:
        connection.execute("PRAGMA synchronous = OFF")
        for table, columns in schemas.NSYS.items():
            body = ", ".join(f'"{column}" {schemas.TYPES[type(value)]}' for column, value in columns.items())
            connection.execute(f'CREATE TABLE "{table}" ({body})')

        def put(table: str, found: Iterator[dict[str, Any]]) -> None:
            usual = schemas.NSYS[table]
            connection.executemany(
                f"INSERT INTO {table} VALUES ({', '.join('?' * len(usual))})",
                [tuple((usual | one).values()) for one in found],
            )

        put("StringIds", ({"id": at, "value": text} for text, at in number.items()))
        put("META_DATA_EXPORT", ({"name": name, "value": value} for name, value in schemas.NSYS_META))
        put("TARGET_INFO_SESSION_START_TIME", iter([{"utcEpochNs": ORIGIN_NS}]))
        gpus = sorted({row["device"] for row in rows["kernels"]})
        for gpu in gpus:
            told = {
                "vmId": 1 << 48,
                "id": gpu,
                "name": "NVIDIA H200",
                "busLocation": f"0000:{_number(made, gpu) + 1:02X}:00.0",
            }
            uuid = f"{_number(made, gpu):08}-0000-0000-0000-000000000000"
            put("TARGET_INFO_GPU", iter([{**told, "uuid": uuid, "cuDevice": gpu, "smCount": 132}]))
        names = ("demangledName", "shortName", "mangledName")
        put("CUPTI_ACTIVITY_KIND_KERNEL",
            (operation(row) | dict.fromkeys(names, number[row["name"]]) | {"gridX": row.get("blocks", 0)}
             for row in rows["kernels"]))  # fmt: skip
        put("CUPTI_ACTIVITY_KIND_MEMCPY",
            (operation(row) | {"bytes": row["bytes"], "copyKind": _COPY[row["kind"]][0],
                               "srcKind": _MEMORY[row["src_kind"]], "dstKind": _MEMORY[row["dst_kind"]]}
             for row in rows["copies"]))  # fmt: skip
        put("CUPTI_ACTIVITY_KIND_RUNTIME",
            ({**_times(row), "globalTid": thread[row["pid"], row["tid"]], "correlationId": row["correlation"],
              "nameId": number[row["name"]]} for row in rows["api"]))  # fmt: skip
        process = {row["pid"]: (1 << 48) + (row["pid"] << 24) + row["pid"] for row in rows["marks"]}
        put("NVTX_EVENTS", ({"eventType": 75, "text": text, "domainId": at, "globalTid": one}
                            for text, at in domains.items() for one in process.values()))  # fmt: skip
        put("NVTX_EVENTS",
            ({**_times(row), "eventType": 59, "text": None, "textId": number[row["name"]],
              "domainId": domains[row["domain"]], "globalTid": (1 << 48) + (row["pid"] << 24) + row["tid"]}
             for row in rows["marks"]))  # fmt: skip


def kineto(made: Build, path: Path) -> None:
    """What PyTorch's profiler writes: JSON in us, with what kind of memory a copy reads and writes in its name."""
    rank = made.recording.rank
    events = []
    for table, category in (("kernels", "kernel"), ("copies", "gpu_memcpy")):
        for row in made.rows[table]:
            name = row.get("name") or (f"Memcpy {_COPY[row['kind']][1]} ({row['src_kind'].capitalize()} -> "
                                       f"{row['dst_kind'].capitalize()})")  # fmt: skip
            told = {"device": row["device"], "context": 1, "stream": row["stream"], "correlation": row["correlation"]}
            told |= {"bytes": row["bytes"]} if table == "copies" else {"grid": [row.get("blocks", 0), 1, 1]}
            events.append({"ph": "X", "cat": category, "name": name, "pid": row["device"], "tid": row["stream"],
                           **_us(row), "args": told})  # fmt: skip
    for table, category in (("api", "cuda_runtime"), ("marks", "user_annotation")):
        for row in made.rows[table]:
            name = row["name"].partition("_v")[0]
            events.append({"ph": "X", "cat": category, "name": name, "pid": row["pid"], "tid": row["tid"], **_us(row),
                           "args": {"correlation": row["correlation"]} if table == "api" else {}})  # fmt: skip
    about: dict[str, Any] = {"schemaVersion": 1, "deviceProperties": [{"id": 0, "name": "NVIDIA H200", "numSms": 132}]}
    if rank is not None:
        about["distributedInfo"] = {"backend": "nccl", "rank": rank, "world_size": 2}
    path.write_text(json.dumps({**about, "traceEvents": events}))


def xla(made: Build, path: Path) -> None:
    """An XPlane as TensorFlow and JAX write it: a plane per GPU, one of CUDA's calls, one of the host's ranges."""
    space = xplane.message()()
    for device in sorted({row["device"] for row in made.rows["kernels"]}):
        plane = Plane(space, f"/device:GPU:{device}", gpu_device_name="NVIDIA H200", core_count=132)
        mine = [row for table in ("kernels", "copies") for row in made.rows[table] if row["device"] == device]
        for stream in sorted({row["stream"] for row in mine}):
            events = []
            for row in (one for one in mine if one["stream"] == stream):
                about = {"correlation_id": row["correlation"], "context_id": "$$1"}
                if "kind" in row:
                    ends = f"kind_src:{row['src_kind']} kind_dst:{row['dst_kind']}"
                    about["memcpy_details"] = f"{ends} size:{row['bytes']} dest:0 async:1"
                else:
                    about["kernel_details"] = f"regs:32 grid:{row.get('blocks', 0)},1,1 block:1,1,1"
                events.append((row.get("name") or _COPY[row["kind"]][2], *_ps(row), about))
            plane.line(stream, f"Stream #{stream}(Compute)", 0, *events)
    calls, host = Plane(space, "/host:CUPTI"), Plane(space, "/host:CPU")
    for thread in sorted({row["tid"] for row in made.rows["api"]}):
        found = [row for row in made.rows["api"] if row["tid"] == thread]
        told = [
            (row["name"].partition("_v")[0], *_ps(row), {"correlation_id": max(row["correlation"], 0)}) for row in found
        ]
        calls.line(thread, f"Host Threads/{thread}", 0, *told)
    for thread in sorted({row["tid"] for row in made.rows["marks"]}):
        found = [row for row in made.rows["marks"] if row["tid"] == thread]
        told = []
        for row in found:
            kind, _, number = row["name"].partition(" ")
            is_step = kind == "step" and number.isdigit()
            told.append(("train" if is_step else row["name"], *_ps(row), {"step_num": int(number)} if is_step else {}))
        host.line(thread, "python", 0, *told)
    Plane(space, "Task Environment", profile_start_time=ORIGIN_NS)
    path.write_bytes(space.SerializeToString())


def rocprofv3(made: Build, path: Path) -> None:
    """The results.json of AMD's rocprofv3, calls by HIP's names."""
    cpu, gpu = 100, 200
    rows = made.rows
    kernels = sorted({row["name"] for row in rows["kernels"]})
    hip = sorted({_hip(row["name"]) for row in rows["api"]})
    ways = [f"MEMORY_COPY_{way}" for *_, way in _COPY.values()]
    operations = [hip, ["roctxThreadRangeA"], ways, ["KERNEL_DISPATCH_COMPLETE"]]
    kinds = ["HIP_RUNTIME_API", "MARKER_CORE_RANGE_API", "MEMORY_COPY", "KERNEL_DISPATCH"]
    unseen = max((row["correlation"] for row in rows["api"]), default=0) + 1

    def record(kind: int, operation: str, row: dict[str, Any], correlation: int) -> dict[str, Any]:
        return {
            "size": 184, "kind": kind, "operation": operations[kind].index(operation),
            "correlation_id": {"internal": correlation, "external": 0}, "thread_id": row.get("tid", 1),
            "start_timestamp": ORIGIN_NS + row["start_ns"], "end_timestamp": ORIGIN_NS + row["end_ns"],
        }  # fmt: skip

    dispatches, copies, calls, marks, messages = [], [], [], [], []
    for row in rows["kernels"]:
        info = {"agent_id": {"handle": gpu + row["device"]}, "queue_id": {"handle": 1}, "dispatch_id": 1,
                "kernel_id": kernels.index(row["name"])}  # fmt: skip
        dispatches.append(record(3, "KERNEL_DISPATCH_COMPLETE", row, row["correlation"])
                          | {"dispatch_info": info, "stream_id": {"handle": row["stream"]}})  # fmt: skip
    for row in rows["copies"]:
        ends = [cpu if row[end] in ("pageable", "pinned") else gpu + row["device"] for end in ("src_kind", "dst_kind")]
        copies.append(record(2, f"MEMORY_COPY_{_COPY[row['kind']][3]}", row, row["correlation"])
                      | {"src_agent_id": {"handle": ends[0]}, "dst_agent_id": {"handle": ends[1]},
                         "bytes": row["bytes"], "stream_id": {"handle": row["stream"]}})  # fmt: skip
    for at, row in enumerate(rows["api"]):
        calls.append(record(0, _hip(row["name"]), row, row["correlation"] if row["correlation"] > 0 else unseen + at))
    for at, row in enumerate(rows["marks"], start=unseen + len(calls)):
        messages.append({"key": at, "value": row["name"]})
        marks.append(record(1, "roctxThreadRangeA", row, at))
    uuid = {"bytes": {f"value{at}": 16 * _number(made, 0) + at for at in range(16)}}
    agents = [{"size": 312, "id": {"handle": cpu}, "type": 1, "logical_node_type_id": 0}]
    for device in sorted({row["device"] for row in rows["kernels"]}):
        agents.append({"size": 312, "id": {"handle": gpu + device}, "type": 2, "logical_node_type_id": device,
                       "uuid": uuid, "name": "gfx950", "product_name": "AMD Instinct MI350X", "domain": 0,
                       "location_id": 0xE500 + (_number(made, device) << 3)})  # fmt: skip
    process = {
        "metadata": {"node": {"hostname": "amd1"}, "pid": made.defaults["pid"], "init_time": 0, "fini_time": 0},
        "agents": agents,
        "strings": {"buffer_records": [{"kind": kind, "operations": names} for kind, names in
                                       zip(kinds, operations, strict=True)], "marker_api": messages},
        "kernel_symbols": [{"kernel_id": at, "formatted_kernel_name": name} for at, name in enumerate(kernels)],
        "buffer_records": {"kernel_dispatch": dispatches, "hip_api": calls, "hsa_api": [], "marker_api": marks,
                           "memory_copy": copies},
    }  # fmt: skip
    path.write_text(json.dumps({"rocprofiler-sdk-tool": [process]}))


FORMATS: dict[str, Callable[[Build, Path], None]] = {
    "sqlite": nsys, "pt.trace.json": kineto, "xplane.pb": xla, "results.json": rocprofv3,
}  # fmt: skip


def _number(made: Build, device: int) -> int:
    """A GPU's number on the host: each rank sees its own alone."""
    return device + (made.recording.rank or 0)


def _hip(call: str) -> str:
    name = _NAMES_IN_HIP.get(call) or call.partition("_v")[0]
    return "hip" + name[4:] if name.startswith("cuda") else "hip" + name[2:] if name.startswith("cu") else name


def _times(row: dict[str, Any]) -> dict[str, Any]:
    return {"start": row["start_ns"], "end": row["end_ns"]}


def _us(row: dict[str, Any]) -> dict[str, float]:
    return {"ts": row["start_ns"] / 1000, "dur": (row["end_ns"] - row["start_ns"]) / 1000}


def _ps(row: dict[str, Any]) -> tuple[int, int]:
    return row["start_ns"] * 1000, (row["end_ns"] - row["start_ns"]) * 1000
