"""Reading SQLite recordings fast, and without touching them.

Arrow's ADBC driver reads a table several times faster than Python's sqlite3, and on several threads. Files are opened
with `immutable=1`: SQLite then takes no lock, rolls back no journal and leaves no -wal or -shm beside the file.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

import numpy as np
from numpy.typing import NDArray

from ..errors import UnreadableRecording
from .progress import tell

MAGIC: Final = b"SQLite format 3\0"
_HOT_JOURNAL: Final = bytes.fromhex("d9d505f920a163d7")

# Rows a task reads: small enough to share tables out evenly, large enough that opening a connection costs nothing.
_TASK_ROWS: Final = 1 << 18
_MAX_TASKS: Final = 256
_BATCH_ROWS: Final = 1 << 14

# Errors of a damaged file; its noise can also reach the text of a message, or a column's name.
_ERRORS: Final = (sqlite3.Error, OverflowError, UnicodeError)

Array = NDArray[Any]


@dataclass(frozen=True, slots=True)
class Column:
    """A column to read: which, what NULL becomes, and the dtype it is kept in.

    convert: applied to each piece as it is read, to that dtype, so that a wide column need never be held whole.
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
        check(self.path)
        names = self.query("SELECT name FROM sqlite_master WHERE type IN ('table', 'view')")
        for (name,) in names:
            if isinstance(name, str):
                columns = self.query(f"PRAGMA table_info({_quoted(name)})")
                self.tables[name] = tuple(str(row[1]) for row in columns)

    def query(self, sql: str, values: Sequence[object] = ()) -> list[tuple[Any, ...]]:
        """All rows, for small tables. Text that is no UTF-8 has its odd bytes replaced."""
        try:
            with closing(sqlite3.connect(uri(self.path), uri=True)) as connection:
                connection.text_factory = _text
                return connection.execute(sql, values).fetchall()
        except _ERRORS as error:
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
        tables = {table: _Table(columns, *self._rowids(table)) for table, columns in wanted.items()}
        pieces = [(name, table, piece) for name, table in tables.items() for piece in range(table.pieces)]
        with ThreadPoolExecutor(max_workers=max(2, min(8, os.cpu_count() or 2))) as pool:
            try:
                for done, filled in enumerate([pool.submit(self._fill, *piece) for piece in pieces], 1):
                    filled.result()
                    tell(done / len(pieces))
            finally:  # on an error, or Ctrl-C, the rest is not waited for
                pool.shutdown(wait=False, cancel_futures=True)
        return {name: table.rows() for name, table in tables.items()}

    def _rowids(self, table: str) -> tuple[int, int] | tuple[None, None]:
        """The first and the last, or None where they tell nothing about the number of rows."""
        name = _quoted(table)
        try:
            ((low, high),) = self.query(f"SELECT (SELECT min(rowid) FROM {name}), (SELECT max(rowid) FROM {name})")
        except UnreadableRecording:
            return None, None  # a view, or a table without rowids; real damage shows when it is read
        if not isinstance(low, int) or not isinstance(high, int):
            return None, None
        if not 0 <= high - low < self.path.stat().st_size:  # a damaged tree is not in order
            return None, None
        return low, high

    def _fill(self, name: str, table: _Table, piece: int) -> None:
        sql = f"SELECT {', '.join(map(_quoted, table.names))} FROM {_quoted(name)}{table.where(piece)}"
        try:
            for batch in _batches(self.path, sql, table.nulls):
                table.put(piece, batch)
            return
        except OSError as error:
            raise self.damaged(error) from None
        except _NotIntegers:
            table.clear(piece)
        # Row by row: rows with anything but integers and NULL are left out.
        rows = self.query(sql)
        good = [row for row in rows if all(value is None or isinstance(value, int) for value in row)]
        table.left_out[piece] = len(rows) - len(good)
        table.put(
            piece,
            [
                np.array([null if row[index] is None else row[index] for row in good], dtype=np.int64)
                for index, null in enumerate(table.nulls)
            ],
        )


class _NotIntegers(Exception):
    """A column that ADBC takes for something else than integers."""


