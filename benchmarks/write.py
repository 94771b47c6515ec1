"""A generated run in the formats of the profilers: each writer puts the same events into its own tables and units."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import adbc_driver_sqlite.dbapi as adbc
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from . import schemas
from .training import CALLS, CBIDS, DOMAINS, EPOCH_NS, GET_NEXT, MANGLED, NAMES, Shape, Tables, chunks, devices

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

    Raises ValueError where `gpus` are those of several processes.
    """
    gpus = gpus if gpus is not None else range(shape.gpus)
    _one_process(shape, gpus)
    steps = ["wait input", GET_NEXT, *(f"step {step}" for step in range(shape.steps))]
    ranks = [f"rank {rank} of {shape.processes}" for rank in range(shape.processes)]
    string_id = {text: number for number, text in enumerate([*MANGLED, "NVIDIA Generated", *DOMAINS, *steps, *ranks])}
    string_id = {text: number + 1 for text, number in string_id.items()}
    memory = {"pageable": 1, "pinned": 2, "device": 3}
    rows: dict[str, int] = {}
    with _Created(path, schemas.NVPROF) as put_plain:

        def put(table: str, columns: Mapping[str, Any]) -> None:
            """With the running number that every table of nvprof's has."""
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
    """Two rows a range (flags 2 with the name, 4 without), one an instant (flags 1)."""
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


def write_nvprof_csv(shape: Shape, path: Path, gpus: range | None = None) -> None:
    """What `nvprof --print-gpu-trace --csv` prints: start in ms and duration in us, both to the nanosecond; no API."""
    gpus = gpus if gpus is not None else range(shape.gpus)
    _one_process(shape, gpus)
    pid = shape.pid(gpus[0])
    with path.open("wb") as file:
        for line in (
            "NVPROF is profiling process {}, command: python train.py",
            "Profiling application: python train.py",
        ):
            file.write(f"=={pid}== {line.format(pid)}\n".encode())
        file.write(f"=={pid}== Profiling result:\n".encode())
        file.write((",".join(f'"{column}"' for column in schemas.NVPROF_CSV) + "\n").encode())
        file.write((",".join(schemas.NVPROF_CSV.values()) + "\n").encode())
        for tables in chunks(shape, gpus):
            operations = _operations(tables)
            device = pc.binary_join_element_wise("NVIDIA Generated (", _str(operations["device"]), ")", "")
            kind = operations["what"]
            grid = np.where(kind == "kernel", "128,1,1,256,1,1,32,0,0", ",,,,,,,,")
            size = np.where(kind == "kernel", "", _kilobytes(operations["bytes"]))
            peers = [_peer(operations[f"{end}_device"]) for end in ("src", "dst")]
            memory = [operations[f"{end}_kind"].astype(object).fillna("").str.capitalize() for end in ("src", "dst")]
            cells = [
                _decimal(operations["start_ns"], 6), _decimal(operations["duration_ns"], 3), grid, size,
                np.where(size == "", "", "1.000000"), *map(_quoted, memory), _quoted(device),
                _quoted(_str(operations["context"])), _quoted(_str(operations["stream"])),
                peers[0], np.where(peers[0] == "", "", '"1"'), peers[1], np.where(peers[1] == "", "", '"1"'),
                _quoted(operations["printed"]), _str(operations["correlation"]),
            ]  # fmt: skip
            _lines(file, pc.binary_join_element_wise(*(_text(cell) for cell in cells), ","))


def write_kineto(shape: Shape, path: Path, gpus: range | None = None) -> None:
    """What PyTorch's profiler writes of one process: JSON, microseconds of the epoch with three decimals."""
    gpus = gpus if gpus is not None else range(shape.gpus)
    _one_process(shape, gpus)
    rank = gpus[0] * shape.processes // shape.gpus
    listed = ",".join(f'{{"id":{gpu},"name":"NVIDIA Generated"}}' for gpu in gpus)
    with path.open("wb") as file:
        ranks = f'{{"backend":"nccl","rank":{rank},"world_size":{shape.processes}}}'
        head = f'{{"schemaVersion":1,"deviceProperties":[{listed}],"distributedInfo":{ranks},"traceEvents":[\n'
        file.write(head.encode())
        for tables in chunks(shape, gpus):
            operations, api, marks = _operations(tables), tables["api"], tables["marks"]
            category = operations["what"].map({"kernel": "kernel", "copy": "gpu_memcpy", "memset": "gpu_memset"})
            device, stream = _str(operations["device"]), _str(operations["stream"])
            peer = operations["src_device"] >= 0
            ends = [_str(operations[f"{end}_device"]) for end in ("src", "dst")]
            ends = pc.binary_join_element_wise('"fromDevice":', ends[0], ',"toDevice":', ends[1], ',"inDevice":', "")
            kernel = operations["what"] == "kernel"
            args = [
                ',"args":{', pc.if_else(pa.array(peer), ends, '"device":'), device, ',"context":1,"stream":', stream,
                ',"correlation":', _str(operations["correlation"]),
                np.where(kernel, "", ',"bytes":'), np.where(kernel, "", operations["bytes"].astype(str)), "}},",
            ]  # fmt: skip
            event = ['{"ph":"X","cat":"', category, '","name":"', operations["kineto"], '","pid":', device, ',"tid":']
            _lines(file, _joined([*event, stream, *_kineto_times(operations), *args]))
            event = ['{"ph":"X","cat":"cuda_runtime","name":"', api["name"], '","pid":', _str(api["pid"])]
            args = [',"args":{"correlation":', _str(api["correlation"]), "}},"]
            _lines(file, _joined([*event, ',"tid":', _str(api["tid"]), *_kineto_times(api), *args]))
            event = ['{"ph":"X","cat":"user_annotation","name":"', marks["name"], '","pid":', _str(marks["pid"])]
            _lines(file, _joined([*event, ',"tid":', _str(marks["tid"]), *_kineto_times(marks), "},"]))
        file.write(b'{"ph":"i","s":"g","name":"Record Window End","pid":"","tid":"","ts":1}]}\n')


