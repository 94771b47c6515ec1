"""Assemble a timeline from the records of rocprofv3, whether read from JSON or from a database."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final, Protocol

import numpy as np
import pandas as pd

from ...ground.errors import UnreadableRecording
from ...model.possible import OPERATIONS
from ...model.timeline import WITHOUT_TIMES, Recording, Timeline, make
from ..chrome import events as chrome
from ..tables import printed
from ..tables.gathering import require_gpu_work
from .document import Agent

GPU: Final = 2  # value of an agent's type for a GPU; 1 is a CPU
RECORD: Final = "record with `rocprofv3 --runtime-trace --output-format json`"
MARKER: Final = re.compile(r"roctx(?:Mark|Range|ThreadRange|ProcessRange)\w*")  # calls of rocTX that have a text
OF_NO_GPU, WITHOUT_TEXT = (
    "operations that name no GPU",
    "calls of rocTX without a text",
)  # reasons to leave a record out
_KINDS: Final = {"HOST_TO_DEVICE": "h2d", "DEVICE_TO_HOST": "d2h", "DEVICE_TO_DEVICE": "d2d", "HOST_TO_HOST": "h2h"}


class Told(Protocol):
    """The records of one process. `agents`: CPUs and GPUs by id. `damaged`: number of records that cannot be
    decoded."""

    host: str | None
    agents: dict[Any, Agent]
    damaged: int

    def rows(self, table: str) -> Iterator[dict[str, Any]]:
        """The records of a table, each as column -> value. The value of `dropped` is why the record is left out, or "".
        Operations are asked for before calls, because some calls are kept only if they launched an operation."""


def number_of(agent: Agent | None) -> int:
    """The host's number of a GPU; -1 if the agent is unknown or is no GPU."""
    number = agent.number if agent and agent.type == GPU else None
    return number if number is not None and 0 <= number < 1 << 31 else -1


def copy_of(way: str, size: int, source: int, target: int) -> dict[str, Any]:
    """Columns of a copy, from its direction, its size in bytes, and its source and target GPU (-1: no GPU). `device` is
    the GPU to which the copy is assigned: the source if it goes to the host, else the target."""
    kind = next((kind for name, kind in _KINDS.items() if way.endswith(name)), "other")
    if kind == "d2d" and -1 != source != target != -1:
        kind = "p2p"
    peers = {"src_device": source, "dst_device": target} if kind == "p2p" else {"src_device": -1, "dst_device": -1}
    return {"device": source if kind == "d2h" or target < 0 else target, "kind": kind, "bytes": size, **peers}


def timeline(path: Path, form: str, processes: Sequence[Told]) -> Timeline:
    """The timeline of all processes of a file. Raises UnreadableRecording for a recording without GPU work."""
    left_out: Counter[str] = Counter()
    made = {table: _frame(table, processes, left_out) for table in ("kernels", "copies", "api", "marks")}
    frames = {table: frame for table, frame in made.items() if len(frame)}
    operations = [frames[table] for table in ("kernels", "copies") if table in frames]
    if not operations:
        problem = "a recording of rocprofv3 without a kernel or copy that has a possible time"
        raise UnreadableRecording(path, problem, RECORD)
    left_out["not a record"] = sum(process.damaged for process in processes)
    hosts = {process.host for process in processes}
    whole = make(
        Recording(
            path=str(path),
            format=form,
            tool="rocprofv3",
            host=hosts.pop() if len(hosts) == 1 else None,
        ),
        {**frames, "devices": _devices(processes, operations)},
        known=frozenset({"kernels", "memsets", "devices", *frames}),
        from_first=OPERATIONS,
        left_out=left_out,
    )
    return require_gpu_work(whole, path, RECORD)


_COLUMNS: Final = {
    "kernels": ("name",),
    "copies": ("kind", "bytes", "src_device", "dst_device"),
    "api": ("name",),
    "marks": ("name",),
}
_TEXTS: Final = ("name", "kind")


def _frame(table: str, processes: Sequence[Told], left_out: Counter[str]) -> pd.DataFrame:
    rows = [row for process in processes for row in process.rows(table)]
    left_out.update(row["dropped"] for row in rows if row["dropped"])
    rows = [row for row in rows if not row["dropped"]]
    start, end = (chrome.integers(row[name] for row in rows) for name in ("start_ns", "end_ns"))
    timed = (start >= 0) & (end >= 0)
    left_out[WITHOUT_TIMES] += int((~timed).sum())
    rows = [rows[at] for at in np.flatnonzero(timed).tolist()]
    columns: dict[str, Any] = {"start_ns": start[timed], "end_ns": end[timed]}
    is_operation = table in ("kernels", "copies")
    numbers = ["pid", *(["device", "stream", "correlation"] if is_operation else ["tid"])]
    numbers += ["correlation"] if table == "api" else []
    for name in (*numbers, *_COLUMNS[table]):
        values = [row[name] for row in rows]
        bits = 32 if name in ("device", "stream", "src_device", "dst_device") else 64
        columns[name] = _texts(values) if name in _TEXTS else chrome.integers(values, bits=bits)
    if is_operation:
        columns |= {"context": np.zeros(len(rows), np.int32), "graph_node": np.zeros(len(rows), np.int64)}
    if table == "copies":
        columns |= dict.fromkeys(("src_kind", "dst_kind"), chrome.texts(["unknown"] * len(rows)))
    if table == "marks":
        columns |= {"open": np.zeros(len(rows), bool), "domain": chrome.texts([""] * len(rows))}
    return pd.DataFrame(columns)


def _texts(values: list[Any]) -> pd.Categorical:
    """The texts as a categorical that holds each distinct text once; a value that is not a string becomes ""."""
    place: dict[str, int] = {}
    codes = [place.setdefault(one if isinstance(one, str) else "", len(place)) for one in values]
    return printed.categorical(np.array(codes, np.int32), list(place))


def _devices(processes: Sequence[Told], operations: list[pd.DataFrame]) -> pd.DataFrame:
    """The GPUs that ran at least one operation."""
    used = {number for frame in operations for number in frame["device"].unique().tolist()}
    agents = {agent.number: agent for told in processes for agent in told.agents.values() if agent.type == GPU}
    rows = [(number, _uuid(agents[number]), _bus_id(agents[number]), _name(agents[number])) for number in sorted(used)]
    return pd.DataFrame(rows, columns=["device", "uuid", "bus_id", "name"])


def _name(agent: Agent) -> str:
    return next((one for one in (agent.product_name, agent.name) if isinstance(one, str) and one), "")


def _uuid(agent: Agent) -> str:
    """The GPU's uuid as `GPU-` and its bytes in hexadecimal; "" if it is missing, damaged or all zeros."""
    told = agent.uuid.bytes
    values = list(told.values()) if isinstance(told, dict) else told
    if not isinstance(values, list) or not all(isinstance(one, int) and 0 <= one < 256 for one in values):
        return ""
    return "GPU-" + bytes(values).hex() if any(values) else ""


def _bus_id(agent: Agent) -> str:
    """The PCI bus id as Linux writes it, `domain:bus:device.function`; "" if unknown."""
    where, domain = agent.location_id, agent.domain
    if where is None or domain is None or not (0 < where < 1 << 16 and 0 <= domain < 1 << 32):
        return ""
    return f"{domain:04x}:{where >> 8:02x}:{where >> 3 & 31:02x}.{where & 7}"
