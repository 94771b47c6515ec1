"""Busy, exposed and idle by cause of a recording, from its SQL or JSON alone: not by code of the product, and with the
names of exchanges typed again by hand.

    python -m tests.independent.program RECORDING...
"""

from __future__ import annotations

import gzip
import json
import lzma
import re
import sqlite3
import sys
import tempfile
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd

from tests.independent import period
from tests.made.bruteforce import CLASS_NAMES, BruteForce

Row = dict[str, Any]

# As vendors' traces have them; typed by hand from the sources that the product's table names.
EXCHANGES = re.compile(
    r"nccl|rccl|msccl|mscclpp::|multimem_|one_?shot_?all_?reduce|two_?shot_?all_?reduce|cross_device_reduce_"
    r"|allreduce_fusion_kernel|AllReduceKernelImpl|all_reduce_kernel_oneshot|nvshmem|_on_stream_kernel"
    r"|int(er|ra)node(_ll)?::|userbuffers_"
)
# CUpti_ActivityMemcpyKind, those of arrays too; nsys: 11 to 13 of unified memory.
_COPIES = {1: "h2d", 2: "d2h", 3: "h2d", 4: "d2h", 8: "d2d", 9: "h2h", 10: "p2p", 11: "h2d", 12: "d2h", 13: "p2p"}
_WAYS = {"HtoD": "h2d", "DtoH": "d2h", "DtoD": "d2d", "PtoP": "p2p", "HtoH": "h2h"}
_API = ("cuda_runtime", "cuda_driver", "hip_runtime", "hip_driver", "runtime", "driver")


@dataclass
class Recording:
    """Rows as the file has them, times in ns; operations by table."""

    operations: dict[str, list[Row]] = field(
        default_factory=lambda: {name: [] for name in ("kernels", "graphs", "copies", "memsets")}
    )
    untimed: list[Row] = field(default_factory=list)  # operations that cannot have run when they are told to have
    calls: list[Row] = field(default_factory=list)
    marks: list[Row] = field(default_factory=list)

    @property
    def all(self) -> list[Row]:
        return [row for rows in self.operations.values() for row in rows if row["kind"] != "h2h"]


def recorded(path: Path) -> Recording:
    data = path.read_bytes()
    if path.suffix == ".xz":
        data = lzma.decompress(data)
    if path.suffix == ".gz":
        data = gzip.decompress(data)
    found = _of_sqlite(data) if data.startswith(b"SQLite") else _of_kineto(data)
    for name, rows in found.operations.items():
        found.untimed += [row for row in rows if not 0 < row["end_ns"] >= row["start_ns"]]
        found.operations[name] = [row for row in rows if 0 < row["end_ns"] >= row["start_ns"]]
    return found


