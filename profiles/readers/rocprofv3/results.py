"""Recordings of AMD's rocprofv3 (`rocprofv3 --runtime-trace --output-format json`): its results.json.

As source/docs/rocprofv3-schema.json of ROCm/rocprofiler-sdk describes it: per process the agents (CPUs and GPUs), the
names of kernels, kinds and operations, and records of kernels, copies, calls and ranges in ns. A record of an operation
has the correlation of the call that launched it: of HIP's, or of HSA's if these were recorded too. Memory is set by
kernels.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import numpy as np
import pandas as pd

from ...doubts.recordings import impossible_times
from ...errors import UnreadableRecording
from ...timeline import Recording, Timeline, make
from ..chrome import events as chrome
from .document import Agent, Document, Handle, Message, Process, Raws, Record, Symbol

_HEAD: Final = re.compile(rb'\A(?:\xef\xbb\xbf)?\s*\{\s*"rocprofiler-sdk-tool"')
_GPU: Final = 2  # the type of an agent; 1: a CPU
_MARKER: Final = re.compile(r"roctx(?:Mark|Range|ThreadRange|ProcessRange)\w*")
_KINDS: Final = {"HOST_TO_DEVICE": "h2d", "DEVICE_TO_HOST": "d2h", "DEVICE_TO_DEVICE": "d2d", "HOST_TO_HOST": "h2h"}
_LATEST: Final = 1 << 61
_RECORD: Final = "record with `rocprofv3 --runtime-trace --output-format json`"


def detects(head: bytes, path: Path) -> bool:
    """An object that begins with the name of rocprofv3's library."""
    return _HEAD.match(head) is not None


def read(path: Path) -> Timeline:
    """Raises UnreadableRecording for broken JSON, and for recordings without GPU work."""
    processes = [_Told(one) for one in chrome.document(path, Document).processes]
    left_out: Counter[str] = Counter()
    made = {table: _frame(table, processes, left_out) for table in ("kernels", "copies", "api", "marks")}
    frames = {table: frame for table, frame in made.items() if len(frame)}
    operations = [frames[table] for table in ("kernels", "copies") if table in frames]
    if not operations:
        problem = "a recording of rocprofv3 without a kernel or copy that has a possible time"
        raise UnreadableRecording(path, problem, _RECORD)
    origin = min(int(frame["start_ns"].min()) for frame in operations)
    for frame in frames.values():
        frame["start_ns"] -= origin
        frame["end_ns"] -= origin
    left_out["not a record"] = sum(process.damaged for process in processes)
    hosts = {process.host for process in processes}
    damaged = left_out["without times"]
    return make(
        Recording(
            path=str(path),
            format="rocprofv3",
            tool="rocprofv3",
            origin_ns=origin,
            host=hosts.pop() if len(hosts) == 1 else None,
        ),
        {**frames, "devices": _devices(processes, operations)},
        known=frozenset({"kernels", "memsets", "devices", *frames}),
        doubts=(impossible_times(f"{damaged} records", "record it again"),) if damaged else (),
        left_out={reason: count for reason, count in left_out.items() if count},
    )


class _Told:
    """What one process's part of the file says, and what its numbers mean."""

    def __init__(self, process: Process) -> None:
        host = process.metadata.node.hostname
        self.host = host if isinstance(host, str) else None
        self.pid = process.metadata.pid
        self.agents = {one.id.handle: one for one in _each(process.agents, Agent)}
        self.kernels = {one.kernel_id: one.name for one in _each(process.kernel_symbols, Symbol)}
        self.kinds = {at: one.operations for at, one in enumerate(process.strings.buffer_records)}
        self.messages = {one.key: one.value for one in _each(process.strings.marker_api, Message)}
        self.records = process.buffer_records
        self.correlations: set[int | None] = set()  # of the operations that were read
        self.damaged = 0  # records that are none

    def operation(self, record: Record) -> str:
        """The name of what was done: a call, a direction."""
        if record.kind not in self.kinds:
            return ""
        names, place = self.kinds[record.kind], record.operation
        return str(names[place]) if isinstance(names, list) and place is not None and 0 <= place < len(names) else ""

    def gpu(self, handle: int | None) -> int:
        """The number of a GPU among the host's, -1 for what is none."""
        agent = self.agents.get(handle)
        number = agent.number if agent and agent.type == _GPU else None
        return number if number is not None and 0 <= number < 1 << 31 else -1

    def rows(self, table: str) -> Iterator[dict[str, Any]]:
        """The records of a table, each with what it means; `dropped`: why it is none."""
        if table == "kernels":
            yield from map(self._kernel, self._each(self.records.kernel_dispatch))
        elif table == "copies":
            yield from map(self._copy, self._each(self.records.memory_copy))
        elif table == "marks":
            yield from map(self._mark, self._each(self.records.marker_api))
        else:
            called = list(self._each(self.records.hip_api))
            yield from map(self._call, called)
            # Of HSA's calls, of which there are many, those that launched something.
            wanted = self.correlations - {one.correlation_id.internal for one in called}
            for record in self._each(self.records.hsa_api) if wanted else ():
                if record.correlation_id.internal in wanted:
                    yield self._call(record)

    def _each(self, raw: Raws) -> Iterator[Record]:
        for records, damaged in chrome.events(raw, Record):
            self.damaged += damaged
            yield from records

    def _kernel(self, record: Record) -> dict[str, Any]:
        did = record.dispatch_info
        name = self.kernels.get(did.kernel_id)
        return self._operation(record, self.gpu(did.agent_id.handle), did.queue_id) | {"name": name}

    def _copy(self, record: Record) -> dict[str, Any]:
        source, target = (self.gpu(one.handle) for one in (record.src_agent_id, record.dst_agent_id))
        way = self.operation(record)
        kind = next((kind for name, kind in _KINDS.items() if way.endswith(name)), "other")
        if kind == "d2d" and -1 != source != target != -1:
            kind = "p2p"
        size = record.bytes if isinstance(record.bytes, int) else 0
        peers = {"src_device": source, "dst_device": target} if kind == "p2p" else {"src_device": -1, "dst_device": -1}
        device = source if kind == "d2h" or target < 0 else target
        return self._operation(record, device, Handle()) | {"kind": kind, "bytes": size, **peers}

    def _operation(self, record: Record, device: int, queue: Handle) -> dict[str, Any]:
        stream = (record.stream_id or queue).handle
        self.correlations.add(record.correlation_id.internal)
        found = {"device": device, "stream": stream, "correlation": record.correlation_id.internal}
        return {**self._timed(record), **found, "dropped": "operations of no GPU" if device < 0 else ""}

    def _call(self, record: Record) -> dict[str, Any]:
        told = {"tid": record.thread_id, "name": self.operation(record)}
        return {**self._timed(record), **told, "correlation": record.correlation_id.internal, "dropped": ""}

    def _mark(self, record: Record) -> dict[str, Any]:
        said = self.messages.get(record.correlation_id.internal)
        is_mark = isinstance(said, str) and _MARKER.fullmatch(self.operation(record)) is not None
        told = {"tid": record.thread_id, "name": said, "dropped": "" if is_mark else "calls of rocTX without a text"}
        return {**self._timed(record), **told}

    def _timed(self, record: Record) -> dict[str, Any]:
        return {"pid": self.pid, "start_ns": record.start_timestamp, "end_ns": record.end_timestamp}


