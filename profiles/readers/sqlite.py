"""Reading SQLite recordings fast, and without touching them.

Arrow's ADBC driver reads a table several times faster than Python's sqlite3, and on several threads. Files are opened
with `immutable=1`: SQLite then takes no lock, rolls back no journal and leaves no -wal or -shm beside the file.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

import numpy as np
from numpy.typing import NDArray

from ..errors import UnreadableRecording

MAGIC: Final = b"SQLite format 3\0"
_HOT_JOURNAL: Final = bytes.fromhex("d9d505f920a163d7")

# Rows a task reads: small enough to share tables out evenly, large enough that opening a connection costs nothing.
_TASK_ROWS: Final = 1 << 18
_MAX_TASKS: Final = 256
_BATCH_ROWS: Final = 1 << 16

Array = NDArray[Any]


@dataclass(frozen=True, slots=True)
class Column:
    """A column to read: which, what NULL becomes, and the dtype it is kept in (of int64; checked to fit).

    convert: applied to each piece as it is read, so that a wide column need never be held whole (ids to codes).
    """

    name: str
    null: int = 0
    dtype: str = "int64"
    convert: Callable[[NDArray[np.int64]], Array] | None = None


@dataclass(slots=True)
class Rows:
    """What was read of a table: columns by the key they were asked under; rows left out because they held no ints."""

    columns: dict[str, Array]
    left_out: int = 0

    def __len__(self) -> int:
        return len(next(iter(self.columns.values())))


@dataclass(slots=True)
class Database:
    """An SQLite file opened for reading only. `tables`: the names of its columns by table."""

    path: Path
    tables: dict[str, tuple[str, ...]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        _check(self.path)
        names = self.query("SELECT name FROM sqlite_master WHERE type IN ('table', 'view')")
        for (name,) in names:
            if isinstance(name, str):
                columns = self.query(f"PRAGMA table_info({_quoted(name)})")
                self.tables[name] = tuple(str(row[1]) for row in columns)

    def query(self, sql: str, values: Sequence[object] = ()) -> list[tuple[Any, ...]]:
        """All rows, for small tables. Text that is no UTF-8 has its odd bytes replaced."""
        try:
            connection = sqlite3.connect(uri(self.path), uri=True)
            connection.text_factory = _text
            try:
                return connection.execute(sql, values).fetchall()
            finally:
                connection.close()
        except (sqlite3.Error, OverflowError) as error:
            raise self.damaged(error) from None

    def has(self, table: str, *columns: str) -> bool:
        return table in self.tables and set(columns) <= set(self.tables[table])

    def require(self, table: str, *columns: str) -> None:
        """Raises UnreadableRecording if the table lacks a column it has in every schema known."""
        missing = [column for column in columns if column not in self.tables[table]]
        if missing:
            raise UnreadableRecording(
                self.path,
                f"table {table} has no column {', '.join(missing)}: no schema known to this version",
                "export it again with `nsys export -t sqlite`, or report the file",
            )

    def first(self, table: str, names: Iterable[str]) -> str | None:
        """The first of `names` that is a column of the table."""
        return next((name for name in names if self.has(table, name)), None)

    def damaged(self, error: object) -> UnreadableRecording:
        return UnreadableRecording(
            self.path,
            f"SQLite cannot read it ({str(error).removeprefix('[SQLite] ').strip()})",
            "copy or export it again; `sqlite3 FILE .recover` saves what can be saved",
        )

    def scan(self, wanted: Mapping[str, Mapping[str, Column]]) -> dict[str, Rows]:
        """The wanted columns of several tables, read in pieces on as many threads as there are cores.

        wanted: table -> key -> Column. Raises UnreadableRecording for a file SQLite finds damaged.
        """
        pieces: list[tuple[str, str]] = [(table, where) for table in wanted for where in self._pieces(table)]
        with ThreadPoolExecutor(max_workers=max(2, min(8, os.cpu_count() or 2))) as pool:
            found = list(pool.map(lambda piece: self._read(piece[0], wanted[piece[0]], piece[1]), pieces))
        result = {}
        for table, columns in wanted.items():
            parts = [part for (name, _), part in zip(pieces, found, strict=True) if name == table]
            result[table] = Rows(
                {key: _joined([part.columns.pop(key) for part in parts]) for key in columns},
                sum(part.left_out for part in parts),
            )
        return result

    def _pieces(self, table: str) -> list[str]:
        try:
            ((low, high),) = self.query(f"SELECT min(rowid), max(rowid) FROM {_quoted(table)}")
        except UnreadableRecording:
            return [""]  # a view, or a table without rowids; real damage shows when it is read
        if not isinstance(low, int) or not isinstance(high, int):
            return [""]
        step = max(_TASK_ROWS, -(-(high - low + 1) // _MAX_TASKS))
        # The last piece is open, so that no bound can exceed an int64.
        starts = range(low, high + 1, step)
        return [
            f" WHERE rowid >= {start}" + (f" AND rowid < {start + step}" if start + step <= high else "")
            for start in starts
        ]

    def _read(self, table: str, columns: Mapping[str, Column], where: str) -> Rows:
        names = ", ".join(_quoted(column.name) for column in columns.values())
        sql = f"SELECT {names} FROM {_quoted(table)}{where}"
        try:
            parts = _arrow(self.path, sql, columns)
        except OSError as error:
            # ADBC infers types from what comes first: a later value of another type is an error of its own.
            if "Type mismatch" not in str(error):
                raise self.damaged(error) from None
            parts = None
        if parts is not None:
            return Rows({key: _joined(pieces) for key, pieces in parts.items()})
        return self._read_mixed(sql, columns)

    def _read_mixed(self, sql: str, columns: Mapping[str, Column]) -> Rows:
        """Row by row, for a column of mixed types: rows with anything but integers and NULL are left out."""
        rows = self.query(sql)
        good = [row for row in rows if all(value is None or isinstance(value, int) for value in row)]
        values = {}
        for index, (key, column) in enumerate(columns.items()):
            whole = np.array([column.null if row[index] is None else row[index] for row in good], dtype=np.int64)
            values[key] = _kept(whole, column)
        return Rows(values, len(rows) - len(good))


def uri(path: Path) -> str:
    return "file:" + quote(os.fsencode(path.absolute())) + "?immutable=1"


def texts(database: Database, table: str, key: str, value: str) -> tuple[NDArray[np.int64], Any]:
    """Numbered strings: (int64 numbers, an Arrow array of binary, since text in a file may be no UTF-8)."""
    import adbc_driver_manager.dbapi
    import pyarrow as pa

    sql = (
        f"SELECT {_quoted(key)}, CAST({_quoted(value)} AS BLOB) FROM {_quoted(table)}"
        f" WHERE typeof({_quoted(key)}) = 'integer' AND {_quoted(value)} IS NOT NULL"
    )
    try:
        with _connected(database.path) as connection, connection.cursor() as cursor:
            cursor.execute(sql)
            found = cursor.fetch_arrow_table()
    except (OSError, adbc_driver_manager.dbapi.Error) as error:
        raise database.damaged(error) from None
    if not found.num_rows:
        return np.array([], dtype=np.int64), pa.array([], pa.large_binary())
    return found.column(0).to_numpy(), found.column(1).cast(pa.large_binary()).combine_chunks()


def _arrow(path: Path, sql: str, columns: Mapping[str, Column]) -> dict[str, list[Array]] | None:
    """Columns piece by piece, or None if one is not of integers. Raises OSError as ADBC does."""
    import adbc_driver_manager.dbapi

    parts: dict[str, list[Array]] = {key: [] for key in columns}
    try:
        with _connected(path) as connection, connection.cursor() as cursor:
            cursor.adbc_statement.set_options(**{"adbc.sqlite.query.batch_rows": str(_BATCH_ROWS)})
            cursor.execute(sql)
            for batch in cursor.fetch_record_batch():
                for index, (key, column) in enumerate(columns.items()):
                    values = batch.column(index)
                    if str(values.type) != "int64":
                        return None
                    if values.null_count:
                        values = values.fill_null(column.null)
                    parts[key].append(_kept(values.to_numpy(), column))
    except adbc_driver_manager.dbapi.Error as error:
        raise OSError(str(error)) from None
    return parts


def _connected(path: Path) -> Any:
    import adbc_driver_sqlite.dbapi

    return adbc_driver_sqlite.dbapi.connect(uri(path))


def _kept(values: NDArray[np.int64], column: Column) -> Array:
    """In the dtype asked for. What does not fit it is -1: ids of devices, contexts and streams are small."""
    if column.convert:
        return column.convert(values)
    if column.dtype == "int64":
        return values
    bounds = np.iinfo(column.dtype)
    narrow = values.astype(column.dtype)
    outside = (values < bounds.min) | (values > bounds.max)
    if outside.any():
        narrow[outside] = -1
    return narrow


def _joined(pieces: list[Array]) -> Array:
    if len(pieces) == 1:
        return pieces[0]
    return np.concatenate(pieces) if pieces else np.array([], dtype=np.int64)


def _check(path: Path) -> None:
    """Raises UnreadableRecording for a file whose recording is not finished, or not all there."""
    for suffix, hot in (("-wal", b""), ("-journal", _HOT_JOURNAL)):
        beside = path.with_name(path.name + suffix)
        try:
            with beside.open("rb") as file:
                start = file.read(8)
        except OSError:
            continue
        if start and start.startswith(hot):
            remedy = (
                f"let what writes it finish, or on a copy of both files run `sqlite3 {path.name} "
                "'PRAGMA wal_checkpoint(TRUNCATE); VACUUM'` and give that"
            )
            raise UnreadableRecording(path, f"its last changes are still in {beside.name}", remedy)
    with path.open("rb") as file:
        header = file.read(100)
    if not header.startswith(MAGIC) or len(header) < 100:
        raise UnreadableRecording(path, "no whole SQLite header", "copy or export it again")
    page = int.from_bytes(header[16:18], "big")
    pages = int.from_bytes(header[28:32], "big")
    expected = (65536 if page == 1 else page) * pages
    # The page count in the header holds only if it was written by the last change (SQLite file format, 1.3.7).
    if header[24:28] == header[92:96] and path.stat().st_size < expected:
        raise UnreadableRecording(
            path, f"cut short: {path.stat().st_size:,} of {expected:,} bytes", "copy or export it again"
        )


def _text(value: bytes) -> str:
    return value.decode("utf-8", "replace")


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
