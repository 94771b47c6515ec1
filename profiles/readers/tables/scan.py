"""Read integer columns of SQLite tables in pieces, on several threads, each piece straight into the final array."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ...ground.errors import UnreadableRecording
from ...ground.threads import spread
from ..progress import tell
from .sqlite import Database, arrow_cursor, quoted

# Rows per task: few enough that threads get even shares, and enough that opening a connection costs little.
_TASK_ROWS: Final = 1 << 18
_MAX_TASKS: Final = 256
_FEW_BYTES: Final = 1 << 21  # threads are not worth their start for a file of at most this size
_BATCH_ROWS: Final = 1 << 14

Array = NDArray[Any]


@dataclass(frozen=True, slots=True)
class Column:
    """A column to read: its name, the value for NULL, and the dtype of the array.

    `convert`: turns each piece of int64 values into `dtype` as it is read, so that the int64 column is never held
    whole. `usual`: a smaller dtype, used instead of `dtype` if all values fit in it.
    """

    name: str
    null: int = 0
    dtype: str = "int64"
    convert: Callable[[NDArray[np.int64]], Array] | None = None
    usual: str | None = None


def present(database: Database, table: str, columns: Mapping[str, Column]) -> dict[str, Column]:
    """The columns that the table has, since older schemas lack some."""
    return {key: column for key, column in columns.items() if database.has(table, column.name)}


@dataclass(slots=True)
class Rows:
    """Rows of a table. `columns`: by the caller's key. `left_out`: number of rows dropped since a value was no
    integer."""

    columns: dict[str, Array]
    left_out: int = 0


def scan(database: Database, wanted: Mapping[str, Mapping[str, Column]]) -> dict[str, Rows]:
    """Read the wanted columns of several tables, in pieces on up to eight threads. `wanted`: table -> key -> Column.
    Raises UnreadableRecording if SQLite finds the file damaged."""
    tables = {table: _Table(columns, _pieces(database, table)) for table, columns in wanted.items()}
    pieces = [(name, table, piece) for name, table in tables.items() for piece in range(table.pieces)]
    fill = partial(_fill, database)
    small = database.path.stat().st_size <= _FEW_BYTES
    for done, _ in enumerate(spread(fill, pieces, 1 if small else max(2, min(8, os.cpu_count() or 2))), 1):
        tell(done / len(pieces))
    return {name: table.rows() for name, table in tables.items()}


def _rowids(database: Database, table: str) -> tuple[int, int] | tuple[None, None]:
    """(first, last) rowid of a table; (None, None) if it is empty, or if these do not bound the number of rows."""
    name = quoted(database.stored(table))
    try:
        ((low, high),) = database.query(f"SELECT (SELECT min(rowid) FROM {name}), (SELECT max(rowid) FROM {name})")
    except UnreadableRecording:
        return None, None  # a view, or a table without rowids; damage will show when the rows are read
    if not isinstance(low, int) or not isinstance(high, int):
        return None, None
    if not 0 <= high - low < database.path.stat().st_size:  # the tree is damaged, since it is not in order
        return None, None
    return low, high


def _pieces(database: Database, table: str) -> Array | None:
    """The rowids at which the pieces of a table begin, then the end of the last piece; None if the number of rows is
    unknown."""
    low, high = _rowids(database, table)
    if low is None or high is None:
        return None
    step = max(_TASK_ROWS, -(-(high - low + 1) // _MAX_TASKS))
    return np.append(np.arange(low, high + 1, step), high + 1)


def _fill(database: Database, of: tuple[str, _Table, int]) -> None:
    name, table, piece = of
    sql = f"SELECT {', '.join(map(_integer, table.names))} FROM {quoted(database.stored(name))}{table.where(piece)}"
    try:
        for batch in _batches(database.path, sql, table.nulls):
            table.put(piece, batch)
        return
    except OSError as error:
        raise database.damaged(error) from None
    except _NotIntegers:
        table.clear(piece)
    # Read row by row, so that only rows with a value that is neither integer nor NULL are dropped.
    rows = database.query(sql)
    good = [row for row in rows if all(value is None or isinstance(value, int) for value in row)]
    table.left_out[piece] = len(rows) - len(good)
    columns = (
        np.array([null if row[index] is None else row[index] for row in good], dtype=np.int64)
        for index, null in enumerate(table.nulls)
    )
    try:
        table.put(piece, list(columns))
    except OSError as error:
        raise database.damaged(error) from None


def _integer(column: str) -> str:
    """The column as SQL, with 0.5 for a text or blob, so that a long text is not read only to be dropped. Both sort
    after all numbers: to compare takes half the time of asking for the type."""
    name = quoted(column)
    return f"CASE WHEN {name} >= '' THEN 0.5 ELSE {name} END"


class _NotIntegers(Exception):
    """ADBC took a column for another type than int64."""


class _Table:
    """A table while it is read. Pieces are written straight into the final arrays, so that no value is held twice."""

    def __init__(self, wanted: Mapping[str, Column], bounds: Array | None) -> None:
        self.wanted = wanted
        # Several wanted columns may be one column of the file, which is read once.
        self.names = list(dict.fromkeys(column.name for column in wanted.values()))
        self.nulls = [next(c.null for c in wanted.values() if c.name == name) for name in self.names]
        self._bounds = None if bounds is None else bounds.tolist()
        self.pieces = 1 if self._bounds is None else len(self._bounds) - 1
        # The operating system gives an array of zeros no memory until it is written to.
        width = self._bounds[-1] - self._bounds[0] if self._bounds else 0
        self._whole = {key: np.zeros(width, column.usual or column.dtype) for key, column in wanted.items()}
        # (piece, column) -> batches with values that do not fit in the usual dtype.
        self._wide: list[dict[str, list[tuple[slice, Array]]]] = [{} for _ in range(self.pieces)]
        # (piece, column) -> batches that hold only the first value seen. They are noted, not written, so that a
        # constant column (a process id, for instance) takes no memory.
        self._first: dict[str, Any] = {}
        self._same: list[dict[str, list[slice]]] = [{key: [] for key in wanted} for _ in range(self.pieces)]
        self._counts = [0] * self.pieces
        self._extra: list[list[Array]] = []  # if the number of rows is unknown: all batches in order, as piece 0
        self.left_out = [0] * self.pieces

    def where(self, piece: int) -> str:
        if self._bounds is None:
            return ""
        last = "" if piece == self.pieces - 1 else f" AND rowid < {self._bounds[piece + 1]}"
        return f" WHERE rowid >= {self._bounds[piece]}{last}"

    def put(self, piece: int, batch: list[NDArray[np.int64]]) -> None:
        kept = [_kept(batch[self.names.index(column.name)], column) for column in self.wanted.values()]
        if self._bounds is None:
            self._extra.append(kept)
            return
        count = len(kept[0])
        if not count:
            return
        start = self._bounds[piece] - self._bounds[0] + self._counts[piece]
        place = slice(start, start + count)
        if place.stop > self._bounds[piece + 1] - self._bounds[0]:
            raise OSError("a table holds more rows than its row numbers allow")
        for (key, whole), values in zip(self._whole.items(), kept, strict=True):
            first = self._first.setdefault(key, values[0])
            if values[-1] == first and (values == first).all():
                self._same[piece][key].append(place)
            elif whole.dtype == values.dtype or _fits(values, whole.dtype):
                whole[place] = values
            else:
                self._wide[piece].setdefault(key, []).append((place, values))
        self._counts[piece] += count

    def clear(self, piece: int) -> None:
        self._same[piece] = {key: [] for key in self.wanted}
        self._wide[piece] = {}
        self._counts[piece] = 0
        self._extra = []

    def rows(self) -> Rows:
        if self._bounds is None:
            columns = {
                key: np.concatenate([np.empty(0, column.dtype), *(batch[index] for batch in self._extra)])
                for index, (key, column) in enumerate(self.wanted.items())
            }
            return Rows(columns, sum(self.left_out))
        return Rows({key: self._column(key) for key in self.wanted}, sum(self.left_out))

    def _column(self, key: str) -> Array:
        whole, total = self._whole.pop(key), sum(self._counts)
        same = [place for piece in self._same for place in piece[key]]
        wide = [one for piece in self._wide for one in piece.get(key, ())]
        if total and (wide or not _fits(self._first[key], whole.dtype)):
            whole = whole.astype(self.wanted[key].dtype)
        if total and sum(place.stop - place.start for place in same) == total:
            return np.broadcast_to(np.array(self._first[key], whole.dtype), total)
        for place, values in wide:
            whole[place] = values
        for place in same:
            whole[place] = self._first[key]
        if total == len(whole):
            return whole
        starts = [bound - self._bounds[0] for bound in self._bounds] if self._bounds else []
        return np.concatenate([whole[at:][:count] for at, count in zip(starts, self._counts, strict=False)])


def _batches(path: Path, sql: str, nulls: Sequence[int]) -> Iterator[list[NDArray[np.int64]]]:
    """The answer's columns in batches of 16384 rows. Raises _NotIntegers, and OSError if the file is damaged."""
    try:
        with arrow_cursor(path) as cursor:
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
    except OSError as error:
        # ADBC takes a column's type from its first values, and raises this error at a later value of another type.
        if "Type mismatch" in str(error):
            raise _NotIntegers from None
        raise


def _fits(values: Any, dtype: np.dtype[Any]) -> bool:
    """True if the dtype can hold all values."""
    bounds = np.iinfo(dtype)
    return bool(np.min(values) >= bounds.min and np.max(values) <= bounds.max)


def _kept(values: NDArray[np.int64], column: Column) -> Array:
    """The values in the column's dtype. A value that does not fit becomes -1, no valid id of a device, context or
    stream."""
    if column.convert:
        return column.convert(values)
    if column.dtype == "int64":
        return values
    narrow = values.astype(column.dtype)
    outside = (values < -1) | (values > np.iinfo(column.dtype).max)
    if outside.any():
        narrow[outside] = -1
    return narrow
