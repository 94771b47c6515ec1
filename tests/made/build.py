"""Timelines written by hand, one event a line, for tests.

made = Build()
made.kernel(100, 200, call=(50, 60))
made.copy("h2d", 200, 260, size=1 << 20, call=(190, 260))
made.mark("step 0", 0, 300)
timeline = made.timeline()
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from functools import cache
from typing import Any

import numpy as np
import pandas as pd

from profiles.model import timeline as contract
from profiles.model.gpu_metrics import METRICS
from profiles.model.timeline import Recording, Timeline

RECORDED = frozenset({"kernels", "graphs", "copies", "memsets", "api", "marks", "syncs", "devices"})


class Build:
    """Collects events; `timeline()` makes them a Timeline. Times in ns; call=(start, end) adds the launch call."""

    def __init__(self, *, device: int = 0, pid: int = 1, context: int = 1, path: str = "a.sqlite", **recording: Any):
        self.defaults = {"device": device, "pid": pid, "context": context}
        made_by = {"format": "nsys-sqlite", "tool": "by hand"} | recording
        self.recording = Recording(path=path, **made_by)
        self.many_rows: dict[str, list[pd.DataFrame]] = defaultdict(list)
        self.rows: dict[str, list[dict[str, Any]]] = defaultdict(list)
        self._correlations = itertools.count(1)

    def kernel(self, start: int, end: int, name: str = "kernel", **more: Any) -> None:
        columns = {"name": name, "graph_node": 0, "blocks": 0, **more}
        self._operation("kernels", start, end, columns, "cudaLaunchKernel_v7000")

    def graph(self, start: int, end: int, graph: int = 1, **more: Any) -> None:
        self._operation("graphs", start, end, {"graph": graph, **more}, "cudaGraphLaunch_v10000")

    def copy(self, kind: str, start: int, end: int, size: int = 1, **more: Any) -> None:
        host, on_device = "pageable", "device"
        ends = {"h2d": (host, on_device), "d2h": (on_device, host)}.get(kind, (on_device, on_device))
        columns = {"kind": kind, "bytes": size, "src_kind": ends[0], "dst_kind": ends[1]}
        columns |= {"src_device": -1, "dst_device": -1, "graph_node": 0, **more}
        self._operation("copies", start, end, columns, "cudaMemcpyAsync_v3020")

    def memset(self, start: int, end: int, size: int = 1, **more: Any) -> None:
        self._operation("memsets", start, end, {"bytes": size, "graph_node": 0, **more}, "cudaMemsetAsync_v3020")

    def api(self, name: str, start: int, end: int, *, pid: int | None = None, tid: int = 1, correlation: int = -1):
        owner = self.defaults["pid"] if pid is None else pid
        row = {"start_ns": start, "end_ns": end, "pid": owner, "tid": tid, "correlation": correlation, "name": name}
        self.rows["api"].append(row)

    def mark(self, name: str, start: int, end: int | None = None, *, domain: str = "ringscope", tid: int = 1, pid=None):
        """A range, or one that never ended where `end` is left out."""
        row = {"start_ns": start, "end_ns": start if end is None else end, "open": end is None}
        row |= {"pid": self.defaults["pid"] if pid is None else pid, "tid": tid, "domain": domain, "name": name}
        self.rows["marks"].append(row)

    def exchange(self, name: str, start: int, end: int | None, size: int, *, library: str = "Horovod", tid: int = 1):
        """A range in which a library was asked to exchange so many bytes."""
        row = {"start_ns": start, "end_ns": start if end is None else end, "open": end is None, "bytes": size}
        row |= {"pid": self.defaults["pid"], "tid": tid, "library": library, "name": name}
        self.rows["exchanges"].append(row)

    def operator(self, name: str, start: int, end: int, *, module: bool = False, tid: int = 1, **more: Any) -> None:
        """An operator of the framework, or a module (a layer)."""
        row = {"start_ns": start, "end_ns": end, "pid": self.defaults["pid"], "tid": tid, "name": name}
        row |= {"module": module, "inputs": "", "sequence": -1, "backward": False, **more}
        self.rows["operators"].append(row)

    def sample(self, start: int, end: int, function: str, line: int = 1, *, steps: bool = True, tid: int = 1, **more):
        """Samples that saw a thread in a line of the user's."""
        row = {"start_ns": start, "at_ns": start, "end_ns": end, "pid": self.defaults["pid"], "tid": tid}
        row |= {
            "steps": steps,
            "line": line,
            "function": function,
            "file": "train.py",
            "via": "",
            "framework": False,
            "source": "",
            **more,
        }
        self.rows["samples"].append(row)

    def counters(self, at: int, lasts: int, *, device: int = 0, **percent: int) -> None:
        """A sample of a GPU's counters; the ones that are not given are not known."""
        row = {"at_ns": at, "lasts_ns": lasts, "device": device}
        self.rows["gpu_metrics"].append({**row, **{name: percent.get(name, -1) for name in METRICS}})

    def power(self, at: int, watts: float, *, device: int = 0) -> None:
        self.rows["power"].append({"at_ns": at, "device": device, "watts": watts})

    def device(self, device: int, uuid: str = "", bus_id: str = "", name: str = "", multiprocessors: int = 0) -> None:
        row = {"device": device, "uuid": uuid, "bus_id": bus_id, "name": name, "multiprocessors": multiprocessors}
        self.rows["devices"].append(row)

    def many(self, table: str, **columns: Any) -> None:
        """Rows by columns, each an array or what all rows have; what is not said is as in a single row."""
        unsaid = {"stream": 7, "correlation": -1, "graph_node": 0, "tid": 1, "domain": "ringscope", "open": False}
        unsaid |= {"src_device": -1, "dst_device": -1, "operator": "", "work": "", "blocks": 0, **self.defaults}
        given = {name: columns.get(name, unsaid.get(name)) for name in contract.COLUMNS[table]}
        self.many_rows[table].append(pd.DataFrame(given))

    def timeline(self, *, known: frozenset[str] = RECORDED) -> Timeline:
        told = known | {"exchanges", "operators", "samples", "gpu_metrics", "power"}
        tables = {name: self._table(name) for name in told if self.rows[name] or self.many_rows[name]}
        return contract.make(self.recording, tables, known=known)

    def _table(self, name: str) -> pd.DataFrame:
        parts = [*([frame(name, self.rows[name])] if self.rows[name] else []), *self.many_rows[name]]
        return parts[0] if len(parts) == 1 else pd.concat(parts, ignore_index=True)

    def _operation(self, table: str, start: int, end: int, more: dict[str, Any], launched_by: str) -> None:
        call = more.pop("call", None)
        api_name, tid = more.pop("api", launched_by), more.pop("tid", 1)
        row = {"start_ns": start, "end_ns": end, "stream": 7, "correlation": -1, **self.defaults, **more}
        if call is not None:
            row["correlation"] = next(self._correlations)
            self.api(api_name, *call, pid=row["pid"], tid=tid, correlation=row["correlation"])
        self.rows[table].append(row)


def frame(table: str, rows: list[dict[str, Any]]) -> pd.DataFrame:
    """Rows as a table of the contract: its columns and dtypes."""
    columns = contract.COLUMNS[table]
    return pd.DataFrame({name: _column([row.get(name) for row in rows], kind) for name, kind in columns.items()})


def _column(values: list[Any], kind: str) -> Any:
    """As pandas makes it, in a tenth of the time: random timelines are made by the thousand."""
    if kind != contract.TEXT:
        return np.array(values).astype(kind)
    texts = tuple(sorted({value for value in values if value is not None}))
    code = {text: number for number, text in enumerate(texts)} | {None: -1}
    return pd.Categorical.from_codes([code[value] for value in values], dtype=_texts(texts))


@cache
def _texts(texts: tuple[str, ...]) -> pd.CategoricalDtype:
    return pd.CategoricalDtype(texts or pd.Index([], dtype="float64"))
