"""Write a smaller copy of an SQLite recording.

On request it holds only a span of time, only the tables that measures need, or only data that is not private. The
copy is a new file with the schema of the source, so that nsys, nvprof's tools and ringscope can open it. Given a
span, it keeps the GPU operations that touch the span or were launched in it, the calls that touch the span or
launched a kept operation, and the marks that touch the span, unchanged. Marks `step N` are the exception: a step
that began before the span is left out, and a step that ends after the span loses its end time, so that a step
which was cut through is never taken for a whole step.
"""

from __future__ import annotations

import os
import re
import shutil
import sqlite3
import tempfile
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Final

from ..ground.errors import RingscopeError, UnreadableRecording
from ..model.marks import RANK_PREFIX, STEP_PREFIX
from . import private
from .formats import opened, read
from .nsys import gpu_metrics
from .nsys import marks as nsys_marks
from .nsys import sqlite as nsys_sqlite
from .nvprof import marks
from .nvprof import sqlite as nvprof_sqlite
from .span import Span
from .tables import sqlite

_NSYS_OPERATIONS: Final = (nsys_sqlite.KERNEL, nsys_sqlite.GRAPH, nsys_sqlite.MEMCPY, nsys_sqlite.MEMSET)
_NVPROF_OPERATIONS: Final = (*nvprof_sqlite.KERNELS, nvprof_sqlite.MEMCPY, nvprof_sqlite.PEER, nvprof_sqlite.MEMSET)

# Tables that the measures need.
_NEEDED: Final = re.compile(
    r"CUPTI_ACTIVITY_KIND_(KERNEL|CONCURRENT_KERNEL|GRAPH_TRACE|MEMCPY2?|MEMSET|RUNTIME|DRIVER|SYNCHRONIZATION|MARKER|"
    r"OVERHEAD|DEVICE|CONTEXT)|NVTX_EVENTS|ENUM_\w+|StringIds|META_DATA_EXPORT|EXPORT_META_DATA|"
    r"TARGET_INFO_(GPU|CUDA_DEVICE|SESSION_START_TIME)|PROFILER_OVERHEAD|StringTable|Version|sqlite_sequence|"
    r"NVTX_PAYLOAD_SCHEMA(S|_ENTRIES)|GPU_METRICS|TARGET_INFO_GPU_METRICS|"
    r"GENERIC_EVENTS|GENERIC_EVENT_(DATA|TYPES|TYPE_FIELDS)"
)
# Columns that hold ids of strings: demangledName, nameId and textId in nsys; name and domain in nvprof.
_STRING_COLUMN: Final = re.compile(r".*(Name|nameId|NameId|textId|TextId)|name|domain")

_CALLS: Final = (nsys_sqlite.RUNTIME, nvprof_sqlite.DRIVER)
_MARKER_DATA: Final = "CUPTI_ACTIVITY_KIND_MARKER_DATA"
_FEW_PAGES: Final = 1000
_FULL_BYTES: Final = 1 << 16  # a disk with less free space is full: SQLite's largest page does not fit
# True for rows that overlap the span, also for rows of zero length in it.
_TOUCHES: Final = '(start < :high AND (COALESCE("end", start) > :low OR start >= :low))'

# Marks `rank k of n` are kept at any time, since they name the rank of the recording.
_LASTING: Final = f"GLOB '{RANK_PREFIX}[0-9]* of [0-9]*'"
_STEP: Final = f"GLOB '{STEP_PREFIX}[0-9]*'"