WRITERS: Mapping[str, Callable[[Shape, Path, range | None], None]] = {
    "nsys": write_nsys,
    "nvprof": write_nvprof,
    "nvprof-csv": write_nvprof_csv,
    "kineto": write_kineto,
}


def _one_process(shape: Shape, gpus: range) -> None:
    if len({shape.pid(gpu) for gpu in gpus}) > 1:
        raise ValueError("a file of this format holds one process: say which, or make the run with processes=1")


class _Created:
    """A new SQLite file with the tables of `schema`; gives put(table, columns), which fills what is not given."""

    def __init__(self, path: Path, schema: Mapping[str, Mapping[str, Any]]) -> None:
        path.unlink(missing_ok=True)
        with closing(sqlite3.connect(path)) as connection:
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


def _operations(tables: Tables) -> pd.DataFrame:
    """All operations of a chunk by start, with `what` they are and their names as nvprof and Kineto print them."""
    kernels = tables["kernels"].assign(what="kernel", printed=lambda t: t["name"].astype(str))
    copies = tables["copies"].assign(what="copy")
    ways = {"h2d": "HtoD", "d2h": "DtoH", "d2d": "DtoD", "p2p": "PtoP"}
    way = copies["kind"].astype(str).map(ways)
    kinds = [copies[f"{end}_kind"].astype(str).str.capitalize() for end in ("src", "dst")]
    copies = copies.assign(printed="[CUDA memcpy " + way + "]")
    copies = copies.assign(kineto="Memcpy " + way + " (" + kinds[0] + " -> " + kinds[1] + ")")
    memsets = tables["memsets"].assign(what="memset", printed="[CUDA memset]", kineto="Memset (Device)")
    whole = pd.concat([kernels.assign(kineto=kernels["printed"]), copies, memsets], ignore_index=True)
    peers = whole[["src_device", "dst_device"]].fillna(-1).astype(np.int64)
    whole = whole.assign(duration_ns=whole["end_ns"] - whole["start_ns"], src_device=peers["src_device"])
    whole = whole.assign(dst_device=peers["dst_device"], bytes=whole["bytes"].fillna(0).astype(np.int64))
    return whole.sort_values("start_ns", kind="stable", ignore_index=True)


def _kineto_times(rows: pd.DataFrame) -> list[Any]:
    start = rows["start_ns"].to_numpy() + EPOCH_NS
    return [',"ts":', _decimal(start, 3), ',"dur":', _decimal(rows["end_ns"] - rows["start_ns"], 3)]


def _decimal(numbers: Any, places: int) -> pa.Array:
    """Non-negative integers divided by 10**places, exactly."""
    whole, rest = np.divmod(np.asarray(numbers), 10**places)
    return pc.binary_join_element_wise(_str(whole), pc.utf8_lpad(_str(rest), places, "0"), ".")


def _kilobytes(sizes: pd.Series) -> np.ndarray:
    """As nvprof prints them: six decimals."""
    return (sizes / 1024).map("{:.6f}".format).to_numpy(dtype=object)


def _peer(devices: pd.Series) -> np.ndarray:
    return np.where(devices < 0, "", '"NVIDIA Generated (' + devices.astype(str) + ')"')


def _quoted(cells: Any) -> pa.Array:
    texts = _text(cells)
    return pc.if_else(pc.equal(texts, ""), "", pc.binary_join_element_wise('"', texts, '"', ""))


def _str(numbers: Any) -> pa.Array:
    return pc.cast(pa.array(np.asarray(numbers)), pa.string())


def _text(cells: Any) -> pa.Array:
    if isinstance(cells, pd.Series):
        cells = cells.astype(object).to_numpy()
    return cells if isinstance(cells, pa.Array) else pa.array(cells, pa.string())


def _joined(parts: Sequence[Any]) -> pa.Array:
    return pc.binary_join_element_wise(*(part if isinstance(part, str) else _text(part) for part in parts), "")


def _lines(file: Any, lines: pa.Array) -> None:
    """The bytes of the lines as Arrow holds them, each with its end."""
    whole = pc.binary_join_element_wise(lines, "", "\n")
    offsets = np.frombuffer(whole.buffers()[1], dtype=np.int32)[whole.offset : whole.offset + len(whole) + 1]
    if len(whole):
        file.write(memoryview(whole.buffers()[2])[int(offsets[0]) : int(offsets[-1])])
