"""Turn the events of an XSpace's planes into rows: times in ns, name and statistics."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pandas as pd

from ..model import marks
from .chrome import events as chrome

_CALL: Final = re.compile(r"cu(da)?[A-Z]")
_WAYS: Final = {"MemcpyH2D": "HtoD", "MemcpyD2H": "DtoH", "MemcpyD2D": "DtoD", "MemcpyP2P": "Peer"}
# Names are cut to this number of characters, since a damaged file may hold one huge name that every event refers to.
LONGEST: Final = 1 << 16
_LONGEST_DETAILS: Final = 1 << 12
KINDS: Final = {"MemcpyH2D": "h2d", "MemcpyD2H": "d2h", "MemcpyD2D": "d2d", "MemcpyP2P": "p2p"}
CALLS: Final = "/host:CUPTI"


@dataclass(frozen=True, slots=True)
class Row:
    """One event of a plane. `stats`: name of a statistic -> its value."""

    start_ns: int
    end_ns: int
    name: str
    stats: dict[str, Any]


def metadata(plane: Any) -> tuple[dict[int, str], dict[int, str]]:
    """The names of a plane's events and of its statistics, both by id."""
    events = {number: entry.name[:LONGEST] for number, entry in plane.event_metadata.items()}
    return events, {number: entry.name[:LONGEST] for number, entry in plane.stat_metadata.items()}


def statistics(plane: Any, stats: Iterable[Any]) -> Iterable[tuple[str, Any]]:
    """(name, value) of each of these statistics of a plane."""
    names = metadata(plane)[1]
    return [(names.get(stat.metadata_id, ""), value(stat, names)) for stat in stats]


def value(stat: Any, names: dict[int, str]) -> Any:
    """The value of one statistic; None if it has none. `names`: the plane's names by id, to which a value may refer."""
    kind = stat.WhichOneof("value")
    if kind == "ref_value":
        return names.get(stat.ref_value, "")
    return getattr(stat, kind) if kind else None


def by_table(rows: list[Row]) -> dict[str, list[Row]]:
    """The rows of a stream by Timeline table. Rows that belong in no table are under "memory events"."""
    found: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        if "memcpy_details" in row.stats or row.name in KINDS or row.name == "MemcpyOther":
            found["copies"].append(row)
        elif "Memset_details" in row.stats or "memset_details" in row.stats or row.name == "Memset":
            found["memsets"].append(row)
        elif "kernel_details" in row.stats:
            found["kernels"].append(row)
        elif "cuda_graph_exec_id" in row.stats:
            found["graphs"].append(row)
        elif any(key.lower().endswith("_details") for key in row.stats):
            found["memory events"].append(row)
        else:
            found["kernels"].append(row)
    return found


def times(rows: list[Row]) -> pd.DataFrame:
    """A frame with start, end and pid; pid is -1, since the format does not record it."""
    return pd.DataFrame(
        {
            "start_ns": np.array([row.start_ns for row in rows], dtype=np.int64),
            "end_ns": np.array([row.end_ns for row in rows], dtype=np.int64),
            "pid": np.int64(-1),
        }
    )


def details(text: Any) -> dict[str, str]:
    """Parse `kind_src:pageable kind_dst:device size:4 dest:0 async:1` into a dict."""
    pairs = (part.partition(":") for part in text[:_LONGEST_DETAILS].split(" ")) if isinstance(text, str) else ()
    return {key: value for key, colon, value in pairs if colon}


def integers(rows: list[Row], key: str) -> np.ndarray:
    """For each row, the value of an integer statistic; -1 for a row without it."""
    return chrome.integers(row.stats.get(key) for row in rows)


def is_call(row: Row, plane: str) -> bool:
    """True if the row is a CUDA call: it is in the plane CALLS or, if planes were merged, has a call's name on the
    host."""
    return plane == CALLS or "correlation_id" in row.stats or _CALL.match(row.name) is not None


def call_name(row: Row) -> str:
    """The driver function's name of a CUDA call. The profiler may name the call after the copy or kernel that it
    launched."""
    if _CALL.match(row.name):
        return row.name.partition(" (CudaGraph:")[0]
    told = details(row.stats.get("memcpy_details") or row.stats.get("Memset_details"))
    waits = "" if told.get("async") == "0" else "Async"
    if row.name.startswith("Memcpy"):
        return f"cuMemcpy{_WAYS.get(row.name, '')}{waits}"
    return f"cuMemset{waits}" if row.name == "Memset" else "cuLaunchKernel"


def mark_name(row: Row) -> str:
    """The name that an NVTX recording has for the same range.

    A plane keeps a range's arguments as statistics. A range without a name gets its arguments as name,
    `#edge_name=ret_0#`. A training step, `tf.profiler.experimental.Trace("train", step_num=3)`, becomes `step 3`;
    with another name such as `eval` it becomes `eval#step_num=3#`.
    """
    step = row.stats.get("step_num")
    if type(step) is int:
        training = "#" in row.name or row.name.lower().startswith(("train", "step"))
        return marks.step(step) if training or not row.name else f"{row.name}#step_num={step}#"
    if row.name:
        return row.name.removeprefix("NVTX:")
    return "#" + ",".join(f"{key}={value}" for key, value in row.stats.items()) + "#"
