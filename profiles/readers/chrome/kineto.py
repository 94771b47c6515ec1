"""Read Kineto's traces, which PyTorch's profiler writes: Chrome trace JSON, one file per process.

Kernels, copies, memsets, runtime calls, synchronisations, user annotations, PyTorch's operators and modules are read;
all other events are counted and left out.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import msgspec
import numpy as np
import pandas as pd

from ...doubts.recordings import coarse_times_in_microseconds, python_traced
from ...ground.errors import UnreadableRecording
from ...model import marks
from ...model.names import rows_named
from ...model.possible import LIMIT_NS, OPERATIONS
from ...model.timeline import WITHOUT_TIMES, Doubt, Recording, Timeline, make
from ..tables.gathering import Device, blocks, gpus, joined, multiprocessors, require_gpu_work
from . import distributed, launches, operators, without_gpu
from . import events as chrome
from .events import Event
from .thinned import Numbers

# The table for each category of events, in lower case because traces of 2021 use capitals.
_TABLES: Final = {
    "kernel": "kernels",
    "gpu_memcpy": "copies", "memcpy": "copies",
    "gpu_memset": "memsets", "memset": "memsets",
    "cuda_runtime": "api", "cuda_driver": "api", "hip_runtime": "api", "hip_driver": "api",
    "runtime": "api", "driver": "api",
    "user_annotation": "marks",
    "cuda_sync": "syncs",
    "overhead": "overheads",
    "cpu_op": "operators", "operator": "operators",
}  # fmt: skip
_KINDS: Final = {"HtoD": "h2d", "DtoH": "d2h", "DtoD": "d2d", "PtoP": "p2p", "HtoH": "h2h", "HtoA": "h2d"}
_MEMORY: Final = frozenset({"pageable", "pinned", "device", "array", "managed"})
# Names of ranges that become marks whatever their category: steps, waits for input, the optimizer. Traces of 2021
# have one category for all ranges. Ranges of `gpu_user_annotation` are left out: each repeats a host range on the
# GPU.
_MARKS: Final = re.compile(r"ProfilerStep#\d+|enumerate\(DataLoader\)#.*|Optimizer\.(?:step|zero_grad)#.*")
_ON_GPU: Final = "gpu_user_annotation"
_ELEMENT_BYTES: Final = {
    "double": 8, "long": 8, "int64": 8, "float": 4, "int": 4, "half": 2, "bfloat16": 2, "short": 2, "byte": 1,
    "char": 1, "bool": 1, "float8_e4m3fn": 1, "float8_e5m2": 1, "complexfloat": 8,
}  # fmt: skip
_EACH: Final = "give one trace per process, not merged ones"
# 10**18 ns after 1970 is in September 2001, before CUDA, so smaller times do not count from 1970.
_EPOCH_FROM_NS: Final = 10**18


class _Document(chrome.Document):
    distributed: Any = msgspec.field(name="distributedInfo", default=None)
    devices: Any = msgspec.field(name="deviceProperties", default=None)
    base_ns: Any = msgspec.field(name="baseTimeNanoseconds", default=None)
    schema: Any = msgspec.field(name="schemaVersion", default=None)


def detects(head: bytes, path: Path) -> bool:
    """True for a JSON object with Kineto's keys, or for trace events of any other program."""
    return chrome.holds_events(head) or chrome.begins(head) == b"{" and b'"schemaVersion"' in head


def read(path: Path) -> Timeline:
    """Read a trace. Raises UnreadableRecording for broken JSON, and without GPU events unless ringscope wrote the
    trace."""
    document, doubts = chrome.trace(path, _Document)
    found = _Found()
    for events, damaged in chrome.events(document.raw):
        found.left_out["not an event"] += damaged
        found.add(events)
    document.raw = []
    frames = {table: joined(parts) for table, parts in found.parts.items() if parts}
    if not any(found.parts[table] for table in ("kernels", "copies", "memsets")):
        if "marks" not in frames or not len(rows_named(frames["marks"], f"{marks.STEP}|{marks.CLOCK}", whole=True)):
            raise _no_gpu(path, found)
        # `ringscope record` wrote this trace on a machine without a GPU: it holds only marks of the host.
        utc_ns = _base(document.base_ns)
        recording = Recording(path=str(path), format="kineto", tool="Kineto", origin_utc_ns=utc_ns)
        return make(recording, {"marks": frames["marks"]}, known=frozenset({"marks"}), from_first=("marks",))
    if not launches.give_process(frames):
        raise UnreadableRecording(
            path, "several processes in one file, and it does not say which kernel is whose", _EACH
        )
    launches.give_bytes(frames)
    found.left_out["written twice"] = _once(frames)
    launches.number_graph_nodes(frames)
    if (told := launches.exchanges(frames)) is not None:
        frames["exchanges"] = told
    known = {"kernels", "copies", "memsets", "devices", *({"api", "marks", "syncs", "operators"} & set(frames))}
    doubts += _doubts(frames, found.left_out)
    frames["devices"] = gpus(_listed(document.devices), frames)
    rank, ranks = distributed.ranks(document.distributed, frames)
    timeline = make(
        Recording(
            path=str(path),
            format="kineto",
            tool="Kineto",
            schema_version=None if document.schema is None else str(document.schema),
            rank=rank,
            rank_source=None if rank is None else "format",
            ranks=ranks,
            origin_utc_ns=_utc_of_zero(frames, document.base_ns),
        ),
        frames,
        known=frozenset(known),
        from_first=OPERATIONS,
        doubts=doubts,
        left_out=found.left_out,
        thinned=found.numbers.left_out(),
    )
    return require_gpu_work(timeline, path, "record it again")


