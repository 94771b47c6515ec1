"""The tables of a timeline: the columns of each, and how a reader's table gets them.

Times are integers in ns relative to `Recording.origin_ns`; they may be negative, for ranges that began before the
recording. Text columns are categorical, so that a million kernels cost four bytes a name. Ids are in the
documented type or a smaller one that holds them: widen them before any arithmetic. A stream is always (device,
context, stream); a process is `pid`.
"""

from __future__ import annotations

from functools import cache
from types import MappingProxyType
from typing import TYPE_CHECKING

import numpy as np

from .gpu_metrics import METRICS

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pandas as pd

TEXT = "category"

_TIMES = {"start_ns": "int64", "end_ns": "int64"}
_THREAD = {"pid": "int64", "tid": "int64"}
# Columns of every GPU operation. (pid, correlation) is that of the launch call's row in `api`; -1: not known.
_OPERATION = {
    **_TIMES,
    **dict.fromkeys(("device", "context", "stream"), "int32"),
    "pid": "int64",
    "correlation": "int64",
}
_RANGE = {**_TIMES, "open": "bool", **_THREAD}  # open: True if the end was not recorded; end_ns == start_ns then

# Values of the columns `kind` of copies, and `src_kind` and `dst_kind`. A device that is not known is -1.
COPY_KINDS = ("h2d", "d2h", "p2p", "d2d", "h2h", "other")
MEMORY_KINDS = ("pageable", "pinned", "device", "array", "managed", "unknown")

COLUMNS: Mapping[str, Mapping[str, str]] = MappingProxyType(
    {
        # graph_node: 0 for a kernel that no CUDA graph launched. operator: the framework's operator that the
        # recording names, or "". work: the kernel's operation and shapes, in the notation of readers.hlo, or "".
        # blocks: thread blocks of its grid, MOST_BLOCKS for more; 0: not known.
        "kernels": {
            **_OPERATION,
            "name": TEXT,
            "graph_node": "int64",
            "operator": TEXT,
            "work": TEXT,
            "blocks": "int16",
        },
        # One row per launch of a CUDA graph whose nodes the profiler did not record.
        "graphs": {**_OPERATION, "graph": "int64"},
        "copies": {
            **_OPERATION,
            "kind": TEXT,
            "bytes": "int64",
            "src_kind": TEXT,
            "dst_kind": TEXT,
            "src_device": "int32",
            "dst_device": "int32",
            "graph_node": "int64",
        },
        "memsets": {**_OPERATION, "bytes": "int64", "graph_node": "int64"},
        # Calls of the CUDA runtime and driver.
        "api": {**_TIMES, **_THREAD, "correlation": "int64", "name": TEXT},
        # NVTX ranges, and instants (end_ns == start_ns).
        "marks": {**_RANGE, "domain": TEXT, "name": TEXT},
        # Exchanges of a number of bytes between ranks. library NCCL: one row per call, around its launch; Horovod:
        # one row per tensor or group of tensors, from enqueueing to completion.
        "exchanges": {
            **_RANGE,
            "bytes": "int64",
            **dict.fromkeys(("library", "name", "communicator", "dtype"), TEXT),
        },
        # Ranges of the framework's operators and modules (layers), on the thread that runs them. inputs: shapes,
        # types and arguments as the recording writes them, or "". sequence: autograd's sequence number, -1: none.
        # backward: True for the backward pass of the operator with that sequence number.
        "operators": {
            **_TIMES,
            **_THREAD,
            "name": TEXT,
            "module": "bool",
            "inputs": TEXT,
            "sequence": "int64",
            "backward": "bool",
        },
        # Synchronisations recorded by CUPTI (of an event, stream or context); stream -1: none.
        "syncs": {**_OPERATION, "name": TEXT},
        # Time that the profiler itself took.
        "overheads": {**_TIMES, "pid": "int64", "name": TEXT},
        # Phases of a collective in Horovod's own timeline (NEGOTIATE_ALLREDUCE, NCCL_ALLREDUCE, ...).
        "phases": {**_TIMES, "tensor": TEXT, "name": TEXT, "rank": "int32"},
        # Samples of a thread: its innermost line of the user's Python. A sample counts from halfway since the one
        # before. steps: True if the thread runs the steps. via: the library call on that line, or "". framework: True
        # if this library is the framework that trains. source: the line's text. at_ns: the time of the sample.
        "samples": {
            "start_ns": "int64",
            "at_ns": "int64",
            "end_ns": "int64",
            **_THREAD,
            "steps": "bool",
            "file": TEXT,
            "line": "int64",
            "function": TEXT,
            "via": TEXT,
            "framework": "bool",
            "source": TEXT,
        },
        # Counters of a GPU in percent of their peak, -1: not known. A sample covers lasts_ns from at_ns on.
        "gpu_metrics": {"at_ns": "int64", "lasts_ns": "int64", "device": "int32", **dict.fromkeys(METRICS, "int16")},
        # Readings of a GPU's power, sorted by device and time. device -1: the GPU is not known.
        "power": {"at_ns": "int64", "device": "int32", "watts": "float64"},
        # Every GPU that the recording lists, used or not. uuid, bus_id, name: "" if not known; multiprocessors: 0.
        "devices": {"device": "int32", "uuid": "str", "bus_id": "str", "name": "str", "multiprocessors": "int32"},
    }
)
TABLES = tuple(COLUMNS)
IDS = ("device", "context", "stream", "pid", "tid", "correlation")  # integer columns, never used in arithmetic
# Columns that a reader may leave out; they get empty texts and zeros.
UNSAID = ("operator", "work", "communicator", "blocks", "multiprocessors")
# No GPU has as many multiprocessors, so more blocks need not be told apart.
MOST_BLOCKS = 32_767


def conform(name: str, table: pd.DataFrame | None) -> pd.DataFrame:
    """The table with its documented columns in order and dtype; None becomes an empty one. Raises ValueError if a
    column is missing that a reader may not leave out."""
    columns = COLUMNS[name]
    if table is None:
        return _empty(name).copy(deep=False)
    for column in set(UNSAID) & set(columns) - set(table):
        table = table.copy(deep=False)
        table[column] = unsaid(columns[column], len(table))
    missing = [column for column in columns if column not in table]
    if missing:
        raise ValueError(f"table {name} lacks {missing}")
    if list(table.columns) != list(columns):  # only if needed, since selecting columns copies them
        table = table[list(columns)]
    dtypes = zip(columns.items(), table.dtypes, strict=True)
    wrong = {column: kind for (column, kind), found in dtypes if not _is(found, kind, column in IDS)}
    return table.astype(wrong) if wrong else table


def _is(found: object, kind: str, or_smaller: bool) -> bool:
    if or_smaller and isinstance(found, np.dtype) and found.kind == "i":
        return np.can_cast(found, kind)
    return str(found) == kind


def unsaid(kind: str, count: int) -> pd.Categorical | np.ndarray:
    """A column of `count` empty texts or, if `kind` is a type of numbers, zeros."""
    import pandas as pd

    if kind != TEXT:
        return np.broadcast_to(np.zeros((), kind), count)
    return pd.Categorical.from_codes(np.zeros(count, np.int8), dtype=_nothing())


@cache
def _nothing() -> pd.CategoricalDtype:
    import pandas as pd

    return pd.CategoricalDtype([""])


@cache
def _empty(name: str) -> pd.DataFrame:
    """An empty table with the right columns. Cached, since a recording lacks half of the tables."""
    import pandas as pd

    return pd.DataFrame({column: pd.Series([], dtype=kind) for column, kind in COLUMNS[name].items()})