def _of_sqlite(data: bytes) -> Recording:
    """An export of nsys."""
    found = Recording()
    with tempfile.NamedTemporaryFile(suffix=".sqlite") as file:
        Path(file.name).write_bytes(data)
        with closing(sqlite3.connect(file.name)) as database:
            database.row_factory = sqlite3.Row
            tables = {name for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}

            def rows(name: str) -> Iterator[sqlite3.Row]:
                last = max((one for one in tables if re.fullmatch(rf"{name}(_V\d+)?", one)), default=None)
                return iter(database.execute(f"SELECT * FROM {last}")) if last else iter(())

            text = {row["id"]: row["value"] for row in rows("StringIds")}
            for name, table in (
                ("KERNEL", "kernels"),
                ("GRAPH_TRACE", "graphs"),
                ("MEMCPY", "copies"),
                ("MEMSET", "memsets"),
            ):
                for row in rows(f"CUPTI_ACTIVITY_KIND_{name}"):
                    keys = row.keys()
                    kind = (
                        _COPIES.get(row["copyKind"], "d2d")
                        if table == "copies"
                        else "memset"
                        if table == "memsets"
                        else None
                    )
                    found.operations[table].append(
                        _operation(
                            row["start"], row["end"], kind, text[row["demangledName"]] if table == "kernels" else ""
                        )
                        | {"device": row["deviceId"], "context": row["contextId"], "stream": row["streamId"]}
                        | {"pid": row["globalPid"] >> 24 & 0xFFFFFF, "correlation": row["correlationId"]}
                        | {"bytes": row["bytes"] if "bytes" in keys else 0}
                    )
            for row in rows("CUPTI_ACTIVITY_KIND_RUNTIME"):
                found.calls.append(
                    {"start_ns": row["start"], "end_ns": row["end"], "name": text[row["nameId"]]}
                    | {"pid": row["globalTid"] >> 24 & 0xFFFFFF, "tid": row["globalTid"] & 0xFFFFFF}
                    | {"correlation": row["correlationId"]}
                )
            events = list(rows("NVTX_EVENTS"))
            domains = {
                (row["globalTid"] >> 24 & 0xFFFFFF, row["domainId"]): row["text"]
                for row in events
                if row["eventType"] == 75
            }
            for row in events:
                if row["eventType"] in (34, 59, 60, 70, 71):  # instants, ranges pushed and started
                    name = row["text"] if row["text"] is not None else text.get(row["textId"], "")
                    pid = row["globalTid"] >> 24 & 0xFFFFFF
                    open_ = row["end"] is None and row["eventType"] in (59, 60, 70, 71)
                    found.marks.append(
                        {"start_ns": row["start"], "end_ns": row["start"] if row["end"] is None else row["end"]}
                        | {"open": open_, "pid": pid, "tid": row["globalTid"] & 0xFFFFFF, "name": name or ""}
                        | {"domain": domains.get((pid, row["domainId"]), "")}
                    )
    return found


def of_device(recording: Recording, device: int) -> Recording:
    """With that GPU's operations alone."""
    mine = {name: [row for row in rows if row["device"] == device] for name, rows in recording.operations.items()}
    untimed = [row for row in recording.untimed if row["device"] == device]
    return Recording(mine, untimed, recording.calls, recording.marks)


def _of_kineto(data: bytes) -> Recording:
    """A trace of one process; of several only what the GPU did is told right."""
    found = Recording()
    events = json.loads(data, parse_float=Decimal)["traceEvents"]
    events = [one for one in events if one.get("ph") == "X"]
    pid = next((one["pid"] for one in events if str(one.get("cat", "")).lower() in _API), 0)
    for one in events:
        category, args = str(one.get("cat", "")).lower(), one.get("args") or {}
        start = int(Decimal(one["ts"]) * 1000)
        end = start + int(Decimal(one["dur"]) * 1000)
        if category in ("kernel", "gpu_memcpy", "memcpy", "gpu_memset", "memset"):
            table = {"kernel": "kernels"}.get(category, "copies" if "cpy" in category else "memsets")
            way = (one["name"].split() + [""])[1] if table == "copies" else ""
            kind = _WAYS.get(way, "d2d") if table == "copies" else "memset" if table == "memsets" else None
            found.operations[table].append(
                _operation(start, end, kind, one["name"] if table == "kernels" else "")
                | {
                    "device": args["device"],
                    "context": args.get("context", -1),
                    "stream": args.get("stream", one["tid"]),
                }
                | {"pid": pid, "correlation": args.get("correlation", -1), "bytes": args.get("bytes", 0)}
            )
        elif category in _API:
            found.calls.append(
                {"start_ns": start, "end_ns": end, "name": one["name"], "pid": pid, "tid": one["tid"]}
                | {"correlation": args.get("correlation", -1)}
            )
        elif category == "user_annotation":
            found.marks.append(
                {"start_ns": start, "end_ns": end, "open": False, "pid": pid, "tid": one["tid"]}
                | {"name": one["name"], "domain": ""}
            )
    return found


def _operation(start: int, end: int, kind: str | None, name: str) -> Row:
    owner = kind or ("collective" if EXCHANGES.search(re.split(r"[<(](?!anon)", name)[0]) else "compute")
    return {"start_ns": start, "end_ns": end, "kind": owner, "name": name}


