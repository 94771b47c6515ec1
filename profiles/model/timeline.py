"""The normal form of a recording: one pandas table per kind of event, with the columns documented here.

Times are integers in ns relative to `Recording.origin_ns`; they may be negative, for ranges that began before the
recording. Text columns are categorical, so that a million kernels cost four bytes a name. Ids are in the
documented type or a smaller one that holds them: widen them before any arithmetic. A stream is always (device,
context, stream); a process is `pid`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from functools import cache
from types import MappingProxyType
from typing import TYPE_CHECKING

import numpy as np

from ..ground.errors import UnreadableRecording
from .gpu_metrics import METRICS
from .possible import UNTIMED, first_start, possible

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

# Keys of `left_out` under which readers count rows without usable times, and rows without a name.
WITHOUT_TIMES, NAMELESS = "without times", "nameless"
_UNREAD = MappingProxyType({WITHOUT_TIMES: UNTIMED, NAMELESS: "have no name"})
# Limit in bytes for all distinct names of a recording together. Real recordings have up to some 100 MB.
MOST_TEXT = 256 << 20
# Limit in bytes for one name. The longest names in real recordings are PyProf's arguments, of some 100 KB.
LONGEST_NAME = 1 << 20
# Number of characters kept of the names of tool, host and GPUs, since each is shown in one line.
_LONGEST_FACT = 200
_FACTS, _OF_DEVICES = ("tool_version", "schema_version", "host"), ("uuid", "bus_id", "name")
_POINTER = re.compile(r"(?=/)(?:/gpus/\d{1,9})?(?:/(?!gpus/)[^/\x00-\x1f]*)*")
# Columns that a reader may leave out; they get empty texts and zeros.
UNSAID = ("operator", "work", "communicator", "blocks", "multiprocessors")
# No GPU has as many multiprocessors, so more blocks need not be told apart.
MOST_BLOCKS = 32_767


@dataclass(frozen=True, slots=True)
class Doubt:
    """A reason that makes a number less certain: a code, a sentence, the next action, and the places in the measures.
    `where`: JSON pointers to these places."""

    code: str
    text: str
    next: str
    where: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for pointer in self.where:
            if not _POINTER.fullmatch(pointer):  # another program may have written the measures
                raise ValueError(f"a doubt about {pointer[:60]!r}, which is no place in measures")


@dataclass(frozen=True, slots=True)
class Recording:
    """The origin of a timeline: file, tool, rank, host and clock."""

    path: str
    # nsys-sqlite, nvprof-sqlite, nvprof-csv, nsys-stats-csv, xplane, kineto, rocprof, rocprofv3, rocpd, horovod
    format: str
    tool: str
    tool_version: str | None = None
    schema_version: str | None = None
    rank: int | None = None  # None if unknown, or if the file holds several ranks (rank_source "marks")
    rank_source: str | None = None  # where the rank comes from: marks, format or file-name
    origin_ns: int = 0  # the time in the recording that became 0 here
    origin_utc_ns: int | None = None  # origin_ns on the UTC clock; None: not known
    host: str | None = None  # the recorded host, from the recording or the rank's record beside it


@dataclass(frozen=True, slots=True)
class Timeline:
    """One recording. A table that is not in `known` is empty because the recording cannot hold such events. `make`
    builds it, and adds an empty table with the right columns for each table that is left out."""

    recording: Recording
    kernels: pd.DataFrame
    graphs: pd.DataFrame
    copies: pd.DataFrame
    memsets: pd.DataFrame
    api: pd.DataFrame
    marks: pd.DataFrame
    exchanges: pd.DataFrame
    operators: pd.DataFrame
    syncs: pd.DataFrame
    overheads: pd.DataFrame
    phases: pd.DataFrame
    samples: pd.DataFrame
    gpu_metrics: pd.DataFrame
    power: pd.DataFrame
    devices: pd.DataFrame
    known: frozenset[str]
    doubts: tuple[Doubt, ...] = ()
    # Reason -> number of rows or events that the reader left out, for --info.
    left_out: Mapping[str, int] = field(default_factory=dict)
    # (reason, table) -> number of rows with impossible times, for --info.
    impossible: Mapping[tuple[str, str], int] = field(default_factory=dict)
    # The GPU operations among the rows with impossible times: column `table`, and the columns `possible.PLACED`.
    untimed: pd.DataFrame | None = None
    # True if the compiled programs that ran compute a derivative, as in training; None: not known.
    differentiates: bool | None = None
    # Share of the recorded events that somebody removed from the file afterwards; a lower bound.
    thinned: float = 0.0


def make(
    recording: Recording,
    tables: Mapping[str, pd.DataFrame],
    *,
    known: frozenset[str] | None = None,
    from_first: tuple[str, ...] = (),
    doubts: tuple[Doubt, ...] = (),
    left_out: Mapping[str, int] | None = None,
    differentiates: bool | None = None,
    thinned: float = 0.0,
) -> Timeline:
    """Make a Timeline from the tables that a reader found. `known`: by default the names of these tables.

    Rows that cannot be at their times (`possible`) are left out and counted in `impossible`, with the rows that
    the reader counted WITHOUT_TIMES or NAMELESS. Then the first row of the tables in `from_first` becomes time 0;
    `recording` has the origin of the given tables. Columns are put in the documented order and dtype (ids may be
    smaller).

    Raises KeyError for an unknown table and ValueError for a table without its columns, which are mistakes of a
    reader, not of a user. Raises UnreadableRecording if all names together take more than MOST_TEXT, or one more
    than LONGEST_NAME.
    """
    unknown = set(tables) - set(TABLES)
    if unknown:
        raise KeyError(f"no such table: {sorted(unknown)}")
    kept, gone = possible(tables)
    impossible = gone.counts
    counts = {f"{reason}: {name}": count for (reason, name), count in impossible.items()}
    impossible.update(
        {(why, "rows"): count for reason, why in _UNREAD.items() if (count := (left_out or {}).get(reason))}
    )
    known = frozenset(tables) if known is None else known
    if from_first:
        first = first_start(kept, from_first)
        kept = {name: _earlier(table, first) for name, table in kept.items()}
        utc = recording.origin_utc_ns
        recording = replace(
            recording,
            origin_ns=recording.origin_ns + first,
            origin_utc_ns=None if utc is None else utc + first,
        )
    facts = {name: text[:_LONGEST_FACT] for name in _FACTS if (text := getattr(recording, name)) is not None}
    recording = replace(recording, **facts)
    full = {name: _conform(name, kept.get(name)) for name in TABLES}
    full["devices"] = full["devices"].assign(**{one: full["devices"][one].str[:_LONGEST_FACT] for one in _OF_DEVICES})
    _refuse_long(recording.path, full)
    return Timeline(
        recording=recording,
        known=known,
        doubts=doubts,
        impossible=impossible,
        untimed=_joined(gone.operations),
        left_out={reason: count for reason, count in {**(left_out or {}), **counts}.items() if count},
        differentiates=differentiates,
        thinned=thinned,
        **full,
    )


def _refuse_long(path: str, tables: Mapping[str, pd.DataFrame]) -> None:
    """Raises UnreadableRecording if names are too long, or too many. Texts are copied some eight times, and a name is
    repeated in each row of a view, so that more would fill a laptop's memory."""
    distinct = {
        id(texts): texts
        for name, table in tables.items()
        if len(table)
        for column, kind in COLUMNS[name].items()
        if kind == TEXT
        for texts in [table[column].cat.categories]
    }
    if any(texts.nbytes > LONGEST_NAME and texts.str.len().max() > LONGEST_NAME for texts in distinct.values()):
        problem = f"a name in the recording is longer than {LONGEST_NAME >> 20} MiB, which no profiler writes"
        raise UnreadableRecording(path, problem, "record again, with shorter names of ranges")
    if sum(texts.nbytes for texts in distinct.values()) > MOST_TEXT:
        problem = f"the recording's distinct names take more than {MOST_TEXT >> 20} MiB, more than any profiler writes"
        raise UnreadableRecording(path, problem, "cut it (`ringscope cut`), or record fewer steps")


def with_samples(timeline: Timeline, samples: pd.DataFrame | None, doubts: tuple[Doubt, ...] = ()) -> Timeline:
    """Add samples of Python from the file beside a recording, on the recording's clock; None: no usable samples."""
    known = timeline.known | ({"samples"} if samples is not None else set())
    table = _conform("samples", samples)
    return replace(timeline, samples=table, known=known, doubts=(*timeline.doubts, *doubts))


def _joined(parts: list[pd.DataFrame]) -> pd.DataFrame | None:
    import pandas as pd

    return pd.concat(parts, ignore_index=True) if parts else None


def _earlier(table: pd.DataFrame, by_ns: int) -> pd.DataFrame:
    """The table with `by_ns` subtracted from its times."""
    times = [column for column in ("start_ns", "end_ns") if column in table]
    return table.assign(**{column: table[column].to_numpy() - by_ns for column in times})


def _conform(name: str, table: pd.DataFrame | None) -> pd.DataFrame:
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