@dataclass(slots=True)
class _Found:
    """Collects the rows of each table from the pieces of a trace, and counts the events left out by reason."""

    parts: dict[str, list[pd.DataFrame]] = field(default_factory=lambda: defaultdict(list))
    left_out: Counter[str] = field(default_factory=Counter)
    numbers: Numbers = field(default_factory=Numbers)

    def add(self, events: list[Event]) -> None:
        self.numbers.add(events)
        by_table: dict[str, list[Event]] = defaultdict(list)
        others: dict[str, list[Event]] = defaultdict(list)
        # (category, name) -> list to which events of this pair are added: there are many events, but few pairs.
        places: dict[tuple[Any, Any], Callable[[Event], None]] = {}
        for event in events:
            if event.ph != "X":
                continue
            try:
                places[event.cat, event.name](event)
                continue
            except (KeyError, TypeError):  # a pair not seen before; or a list or object, which cannot be a key
                pass
            category = event.cat if isinstance(event.cat, str) else ""
            table = _table(category, event.name)
            put = (others[category] if table is None else by_table[table]).append
            put(event)
            if isinstance(event.name, str) and isinstance(event.cat, str):
                places[event.cat, event.name] = put
        for category, left in others.items():
            self.left_out[f"category {category}" if category else "no category"] += len(left)
        for table, chosen in by_table.items():
            frame = _frame(table, chosen, self.left_out)
            if len(frame):
                self.parts[table].append(frame)


def _table(category: str, name: Any) -> str | None:
    """The table for an event; None if the event is left out."""
    table = _TABLES.get(category.lower())
    if table not in (None, "operators") or category == _ON_GPU or not isinstance(name, str):
        return table
    if _MARKS.fullmatch(name):
        return "marks"
    return "operators" if name.startswith(operators.MODULE) else table


def _frame(table: str, events: list[Event], left_out: Counter[str]) -> pd.DataFrame:
    start, start_good = chrome.nanoseconds([event.ts for event in events])
    duration, duration_good = chrome.nanoseconds([event.dur for event in events])
    timed = start_good & duration_good & (np.abs(start) < LIMIT_NS) & (np.abs(duration) < LIMIT_NS)
    left_out[WITHOUT_TIMES] += int((~timed).sum())
    keep = np.flatnonzero(timed)
    if not len(keep):
        return pd.DataFrame()
    if len(keep) < len(events):
        events = [events[row] for row in keep.tolist()]
    empty = chrome.Args()
    args = [event.args or empty for event in events]
    columns: dict[str, Any] = {
        "start_ns": start[keep],
        "end_ns": start[keep] + duration[keep],
        "pid": chrome.integers([event.pid for event in events]),
    }
    if table != "operators":
        columns["name"] = chrome.texts([event.name for event in events])
    if table in ("api", *launches.OPERATIONS):
        columns["correlation"] = chrome.integers([a.correlation for a in args])
    if table in launches.OPERATIONS:
        devices = chrome.devices([a.in_device if a.device is None else a.device for a in args])
        if (devices < 0).any():  # the `pid` of a GPU operation is its device number, too
            devices = np.where(devices < 0, chrome.devices([event.pid for event in events]), devices)
        contexts = [a.in_context if a.context is None else a.context for a in args]
        streams = [e.tid if a.stream is None else a.stream for a, e in zip(args, events, strict=True)]
        columns |= {
            "device": devices,
            "context": chrome.integers(contexts, bits=32),
            "stream": chrome.integers(streams, bits=32),
            "pid": np.full(len(events), -1, dtype=np.int64),
            "graph_node": np.zeros(len(events), dtype=np.int64),
        }
    if table in ("copies", "memsets"):
        columns["bytes"] = np.maximum(chrome.integers([a.bytes for a in args]), 0)
    if table == "copies":
        columns |= _ends([event.name if isinstance(event.name, str) else "" for event in events])
        columns["src_device"] = chrome.integers([a.from_device for a in args], bits=32)
        columns["dst_device"] = chrome.integers([a.to_device for a in args], bits=32)
    if table == "kernels":
        # ROCm gives the grid of a kernel that a library loads as a module (MIOpen, Tensile) in threads, not in blocks:
        # this number of blocks may then be too large, never too small.
        columns["blocks"] = np.array([blocks(a.grid) for a in args], dtype=np.int16)
        columns["exchanged"] = np.array([_exchanged(a) for a in args], dtype=np.int64)
        columns["collective"] = chrome.texts([a.collective for a in args])
        columns["communicator"] = chrome.texts([a.group for a in args])
        columns["dtype"] = chrome.texts([a.dtype.lower() if isinstance(a.dtype, str) else "" for a in args])
    if table in ("api", "marks"):
        columns["tid"] = chrome.integers([event.tid for event in events])
    if table == "api":
        columns["size"] = chrome.integers([a.size for a in args])
    if table == "operators":
        columns |= operators.columns(events, args)
    if table == "marks":
        columns |= {"open": np.zeros(len(events), dtype=bool), "domain": chrome.texts([""] * len(events))}
    return pd.DataFrame(columns, copy=False)