def totals(recording: Recording) -> tuple[dict[str, int], dict[str, int], int]:
    """Of all from the first start to the last end: ns by class in which it was active, and in which it was the first
    of the active ones; ns in which none was."""
    rows = [row for row in recording.all if row["end_ns"] > row["start_ns"]]
    edges = np.unique([row[edge] for row in rows for edge in ("start_ns", "end_ns")])
    lasts = np.diff(edges)
    active = np.zeros((len(CLASS_NAMES), len(edges)), np.int64)
    for row in rows:
        number = CLASS_NAMES.index(row["kind"])
        active[number, np.searchsorted(edges, row["start_ns"])] += 1
        active[number, np.searchsorted(edges, row["end_ns"])] -= 1
    active = active.cumsum(axis=1)[:, :-1] > 0
    busy = {name: int(lasts[active[at]].sum()) for at, name in enumerate(CLASS_NAMES)}
    owner = np.where(active.any(axis=0), active.argmax(axis=0), -1)
    exposed = {name: int(lasts[owner == at].sum()) for at, name in enumerate(CLASS_NAMES)}
    return busy, exposed, int(lasts[owner == -1].sum())


def causes(recording: Recording) -> dict[str, int]:
    """`idle_*` -> ns, over the same window, by loops over every stretch (`tests.made.bruteforce`)."""
    window = min(row["start_ns"] for row in recording.all), max(row["end_ns"] for row in recording.all)
    (device,) = {row["device"] for row in recording.all}
    timeline = SimpleNamespace(
        **{name: _frame(rows) for name, rows in recording.operations.items()},
        api=_frame(recording.calls),
        marks=_frame(recording.marks),
        untimed=_frame(recording.untimed),
    )
    ledger = BruteForce([timeline], [(0, device)], _steps(recording), window).ledger()
    return {name: ns for name, ns in ledger.items() if name.startswith("idle_")}


def _frame(rows: list[Row]) -> pd.DataFrame:
    columns = (
        "start_ns",
        "end_ns",
        "device",
        "context",
        "stream",
        "pid",
        "tid",
        "correlation",
        "name",
        "kind",
        "bytes",
    )
    return pd.DataFrame(rows) if rows else pd.DataFrame(columns=[*columns, "open", "domain"])


def _steps(recording: Recording) -> SimpleNamespace:
    """Where marked steps begin on the GPU, and when the last kernel of each ends: what was launched under a mark.
    Without marks, steps by the period in the kernels."""
    marks = [row for row in recording.marks if re.fullmatch(r"step \d+|ProfilerStep#\d+", row["name"])]
    marks.sort(key=lambda row: row["start_ns"])
    kernels = recording.operations["kernels"] + recording.operations["graphs"]
    if not marks and (repeated := period.steps(kernels, recording.operations["copies"])):
        return repeated
    called = {row["correlation"]: row["start_ns"] for row in sorted(recording.calls, key=lambda row: -row["start_ns"])}
    begins: dict[int, int] = {}
    ends: dict[int, int] = {}
    starts = [row["start_ns"] for row in marks]
    for row in kernels:
        if row["correlation"] not in called:
            continue
        place = int(np.searchsorted(starts, called[row["correlation"]])) - 1
        if place >= 0:
            begins[place] = min(begins.get(place, row["start_ns"]), row["start_ns"])
            ends[place] = max(ends.get(place, row["end_ns"]), row["end_ns"])
    places = sorted(begins)
    last = np.maximum.accumulate([ends[place] for place in places]) if places else np.empty(0, np.int64)
    return SimpleNamespace(
        all_start_ns=np.array([begins[place] for place in places], np.int64),
        all_last_kernel_end_ns=np.array(last, np.int64),
        all_number=np.array([int(re.sub(r"\D", "", marks[place]["name"])) for place in places], np.int64),
        learns=any(re.search("(?i)backward|optimizer", row["name"]) for row in recording.marks)
        or any(re.search("(?i)backward|optimizer|adam|multi_tensor_apply|[dw]grad", row["name"]) for row in kernels),
    )


def main(paths: list[str]) -> None:
    for path in map(Path, paths):
        recording = recorded(path)
        busy, exposed, idle = totals(recording)
        print(path, {"busy": busy, "exposed": exposed, "idle": idle, "causes": causes(recording)})


if __name__ == "__main__":
    main(sys.argv[1:])
