"""Read traces of AMD's rocprof (`rocprof --hip-trace`, `--sys-trace`): its results.json, in Chrome's trace format.

bin/tblextr.py and bin/sqlitedb.py of ROCm/rocprofiler write it: one section (a "process" of the trace) each for
HIP calls, HSA calls, copies and rocTX ranges, and one per GPU. All values are quoted, and an event's arguments
hold its times in ns. An operation does not say which call launched it, but has the call's process, thread, stream
and kernel, and a stream runs its work in order. So if equally many calls and operations share all four, the nth
call launched the nth operation.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any, Final

import msgspec
import numpy as np
import pandas as pd

from ...ground.errors import UnreadableRecording
from ...model.possible import OPERATIONS
from ...model.timeline import WITHOUT_TIMES, Recording, Timeline, make
from ..tables.gathering import gpus, require_gpu_work
from . import events as chrome

_GPU: Final = re.compile(r"GPU\d+")
_SECTIONS: Final = {"CPU HIP API": "api", "COPY": "copies", "Markers and Ranges": "marks"}
_HEAD: Final = re.compile(rb'"(?:CPU H(?:IP|SA) API|COPY|Markers and Ranges|GPU\d+)"')
_BARRIER: Final = "<barrier packet>"
_KINDS: Final = {"HostToDevice": "h2d", "DeviceToHost": "d2h", "DeviceToDevice": "d2d", "PeerToPeer": "p2p"}
# Parts of a call's arguments, as rocprof's tblextr.py writes them: the kernel that the call launches, its stream, and
# the bytes that it copies or sets.
_KERNEL: Final = re.compile(r" kernel\((.*?)\)(?: |\)?$)")
_STREAM: Final = re.compile(r" (?:stream|hStream)\((\d{1,9})\)")
_BYTES: Final = re.compile(r" (?:sizeBytes|count)\((\d{1,15})\)")
_MOVES: Final = re.compile(r"hipMemcpy|hipMemset")
_RECORD: Final = "record with `rocprof --hip-trace`, and give its results.json"


class _Args(msgspec.Struct, gc=False):
    begin: Any = msgspec.field(name="BeginNs", default=None)
    end: Any = msgspec.field(name="EndNs", default=None)
    device: Any = msgspec.field(name="dev-id", default=None)
    gpu: Any = msgspec.field(name="gpu-id", default=None)
    stream: Any = msgspec.field(name="stream-id", default=None)
    queue: Any = msgspec.field(name="queue-id", default=None)
    pid: Any = None
    tid: Any = None
    process: Any = msgspec.field(name="proc-id", default=None)
    name: Any = None  # the section's name, in a "process_name" event
    args: Any = None


class _Event(msgspec.Struct, gc=False):
    ph: Any = None
    name: Any = None
    pid: Any = None
    args: _Args | None = None


def detects(head: bytes, path: Path) -> bool:
    """True for trace events with names of rocprof's sections, or with times in `BeginNs`."""
    return chrome.holds_events(head) and (_HEAD.search(head) is not None or b'"BeginNs"' in head)


def read(path: Path) -> Timeline:
    """Read a trace. Raises UnreadableRecording for broken JSON, and for traces without GPU events."""
    document, doubts = chrome.trace(path, chrome.Document)
    found, left_out = _events(document.raw)
    older = _of_processes(found)
    frames = {table: _frame(table, rows, left_out, older) for table, rows in found.items()}
    frames = {table: frame for table, frame in frames.items() if len(frame)}
    operations = [frames[table] for table in ("kernels", "copies", "memsets") if table in frames]
    if not operations:
        raise UnreadableRecording(path, "a trace of rocprof's without a GPU event that has a possible time", _RECORD)
    if "api" in frames:
        _launched(frames)
    timeline = make(
        Recording(path=str(path), format="rocprof", tool="rocprof"),
        {
            **{table: frame.drop(columns=["key"], errors="ignore") for table, frame in frames.items()},
            "devices": gpus({}, frames),
        },
        known=frozenset({"kernels", "copies", "memsets", "devices", *({"api", "marks"} & set(frames))}),
        from_first=OPERATIONS,
        doubts=doubts,
        left_out=left_out,
    )
    return require_gpu_work(timeline, path, _RECORD)


def _events(raw: list[msgspec.Raw]) -> tuple[dict[str, list[_Event]], Counter[str]]:
    """table -> its events; also the number of events left out, by reason."""
    found: dict[str, list[_Event]] = defaultdict(list)
    left_out: Counter[str] = Counter()
    sections: dict[str, str] = {}
    for events, damaged in chrome.events(raw, _Event):
        left_out["not an event"] += damaged
        for event in events:
            if event.ph == "M" and event.name == "process_name" and event.args is not None:
                sections[str(event.pid)] = str(event.args.name)
            if event.ph != "X" or event.args is None:
                continue
            section = sections.get(str(event.pid), "of no section")
            table = "kernels" if _GPU.fullmatch(section) else _SECTIONS.get(section)
            if table == "copies":
                table = "memsets" if "Fill" in str(event.name) or "set" in str(event.name) else "copies"
            if table is None or event.name == _BARRIER:
                left_out["barriers" if event.name == _BARRIER else f"section {section}"] += 1
            elif table != "api" and table != "marks" and event.args.device is None and event.args.gpu is None:
                left_out["operations that name no GPU"] += 1
            else:
                found[table].append(event)
    return found, left_out


