"""Read the output of `nsys stats --report cuda_gpu_trace --format csv`: one row per operation, times in nanoseconds.

Old and new headers are read, and lines of nsys (NOTICE, Processing) and of scripts may stand before the header. nsys
prints sizes in megabytes of 10**6 bytes with three decimals: they are exact to 500 bytes, and a doubt says so.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

import numpy as np
import pandas as pd
import pyarrow as pa

from ...doubts.recordings import coarse_sizes
from ...ground.errors import UnreadableRecording
from ...model.timeline import NAMELESS, WITHOUT_TIMES, Recording, Timeline, make
from ..opening import whole
from ..tables import printed
from ..tables.gathering import Device, gpus, require_gpu_work

Array = np.ndarray

_HEADER: Final = re.compile(rb'(?m)^"?Start \((\w+)\)"?,"?Duration \((\w+)\)"?,.*$')
_ANY: Final = re.compile(
    rb'(?m)^"?(?:Time \(%\)|Start \(\w+\)|RangeId|Range|Start:Ts|Operation)"?,'
    rb'"?(?:Total Time \(\w+\)|Total \(\w+\)|Duration \(\w+\)|End \(\w+\)|Instances|Count)"?,.*$'
)
_RECORD: Final = "give the .nsys-rep itself, or print `nsys stats --report cuda_gpu_trace --format csv` of it"
_TIME_NS: Final = {**printed.TIME_NS, "nsec": 1, "usec": 10**3, "msec": 10**6, "sec": 10**9}
_SIZE_BYTES: Final = {
    "B": 1,
    "byte": 1,
    "bytes": 1,
    "KB": 10**3,
    "MB": 10**6,
    "GB": 10**9,
    "KiB": 1 << 10,
    "MiB": 1 << 20,
    "GiB": 1 << 30,
}
_WAYS: Final = {
    "htod": "h2d", "host-to-device": "h2d", "host-to-array": "h2d",
    "dtoh": "d2h", "device-to-host": "d2h", "array-to-host": "d2h",
    "dtod": "d2d", "device-to-device": "d2d", "array-to-device": "d2d", "device-to-array": "d2d",
    "ptop": "p2p", "p2p": "p2p", "peer-to-peer": "p2p", "htoh": "h2h", "host-to-host": "h2h",
}  # fmt: skip
_TEXTS: Final = frozenset({"SrcMemKd", "DstMemKd", "Device", "Name"})


def detects(head: bytes, path: Path) -> bool:
    """True if the head holds the header of one of the tables of `nsys stats`."""
    return _ANY.search(printed.decoded(head)) is not None


def read(path: Path) -> Timeline:
    """Read kernels, copies and memsets. Raises UnreadableRecording for other reports of `nsys stats`."""
    lines = printed.Lines.of(printed.decoded(whole(path, b"\n")))
    headers = [(start, end) for start, end in lines.other_lines(b'"TSRO') if _ANY.match(lines.data, start, end)]
    traces = [(end, _cells(lines.data[start:end])) for start, end in headers if _HEADER.match(lines.data, start, end)]
    traces = [(end, cells) for end, cells in traces if {"Name", "Device", "Strm"} <= set(cells)]
    if not traces:
        columns = ",".join(_cells(lines.data[slice(*headers[0])]))[:60] if headers else ""
        problem = f"a table of `nsys stats`, but not its trace of GPU operations ({columns}...)"
        raise UnreadableRecording(path, problem, _RECORD)
    begin, header = traces[0]
    stop = min((start for start, _ in headers if start > begin), default=len(lines.data))
    if len(set(header)) < len(header):
        raise UnreadableRecording(path, "a trace of `nsys stats` with a damaged header", _RECORD)
    sizes = next((match[1] for name in header if (match := re.fullmatch(r"Bytes \((\w+)\)", name))), "MB")
    if sizes not in _SIZE_BYTES:
        raise UnreadableRecording(path, f"a trace of `nsys stats` with sizes of a unit {sizes}", _RECORD)
    numbers = frozenset(header) - _TEXTS - {"GrdX", "GrdY", "GrdZ", "BlkX", "BlkY", "BlkZ", "Reg/Trd"}
    try:
        rows = printed.read_rows(lines, begin + 1, stop, header, numbers=numbers, texts=_TEXTS)
    except pa.ArrowInvalid as error:
        problem = f"a trace of `nsys stats` that cannot be read ({str(error).splitlines()[0]})"
        raise UnreadableRecording(path, problem, _RECORD) from None
    tables, left_out = _tables(rows, header)
    if not any(len(tables[name]) for name in ("kernels", "copies", "memsets")):
        raise UnreadableRecording(path, "a trace of `nsys stats` without GPU operations", _RECORD)
    doubts = []
    if len(tables["copies"]) and _SIZE_BYTES[sizes] > 1:
        doubts.append(coarse_sizes())
    timeline = make(
        Recording(path=str(path), format="nsys-stats-csv", tool="Nsight Systems"),
        tables,
        doubts=tuple(doubts),
        left_out=left_out,
    )
    return require_gpu_work(timeline, path, _RECORD)


def _cells(line: bytes) -> tuple[str, ...]:
    return tuple(cell.strip(' "') for cell in line.decode(errors="replace").split(","))


def _tables(rows: printed.Rows, header: tuple[str, ...]) -> tuple[dict[str, pd.DataFrame], dict[str, int]]:
    start, start_good = _scaled(rows, header, "Start", _TIME_NS)
    duration, duration_good = _scaled(rows, header, "Duration", _TIME_NS)
    size, _ = _scaled(rows, header, "Bytes", _SIZE_BYTES)
    codes, names = rows.texts("Name")
    sorts = np.array([_sort(name) for name in [*names, ""]])[codes]
    timed = start_good & duration_good
    device, names_of_devices = rows.devices("Device")
    columns = {
        "start_ns": start,
        "end_ns": start + duration,
        "device": device,
        "context": rows.integers("Ctx", np.int32),
        "stream": rows.integers("Strm", np.int32),
        "correlation": rows.integers("CorrId", np.int64),
    }

    def frame(sort: str, **more: pd.Categorical | Array) -> pd.DataFrame:
        chosen = np.flatnonzero(timed & (sorts == sort))
        cells = {name: column[chosen] for name, column in {**columns, **more}.items()}
        same = {"pid": np.int64(-1), "graph_node": np.int64(0)}
        return pd.DataFrame({**cells, **{name: np.full(len(chosen), value) for name, value in same.items()}})

    nowhere = np.full(len(rows), -1, dtype=np.int32)
    tables = {
        "kernels": frame("kernel", name=printed.categorical(codes, names)),
        "copies": frame(
            "copy",
            kind=printed.categorical(codes, [_WAYS.get(_way(name), "other") for name in names], "other"),
            bytes=size,
            src_kind=rows.memory_kinds("SrcMemKd"),
            dst_kind=rows.memory_kinds("DstMemKd"),
            src_device=nowhere,
            dst_device=nowhere,
        ),
        "memsets": frame("memset", bytes=size),
    }
    tables["devices"] = gpus({number: Device(name=name) for number, name in names_of_devices.items()}, tables)
    left_out = {
        "not a row": rows.skipped,
        WITHOUT_TIMES: int((~timed).sum()),
        NAMELESS: int((timed & (sorts == NAMELESS)).sum()),
    }
    return tables, left_out


def _scaled(rows: printed.Rows, header: tuple[str, ...], name: str, units: dict[str, int]) -> tuple[Array, Array]:
    """(values in ns or bytes, True where valid) of the column `NAME (UNIT)`; zeros and False if there is no such
    column."""
    for column in header:
        if match := re.fullmatch(rf"{name} \((\w+)\)", column):
            values, glued = rows.numbers(column)
            return printed.scaled(values, glued * units.get(match[1], np.nan))
    return np.zeros(len(rows), dtype=np.int64), np.zeros(len(rows), dtype=bool)


def _sort(name: str) -> str:
    if name.startswith("[CUDA memcpy") or name.startswith("[CUDA Unified Memory memcpy"):
        return "copy"
    return "memset" if name.startswith("[CUDA memset") else "kernel" if name else NAMELESS


def _way(name: str) -> str:
    return name.rstrip("]").rpartition(" ")[2].lower()