def _each(raw: Raws, kind: type[Any]) -> Iterator[Any]:
    for events, _ in chrome.events(raw, kind):
        yield from events


_COLUMNS: Final = {
    "kernels": ("name",),
    "copies": ("kind", "bytes", "src_device", "dst_device"),
    "api": ("name",),
    "marks": ("name",),
}
_TEXTS: Final = ("name", "kind")


def _frame(table: str, processes: list[_Told], left_out: Counter[str]) -> pd.DataFrame:
    rows = [row for process in processes for row in process.rows(table)]
    left_out.update(row["dropped"] for row in rows if row["dropped"])
    rows = [row for row in rows if not row["dropped"]]
    start, end = (chrome.integers(row[name] for row in rows) for name in ("start_ns", "end_ns"))
    timed = (start >= 0) & (end >= start) & (end < _LATEST)
    left_out["without times"] += int((~timed).sum())
    rows = [rows[at] for at in np.flatnonzero(timed).tolist()]
    columns: dict[str, Any] = {"start_ns": start[timed], "end_ns": end[timed]}
    is_operation = table in ("kernels", "copies")
    numbers = ["pid", *(["device", "stream", "correlation"] if is_operation else ["tid"])]
    numbers += ["correlation"] if table == "api" else []
    for name in (*numbers, *_COLUMNS[table]):
        values = [row[name] for row in rows]
        bits = 32 if name in ("device", "stream", "src_device", "dst_device") else 64
        columns[name] = chrome.texts(values) if name in _TEXTS else chrome.integers(values, bits=bits)
    if is_operation:
        columns |= {"context": np.zeros(len(rows), np.int32), "graph_node": np.zeros(len(rows), np.int64)}
    if table == "copies":
        columns |= dict.fromkeys(("src_kind", "dst_kind"), chrome.texts(["unknown"] * len(rows)))
    if table == "marks":
        columns |= {"open": np.zeros(len(rows), bool), "domain": chrome.texts([""] * len(rows))}
    return pd.DataFrame(columns)


def _devices(processes: list[_Told], operations: list[pd.DataFrame]) -> pd.DataFrame:
    """The GPUs that did something."""
    used = {number for frame in operations for number in frame["device"].unique().tolist()}
    agents = {agent.number: agent for told in processes for agent in told.agents.values() if agent.type == _GPU}
    rows = [(number, _uuid(agents[number]), _bus_id(agents[number]), _name(agents[number])) for number in sorted(used)]
    return pd.DataFrame(rows, columns=["device", "uuid", "bus_id", "name"])


def _name(agent: Agent) -> str:
    return next((one for one in (agent.product_name, agent.name) if isinstance(one, str) and one), "")


def _uuid(agent: Agent) -> str:
    """The bytes of the GPU's number in hexadecimal; "" where they are none, or none that a GPU has."""
    told = agent.uuid.bytes
    values = list(told.values()) if isinstance(told, dict) else told
    if not isinstance(values, list) or not all(isinstance(one, int) and 0 <= one < 256 for one in values):
        return ""
    return "GPU-" + bytes(values).hex() if any(values) else ""


def _bus_id(agent: Agent) -> str:
    """As the kernel of Linux writes it: domain, bus, device and function of `location_id`."""
    where, domain = agent.location_id, agent.domain
    if where is None or domain is None or not (0 < where < 1 << 16 and 0 <= domain < 1 << 32):
        return ""
    return f"{domain:04x}:{where >> 8:02x}:{where >> 3 & 31:02x}.{where & 7}"