class _Table:
    """A table while it is read: pieces of it go straight to their places, so that nothing is held twice."""

    def __init__(self, wanted: Mapping[str, Column], low: int | None, high: int | None) -> None:
        self.wanted = wanted
        # One column of the file may become several here.
        self.names = list(dict.fromkeys(column.name for column in wanted.values()))
        self.nulls = [next(c.null for c in wanted.values() if c.name == name) for name in self.names]
        self._low = low
        self._step = _TASK_ROWS
        self._whole: dict[str, Array] = {}
        self.pieces = 1
        if low is not None and high is not None:
            width = high - low + 1
            self._step = max(_TASK_ROWS, -(-width // _MAX_TASKS))
            self.pieces = -(-width // self._step)
            # Zeros cost no memory until something else is written.
            self._whole = {key: np.zeros(width, column.dtype) for key, column in wanted.items()}
        # A column that is the same all through, as ids of the process are, costs none at all: batches that hold only
        # the value met first are noted, by piece and column.
        self._first: dict[str, Any] = {}
        self._same: list[dict[str, list[slice]]] = [{key: [] for key in wanted} for _ in range(self.pieces)]
        self._counts = [0] * self.pieces
        self._extra: list[list[Array]] = []  # where the number of rows is not known: (piece 0) batches as they come
        self.left_out = [0] * self.pieces

    def where(self, piece: int) -> str:
        if self._low is None:
            return ""
        start = self._low + piece * self._step
        last = "" if piece == self.pieces - 1 else f" AND rowid < {start + self._step}"
        return f" WHERE rowid >= {start}{last}"

    def put(self, piece: int, batch: list[NDArray[np.int64]]) -> None:
        kept = [_kept(batch[self.names.index(column.name)], column) for column in self.wanted.values()]
        if self._low is None:
            self._extra.append(kept)
            return
        count = len(kept[0])
        if not count:
            return
        start = piece * self._step + self._counts[piece]
        place = slice(start, start + count)
        for (key, whole), values in zip(self._whole.items(), kept, strict=True):
            if (values == self._first.setdefault(key, values[0])).all():
                self._same[piece][key].append(place)
            else:
                whole[place] = values
        self._counts[piece] += count

    def clear(self, piece: int) -> None:
        self._same[piece] = {key: [] for key in self.wanted}
        self._counts[piece] = 0
        self._extra = []

    def rows(self) -> Rows:
        if self._low is None:
            columns = {
                key: np.concatenate([np.empty(0, column.dtype), *(batch[index] for batch in self._extra)])
                for index, (key, column) in enumerate(self.wanted.items())
            }
            return Rows(columns, sum(self.left_out))
        return Rows({key: self._column(key) for key in self.wanted}, sum(self.left_out))

    def _column(self, key: str) -> Array:
        whole, total = self._whole.pop(key), sum(self._counts)
        same = [place for piece in self._same for place in piece[key]]
        if total and sum(place.stop - place.start for place in same) == total:
            return np.broadcast_to(np.array(self._first[key], whole.dtype), total)
        for place in same:
            whole[place] = self._first[key]
        if total == len(whole):
            return whole
        return np.concatenate([whole[i * self._step :][:count] for i, count in enumerate(self._counts)])


def uri(path: Path) -> str:
    return "file:" + quote(os.fsencode(path.absolute())) + "?immutable=1"


def table_names(path: Path) -> frozenset[str]:
    """Of an SQLite file; none where it cannot be read."""
    try:
        with closing(sqlite3.connect(uri(path), uri=True)) as connection:
            connection.text_factory = _text
            return frozenset(str(name) for (name,) in connection.execute("SELECT name FROM sqlite_master"))
    except _ERRORS:
        return frozenset()


def texts(database: Database, table: str, key: str, value: str) -> tuple[NDArray[np.int64], Any]:
    """Numbered strings: (int64 numbers, an Arrow array of binary, since text in a file may be no UTF-8).

    key and value are SQL expressions.
    """
    import adbc_driver_manager.dbapi
    import pyarrow as pa

    sql = (
        f"SELECT {key}, CAST({value} AS BLOB) FROM {_quoted(table)}"
        f" WHERE typeof({key}) = 'integer' AND {value} IS NOT NULL"
    )
    try:
        with _connected(database.path) as connection, connection.cursor() as cursor:
            cursor.execute(sql)
            found = cursor.fetch_arrow_table()
    except (OSError, UnicodeError, adbc_driver_manager.dbapi.Error) as error:
        raise database.damaged(error) from None
    if not found.num_rows:
        return np.array([], dtype=np.int64), pa.array([], pa.large_binary())
    return found.column(0).to_numpy(), found.column(1).cast(pa.large_binary()).combine_chunks()


def _batches(path: Path, sql: str, nulls: Sequence[int]) -> Iterator[list[NDArray[np.int64]]]:
    """Some ten thousand rows at a time. Raises _NotIntegers, and OSError where SQLite finds the file damaged."""
    import adbc_driver_manager.dbapi

    try:
        with _connected(path) as connection, connection.cursor() as cursor:
            cursor.adbc_statement.set_options(**{"adbc.sqlite.query.batch_rows": str(_BATCH_ROWS)})
            cursor.execute(sql)
            for batch in cursor.fetch_record_batch():
                found = [batch.column(index) for index in range(len(nulls))]
                if any(str(values.type) != "int64" for values in found):
                    raise _NotIntegers
                yield [
                    (values.fill_null(null) if values.null_count else values).to_numpy()
                    for values, null in zip(found, nulls, strict=True)
                ]
    except (UnicodeError, adbc_driver_manager.dbapi.Error) as error:
        raise OSError(str(error)) from None
    except OSError as error:
        # ADBC infers types from what comes first: a later value of another type is an error of its own.
        if "Type mismatch" in str(error):
            raise _NotIntegers from None
        raise


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


def check(path: Path) -> None:
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