def write(
    source: Path,
    target: Path,
    *,
    within: Span | None = None,
    shrink: bool = False,
    strip_private: bool = False,
    max_bytes: int | None = None,
    cache: bool = True,
    progress: Callable[[float, float, Path], None] | None = None,
) -> dict[str, tuple[int, int]]:
    """Write the copy `target`; return, by table, (number of rows in the source, number kept). Raises RingscopeError if
    `target` exists or the span holds no GPU work, UnreadableRecording for a bad source."""
    if os.path.lexists(target):
        raise RingscopeError(f"{target}: exists already and is never written over; name a new file with -o")
    if not target.parent.is_dir():
        raise RingscopeError(f"{target}: no such directory; make it, or name another with -o")
    with opened(source, max_bytes=max_bytes, cache=cache) as file:
        recording = read(file).recording
        if recording.format not in ("nsys-sqlite", "nvprof-sqlite"):
            remedy = "only SQLite recordings of nsys and nvprof can be cut"
            raise UnreadableRecording(file, f"a recording that cannot be cut ({recording.format})", remedy)
        cut = _Cut(file, within, recording.origin_ns, shrink, strip_private)
        with _scratch(target) as scratch:
            made = Path(scratch, "new.sqlite")
            try:
                kept = cut.write(made, progress)
            except UnreadableRecording:
                if shutil.disk_usage(scratch).free < _FULL_BYTES:
                    raise RingscopeError(f"{target}: no space is left on its disk; name another with -o") from None
                raise
            if within and not any(rows for name, (_, rows) in kept.items() if sqlite.plain(name) in cut.operations):
                problem = "no GPU work in that span"
                raise RingscopeError(f"{source}: {problem}; `ringscope timeline --info` shows what the recording holds")
            with target.open("xb"):  # this claims the name, and fails if another process has made the file meanwhile
                os.replace(made, target)
    return kept


def _scratch(target: Path) -> tempfile.TemporaryDirectory[str]:
    try:
        return tempfile.TemporaryDirectory(dir=target.parent, prefix=f".{target.name}.")
    except OSError as error:
        raise RingscopeError(f"{target}: cannot be written: {error.strerror}; name another with -o") from None


