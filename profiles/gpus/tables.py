"""The operations in the tables of one recording, as columns that all of its GPUs share."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from ..model import launching
from ..model.timeline import Timeline
from .collective_kernels import is_collective
from .launch_calls import LaunchCalls
from .operations import COLLECTIVE, COMPUTE, D2D, D2H, H2D, MEMSET, P2P, TABLES, Source, distinct

if TYPE_CHECKING:
    import pandas as pd

Array = NDArray[Any]

# Class of each kind of copy; -1: none. Copies whose kind the profiler could not name also keep the GPU busy, unlike
# copies from host to host.
_COPY_CLASS: Final = {"h2d": H2D, "d2h": D2H, "p2p": P2P, "d2d": D2D, "other": D2D, "h2h": -1}
# In 1 093 real recordings with launch calls, at most 1 in 117 kernels shares the call of another one.
_FEW: Final = 100
BLOCK: Final = 1 << 17  # operations handled at once, so that their arrays fit into the CPU's cache


class Tables:
    """The operations of one recording: for each table its columns, and the names of kernels.

    Some columns are those of the recording. The others are `lasted_ns`; `kind`, an index into CLASSES, -1 for
    none; `process`, an index into `pids`; `call_row`, the launch call's row in `api`, -1 for none; `name`, a
    kernel's index in `names`, a negative number per CUDA graph, 0 for other operations.
    """

    def __init__(self, timeline: Timeline) -> None:
        launches = LaunchCalls(timeline)
        self.names: pd.Index = timeline.kernels["name"].cat.categories
        self.pids = sorted({one for table in TABLES for one in distinct(_column(timeline, table, "pid")).tolist()})
        call_start_ns, call_end_ns = launches.start_ns, launches.end_ns
        of = {table: partial(_column, timeline, table) for table in TABLES}
        call_row = {table: launches.rows(column("pid"), column("correlation")) for table, column in of.items()}
        call_row["kernels"] = _launched_alone(call_row["kernels"], timeline.api)
        del launches  # it takes as much memory as a column
        self.columns: dict[str, dict[str, Array]] = {}
        for table, column in of.items():
            taken = {name: column(name) for name in ("start_ns", "device", "context", "stream")}
            taken["lasted_ns"] = _differences(column("end_ns"), taken["start_ns"])
            taken["process"] = _places_in(self.pids, column("pid"))
            taken["call_row"] = call_row[table]
            taken["kind"], taken["name"] = self._told(timeline, table)
            self.columns[table] = taken
        nodes = [_column(timeline, table, "graph_node") if table != "graphs" else None for table in TABLES]
        sizes = [_column(timeline, table, "bytes") if table in ("copies", "memsets") else None for table in TABLES]
        self._source = partial(
            Source,
            call_start_ns=call_start_ns,
            call_end_ns=call_end_ns,
            bytes_of=tuple(sizes),
            node_of=tuple(node if node is not None and node.any() else None for node in nodes),
            blocks_of=_column(timeline, "kernels", "blocks"),
            **_said("operator", timeline.kernels["operator"].cat),
            **_said("work", timeline.kernels["work"].cat),
        )

    def source(self, shift_ns: int) -> Source:
        return self._source(shift_ns=shift_ns)

    def _told(self, timeline: Timeline, table: str) -> tuple[Array, Array]:
        """`kind` and `name` of each row of the table, as described above."""
        rows = len(getattr(timeline, table))
        no_name = np.broadcast_to(np.int8(0), rows)
        if table == "kernels":
            of_name = np.append(np.where(is_collective(self.names), COLLECTIVE, COMPUTE), COMPUTE).astype(np.int8)
            code = timeline.kernels["name"].cat.codes.to_numpy()
            return of_name[code], code
        if table == "copies":
            kinds = timeline.copies["kind"].cat
            of_kind = np.array([_COPY_CLASS.get(str(one), D2D) for one in kinds.categories], np.int8)
            return of_kind[kinds.codes.to_numpy()], no_name
        if table == "graphs":
            graph = np.unique(timeline.graphs["graph"].to_numpy(), return_inverse=True)[1]
            return np.broadcast_to(np.int8(COMPUTE), rows), -1 - graph
        return np.broadcast_to(np.int8(MEMSET), rows), no_name


def _launched_alone(call_row: NDArray[np.int32], api: pd.DataFrame) -> NDArray[np.int32]:
    """The kernels' launch calls. If over 1 % of the kernels name a call that several kernels name, and that launches
    no graph, the numbers of calls began again: -1 for all such calls, and for calls that launch nothing."""
    counts = np.bincount(call_row[call_row >= 0], minlength=len(api))
    graphs = launching.named(api, launching.GRAPH)
    several = (counts > 1) & ~graphs & ~launching.named(api, "MultiDevice")
    if _FEW * counts[several].sum() <= len(call_row):
        return call_row
    wrong = several | ~(graphs | launching.named(api, launching.KERNEL))
    found: NDArray[np.int32] = np.where((call_row >= 0) & wrong[call_row], np.int32(-1), call_row)
    return found


def _said(what: str, told: Any) -> dict[str, Any]:
    """Fields of `operations.Source` for a text column of kernels: an index into the texts per kernel, -1 for none;
    the texts."""
    texts = [str(text) for text in told.categories]
    if not any(texts):
        return {f"{what}_of": np.broadcast_to(np.int8(-1), len(told.codes)), f"{what}s": ()}
    said = np.array([place if text else -1 for place, text in enumerate(texts)] + [-1])
    return {f"{what}_of": said[told.codes.to_numpy()], f"{what}s": tuple(texts)}


def _column(timeline: Timeline, table: str, name: str) -> Array:
    column: Array = getattr(timeline, table)[name].to_numpy()
    return column


def _places_in(values: Sequence[int], column: Array) -> Array:
    """For each value of the column, its index in the sorted list `values`."""
    if len(values) == 1:
        return np.broadcast_to(np.int32(0), len(column))
    return np.searchsorted(values, column).astype(np.int32)


def _differences(of: NDArray[np.int64], less: NDArray[np.int64]) -> Array:
    """`of` minus `less` in ns: int32 if all differences fit, which is usual, since few operations last two seconds."""
    found = np.empty(len(of), np.int32)
    for first in range(0, len(of), BLOCK):
        block = slice(first, first + BLOCK)
        apart = of[block] - less[block]
        if apart.max() > np.iinfo(np.int32).max:
            return of - less
        found[block] = apart
    return found
