"""The normal form of a recording: where it comes from, and a pandas table per kind of event (tables.py)."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import TYPE_CHECKING

from ..ground.errors import UnreadableRecording
from .possible import UNTIMED, first_start, possible
from .tables import COLUMNS, TABLES, TEXT, conform

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pandas as pd

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
    ranks: int | None = None  # number of ranks of the run, if the format says it
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
    full = {name: conform(name, kept.get(name)) for name in TABLES}
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
    table = conform("samples", samples)
    return replace(timeline, samples=table, known=known, doubts=(*timeline.doubts, *doubts))


def _joined(parts: list[pd.DataFrame]) -> pd.DataFrame | None:
    import pandas as pd

    return pd.concat(parts, ignore_index=True) if parts else None


def _earlier(table: pd.DataFrame, by_ns: int) -> pd.DataFrame:
    """The table with `by_ns` subtracted from its times."""
    times = [column for column in ("start_ns", "end_ns") if column in table]
    return table.assign(**{column: table[column].to_numpy() - by_ns for column in times})