def _exchanged(args: chrome.Args) -> int:
    """The bytes that a rank gives to a collective, from the arguments of NCCL's kernel; -1 without these arguments."""
    size = _ELEMENT_BYTES.get(args.dtype.lower()) if isinstance(args.dtype, str) else None
    known = args.collective is not None and type(args.elements) is int and 0 <= args.elements < 1 << 48
    return int(args.elements) * size if known and size else -1


def _ends(names: list[str]) -> dict[str, pd.Categorical]:
    """The kind, source memory and target memory of copies, from names like `Memcpy HtoD (Pageable -> Device)`."""
    found: dict[str, tuple[str, str, str]] = {}
    for name in dict.fromkeys(names):
        match = re.match(r"Memcpy (\w+)(?: \((\w+) -> (\w+)\))?", name)
        kind, *ends = match.groups(default="") if match else ("", "", "")
        memory = [end.lower() if end.lower() in _MEMORY else "unknown" for end in ends]
        found[name] = (_KINDS.get(kind, "other"), memory[0], memory[1])
    columns = zip(*(found[name] for name in names), strict=True)
    return dict(zip(("kind", "src_kind", "dst_kind"), map(chrome.texts, map(list, columns)), strict=True))


def _once(frames: dict[str, pd.DataFrame]) -> int:
    """Drop the second entry of copies and memsets that ROCm wrote twice, and return how many were dropped."""
    twice = 0
    for table in ("copies", "memsets"):
        if table in frames:
            frame = frames[table]
            again = frame.duplicated().to_numpy() & (frame["correlation"] >= 0).to_numpy()
            twice += int(again.sum())
            frames[table] = frame[~again].reset_index(drop=True)
    return twice


def _listed(devices: Any) -> dict[int, Device]:
    """The GPUs that the file lists, by number."""
    return {
        device["id"]: Device(name=str(device.get("name") or ""), multiprocessors=multiprocessors(device.get("numSms")))
        for device in (devices if isinstance(devices, list) else [])
        if isinstance(device, dict) and type(device.get("id")) is int and 0 <= device["id"] < 1 << 31
    }


def _utc_of_zero(frames: dict[str, pd.DataFrame], base_ns: Any) -> int | None:
    """The trace's time 0 in ns since 1970: newer traces count from `baseTimeNanoseconds`, older traces from 1970."""
    starts = np.concatenate([frames[table]["start_ns"].to_numpy() for table in OPERATIONS if table in frames])
    if np.median(starts) >= _EPOCH_FROM_NS:
        return 0
    return _base(base_ns)


def _base(told: Any) -> int | None:
    return told if type(told) is int and 0 < told < LIMIT_NS else None


def _doubts(frames: dict[str, pd.DataFrame], left_out: Counter[str]) -> tuple[Doubt, ...]:
    doubts = []
    times = [frames[table][["start_ns", "end_ns"]] for table in ("kernels", "copies", "memsets") if table in frames]
    if all(bool((whole % 1000 == 0).to_numpy().all()) for whole in times):
        doubts.append(coarse_times_in_microseconds())
    remedy = "record with with_stack=False for measures, and with with_stack=True only to see which line launches what"
    return (*doubts, *python_traced(left_out["category python_function"], sum(map(len, times)), remedy))


def _no_gpu(path: Path, found: _Found) -> UnreadableRecording:
    api = joined(found.parts["api"]) if found.parts["api"] else None
    host = sum(len(part) for table in ("operators", "marks", "api") for part in found.parts[table])
    return UnreadableRecording(path, *without_gpu.reason(found.left_out, api, host))