class _Cut:
    """One cut: decides which rows of each table to keep. In SQL, `source` is the old file and `main` the new one."""

    def __init__(self, path: Path, within: Span | None, origin: int, shrink: bool, strip_private: bool) -> None:
        self._database = sqlite.Database(path)
        self._nsys = "StringIds" in self._database.tables
        self._whole = within is None
        self._low = -(1 << 63) if within is None or within.start_ns is None else within.start_ns + origin
        self._high = (1 << 63) - 1 if within is None or within.end_ns is None else within.end_ns + origin
        self._strip_private = strip_private
        self._wanted = [pattern for pattern, on in ((_NEEDED, shrink), (private.TABLES, strip_private)) if on]
        self._strings = ("StringIds", "id") if self._nsys else ("StringTable", "_id_")
        self.operations = _NSYS_OPERATIONS if self._nsys else _NVPROF_OPERATIONS

    def write(self, made: Path, progress: Callable[[float, float, Path], None] | None) -> dict[str, tuple[int, int]]:
        try:
            with closing(sqlite3.connect(made, uri=True, isolation_level=None)) as connection:
                connection.text_factory = bytes
                return self._write(connection, progress)
        except (sqlite3.Error, OverflowError, UnicodeError) as error:
            raise self._database.damaged(error) from None

    def _write(
        self, connection: sqlite3.Connection, progress: Callable[[float, float, Path], None] | None
    ) -> dict[str, tuple[int, int]]:
        run = connection.execute
        for name in ("encoding", "page_size", "application_id", "user_version"):
            ((value,),) = self._database.query(f"PRAGMA {name}")
            run(f"PRAGMA {name} = '{value}'")
        for setting in ("journal_mode = OFF", "synchronous = OFF", "temp_store = MEMORY"):
            run(f"PRAGMA {setting}")
        # The copy has at most the rows of the source; at worst its pages are half empty.
        ((pages,),) = self._database.query("PRAGMA page_count")
        run(f"PRAGMA max_page_count = {2 * int(pages) + _FEW_PAGES}")
        sqlite.end_circles(connection, self._database.size)
        run("ATTACH ? AS source", (sqlite.uri(self._database.path),))
        run("CREATE TEMP TABLE launched (pid, correlation, PRIMARY KEY (pid, correlation)) WITHOUT ROWID")
        run("CREATE TEMP TABLE called (pid, correlation, PRIMARY KEY (pid, correlation)) WITHOUT ROWID")
        run("CREATE TEMP TABLE marked (id PRIMARY KEY, goes_on) WITHOUT ROWID")
        run("BEGIN")
        if not self._whole:
            self._find_calls(connection)
        schema = self._database.query("SELECT type, name, tbl_name, sql FROM sqlite_master WHERE sql IS NOT NULL")
        tables = [(name, sql) for kind, name, _, sql in schema if kind == "table" and self._stays(name)]
        if self._strip_private:
            private.prepare(connection, self._database)
            tables = [(name, private.schema(self._database, name)) for name, _ in tables if name != "sqlite_sequence"]
        for name, sql in tables:
            if not name.startswith("sqlite_"):  # SQLite makes these tables itself
                run(sql)
        # Operations first, since they decide which calls to keep; strings last, since other tables refer to them.
        last = [self._strings[0], "sqlite_sequence"]
        names = sorted(
            (name for name, _ in tables), key=lambda name: (name in last, sqlite.plain(name) not in self.operations)
        )
        kept = {}
        for done, name in enumerate(names):
            if progress:
                progress(done, len(names), self._database.path)
            kept[name] = self._copy(connection, name)
        for kind, _, table, sql in schema:
            if kind == "index" and table in kept and not self._strip_private:
                run(sql)
        run("COMMIT")
        return kept

    def _stays(self, table: str) -> bool:
        """True if the new file gets this table, even empty: nsys leaves empty tables out, nvprof writes all of them."""
        return not self._nsys or self._keeps_rows(table)

    def _keeps_rows(self, table: str) -> bool:
        return all(pattern.fullmatch(sqlite.plain(table)) for pattern in self._wanted)

    def _copy(self, connection: sqlite3.Connection, table: str) -> tuple[int, int]:
        """Copy the kept rows of a table; return (rows in the source, rows kept)."""
        quoted = sqlite.quoted(table)
        ((before,),) = connection.execute(f"SELECT COUNT(*) FROM source.{quoted}")
        if table == "sqlite_sequence":
            connection.execute("DELETE FROM main.sqlite_sequence")
        if self._keeps_rows(table):
            condition = self._condition(connection, table)
            told = "*"
            if self._strip_private:
                told = private.columns(self._database, table)
                condition = f"({condition}) AND {private.rows(self._database, table)}"
            connection.execute(
                f"INSERT INTO main.{quoted} SELECT {told} FROM source.{quoted} WHERE {condition}",
                self._times(condition),
            )
            if sqlite.plain(table) == nsys_marks.NVTX and not self._whole:
                goes_on = f'"end" > :high AND {self._named_as(_STEP)}'
                connection.execute(f'UPDATE main.{quoted} SET "end" = NULL WHERE {goes_on}', self._times(goes_on))
        ((after,),) = connection.execute(f"SELECT COUNT(*) FROM main.{quoted}")
        if sqlite.plain(table) in self.operations and self._database.has(table, "correlationId"):
            connection.execute(
                f"INSERT OR IGNORE INTO launched SELECT {self._pid(table)}, correlationId FROM main.{quoted} WHERE "
                "correlationId IS NOT NULL"
            )
        return int(before), int(after)

    def _condition(self, connection: sqlite3.Connection, table: str) -> str:
        """The SQL condition that holds for the rows to keep of this table."""
        columns = set(self._database.tables[table])
        if table == self._strings[0]:
            return self._named(connection) if self._wanted else "TRUE"
        if self._whole:
            return "TRUE"
        plain = sqlite.plain(table)
        if plain in self.operations and "correlationId" in columns:
            return f"{_TOUCHES} OR ({self._pid(table)}, correlationId) IN called"
        if plain in _CALLS:
            return f"{_TOUCHES} OR ({self._pid(table)}, correlationId) IN launched"
        if plain == nsys_marks.NVTX:
            return self._mark_condition()
        if table in (marks.MARKER, _MARKER_DATA):
            self._find_marks(connection)
            whole = "id NOT IN (SELECT id FROM marked WHERE goes_on) OR timestamp < :high"
            return "id IN (SELECT id FROM marked)" + (f" AND ({whole})" if table == marks.MARKER else "")
        if {"start", "end"} <= columns:
            return _TOUCHES
        for time in ("timestamp", "start"):
            if time in columns:
                return f'"{time}" >= :low AND "{time}" < :high'
        if plain == gpu_metrics.VALUES and self._database.has(gpu_metrics.EVENTS, "genericEventId", "timestamp"):
            kept = f"SELECT genericEventId FROM source.{self._database.stored(gpu_metrics.EVENTS)}"
            return f"genericEventId IN ({kept} WHERE timestamp >= :low AND timestamp < :high)"
        if "correlationId" in columns:  # rows without times, such as events, which belong to calls
            calls = [self._database.stored(name) for name in _CALLS if self._database.has(name)]
            kept = " UNION ".join(f"SELECT correlationId FROM main.{name}" for name in calls)
            return f"correlationId IN ({kept})" if calls else "TRUE"
        return "TRUE"

    def _pid(self, table: str) -> str:
        """The process id of a row, as SQL; 0 for nvprof, whose files hold one process and do not name it."""
        names = (name for name in ("globalPid", "globalTid") if self._database.has(table, name))
        return next((f"{name} >> 24 & 0xFFFFFF" for name in names), "0")

    def _find_calls(self, connection: sqlite3.Connection) -> None:
        for table in _CALLS:
            if self._database.has(table):
                stored = self._database.stored(table)
                connection.execute(
                    f"INSERT OR IGNORE INTO called SELECT {self._pid(table)}, correlationId FROM source.{stored} "
                    "WHERE start >= :low AND start < :high AND correlationId IS NOT NULL",
                    {"low": self._low, "high": self._high},
                )

    def _times(self, sql: str) -> dict[str, int]:
        return {name: value for name, value in (("low", self._low), ("high", self._high)) if f":{name}" in sql}

    def _named_as(self, pattern: str) -> str:
        """The SQL condition for marks of nsys whose name matches `pattern`, which is an SQL operator with its
        operand."""
        named = f"text {pattern}"
        if self._database.has(nsys_marks.NVTX, "textId"):
            named += f" OR textId IN (SELECT id FROM source.StringIds WHERE value {pattern})"
        return f"COALESCE({named}, FALSE)"

    def _mark_condition(self) -> str:
        """The SQL condition for rows of nsys: marks that touch the span, and names of domains, threads and ranks."""
        instants, ranges = (", ".join(map(str, types)) for types in (nsys_marks.INSTANTS, nsys_marks.RANGES))
        # A range without an end lasts until the recording ends.
        goes_on = f'"end" IS NULL AND eventType IN ({ranges})'
        touches = f"({_TOUCHES} OR (start < :high AND {goes_on})) AND (start >= :low OR NOT {self._named_as(_STEP)})"
        return f"({touches}) OR eventType NOT IN ({instants}, {ranges}) OR {self._named_as(_LASTING)}"

    def _find_marks(self, connection: sqlite3.Connection) -> None:
        """Note the ids of nvprof's marks to keep. A range consists of two rows with one id, or of one row if it has
        no end."""
        lasting, step = (
            f"MAX(name IN (SELECT _id_ FROM source.StringTable WHERE value {pattern}))" for pattern in (_LASTING, _STEP)
        )
        connection.execute(
            f"INSERT OR IGNORE INTO marked SELECT id, {step} AND MAX(timestamp) > :high FROM source.{marks.MARKER} "
            f"GROUP BY id HAVING MIN(timestamp) < :high AND (MIN(timestamp) >= :low OR NOT {step} AND (MAX(timestamp) "
            f"> :low OR COUNT(*) = 1 AND MAX(flags) & {marks.START})) OR {lasting}",
            {"low": self._low, "high": self._high},
        )

    def _named(self, connection: sqlite3.Connection) -> str:
        """The SQL condition for strings that a kept row refers to. Other strings only take room, and may hold paths."""
        named = list(private.names(self._database, self._keeps_rows)) if self._strip_private else self._all_named()
        return (
            f"{self._strings[1]} IN ({' UNION '.join(named)})" if named else "FALSE" if self._strip_private else "TRUE"
        )

    def _all_named(self) -> list[str]:
        return [
            f'SELECT "{column}" FROM main."{table}"'
            for table, columns in self._database.tables.items()
            if self._keeps_rows(table) and table != self._strings[0]
            for column in columns
            if _STRING_COLUMN.fullmatch(column)
        ]