def _of_processes(found: dict[str, list[_Event]]) -> bool:
    """True for older files, whose events have numbers of section and lane in place of process and thread ids.

    Writes the process id into their events: an operation gets its `proc-id`; calls and ranges get the `proc-id`
    of the operations if all operations have the same one.
    """
    each = [(event.pid, event.args) for rows in found.values() for event in rows if event.args is not None]
    told = {args.process for _, args in each if args.process is not None}
    if not told:
        return False
    for section, args in each:
        if args.pid == section:
            args.pid = args.process or (next(iter(told)) if len(told) == 1 else None)
    return True


def _frame(table: str, events: list[_Event], left_out: Counter[str], older: bool) -> pd.DataFrame:
    """The rows of a table. The column `key` is equal for a call and the operation that it launched, "" for other
    calls."""
    args = [event.args or _Args() for event in events]
    start, end = (chrome.integers([getattr(a, one) for a in args]) for one in ("begin", "end"))
    timed = (start >= 0) & (end >= 0)
    left_out[WITHOUT_TIMES] += int((~timed).sum())
    kept = np.flatnonzero(timed).tolist()
    args, names = [args[row] for row in kept], [str(events[row].name or "") for row in kept]
    columns: dict[str, Any] = {"start_ns": start[kept], "end_ns": end[kept]}
    columns["pid"] = chrome.integers([a.pid for a in args])
    if table in ("api", "marks"):
        columns |= {"tid": chrome.integers([a.tid for a in args]), "name": chrome.texts(names)}
    if table == "marks":
        columns |= {"open": np.zeros(len(args), bool), "domain": chrome.texts([""] * len(args))}
    if table == "api":
        told = [str(a.args or "") for a in args]
        columns["correlation"] = np.arange(len(args))
        columns["bytes"] = [int(one[1]) if (one := _BYTES.search(text)) else 0 for text in told]
        columns["key"] = [_called(a, name, text, older) for a, name, text in zip(args, names, told, strict=True)]
    elif table != "marks":
        columns |= {
            "device": chrome.devices([a.gpu if a.device is None else a.device for a in args]),
            "context": np.zeros(len(args), np.int32),
            "stream": chrome.integers([a.queue if a.stream is None else a.stream for a in args], bits=32),
            "correlation": np.full(len(args), -1),
            "graph_node": np.zeros(len(args), np.int64),
            "key": [
                _key(a, a.stream, name if table == "kernels" else "", older)
                for a, name in zip(args, names, strict=True)
            ],
        }
    if table == "kernels":
        columns["name"] = chrome.texts(names)
    if table in ("copies", "memsets"):
        columns["bytes"] = np.zeros(len(args), np.int64)  # `_launched` takes the bytes from the call
    if table == "copies":
        kinds = [next((kind for way, kind in _KINDS.items() if way in name), "other") for name in names]
        columns |= {"kind": chrome.texts(kinds), "src_device": -1, "dst_device": -1}
        columns |= dict.fromkeys(("src_kind", "dst_kind"), chrome.texts(["unknown"] * len(args)))
    return pd.DataFrame(columns)


def _key(args: _Args, stream: Any, kernel: str, older: bool) -> str:
    return f"{args.pid}/{kernel}" if older else f"{args.pid}/{args.tid}/{stream}/{kernel}"


def _called(args: _Args, name: str, told: str, older: bool) -> str:
    kernel = _KERNEL.search(told)
    if not kernel and not _MOVES.match(name):
        return ""
    stream = _STREAM.search(told)
    return _key(args, stream[1] if stream else 0, kernel[1] if kernel else "", older)


def _launched(frames: dict[str, pd.DataFrame]) -> None:
    """Write each operation's launch call into `correlation`, and the bytes of copies and memsets, in place."""
    api = frames["api"].sort_values("start_ns", kind="stable")
    calls = {key: rows for key, rows in api.groupby("key", sort=False) if key}
    did = [frames[table].assign(table=table) for table in ("kernels", "copies", "memsets") if table in frames]
    every = pd.concat([one[["key", "device", "start_ns", "table"]] for one in did])
    for key, rows in every.sort_values("start_ns", kind="stable").groupby("key", sort=False):
        by = calls.get(key)
        # Each GPU has its own default stream. If a key is on several GPUs, calls cannot be matched in order.
        if by is None or len(by) != len(rows) or rows["device"].nunique() > 1:
            continue
        if (by["start_ns"].to_numpy() > rows["start_ns"].to_numpy()).any():
            continue
        for table in rows["table"].unique():
            mine = (rows["table"] == table).to_numpy()
            frame = frames[table]
            frame.loc[rows.index[mine], "correlation"] = by["correlation"].to_numpy()[mine]
            if table != "kernels":
                frame.loc[rows.index[mine], "bytes"] = by["bytes"].to_numpy()[mine]
    frames["api"] = frames["api"].drop(columns="bytes")
