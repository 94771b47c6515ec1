"""Columns of SQLite tables, read in pieces on several threads, each piece straight to its place."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ...errors import UnreadableRecording
from ...threads import at_once
from ..progress import tell
from .sqlite import Database, connected, quoted

# Rows a task reads: small enough to share tables out evenly, large enough that opening a connection costs nothing.
_TASK_ROWS: Final = 1 << 18
_MAX_TASKS: Final = 256
_BATCH_ROWS: Final = 1 << 14

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


def scan(database: Database, wanted: Mapping[str, Mapping[str, Column]]) -> dict[str, Rows]:
    """The wanted columns of several tables, read in pieces on as many threads as there are cores.

    wanted: table -> key -> Column. Raises UnreadableRecording for a file SQLite finds damaged.
    """
    tables = {table: _Table(columns, *_rowids(database, table)) for table, columns in wanted.items()}
    pieces = [(name, table, piece) for name, table in tables.items() for piece in range(table.pieces)]
    with ThreadPoolExecutor(max_workers=at_once(max(2, min(8, os.cpu_count() or 2)))) as pool:
        try:
            for done, filled in enumerate([pool.submit(_fill, database, *piece) for piece in pieces], 1):
                filled.result()
                tell(done / len(pieces))
        finally:  # on an error, or Ctrl-C, the rest is not waited for
            pool.shutdown(wait=False, cancel_futures=True)
    return {name: table.rows() for name, table in tables.items()}


def _rowids(database: Database, table: str) -> tuple[int, int] | tuple[None, None]:
    """The first and the last, or None where they tell nothing about the number of rows."""
    name = quoted(table)
    try:
        ((low, high),) = database.query(f"SELECT (SELECT min(rowid) FROM {name}), (SELECT max(rowid) FROM {name})")
    except UnreadableRecording:
        return None, None  # a view, or a table without rowids; real damage shows when it is read
    if not isinstance(low, int) or not isinstance(high, int):
        return None, None
    if not 0 <= high - low < database.path.stat().st_size:  # a damaged tree is not in order
        return None, None
    return low, high


def _fill(database: Database, name: str, table: _Table, piece: int) -> None:
    sql = f"SELECT {', '.join(map(quoted, table.names))} FROM {quoted(name)}{table.where(piece)}"
    try:
        for batch in _batches(database.path, sql, table.nulls):
            table.put(piece, batch)
        return
    except OSError as error:
        raise database.damaged(error) from None
    except _NotIntegers:
        table.clear(piece)
    # Row by row: rows with anything but integers and NULL are left out.
    rows = database.query(sql)
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
        self._width = 0
        if low is not None and high is not None:
            width = high - low + 1
            self._step = max(_TASK_ROWS, -(-width // _MAX_TASKS))
            self.pieces = -(-width // self._step)
            # Zeros cost no memory until something else is written.
            self._width = width
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
        if place.stop > min((piece + 1) * self._step, self._width):
            raise OSError("a table holds more rows than numbers of rows")
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


def _batches(path: Path, sql: str, nulls: Sequence[int]) -> Iterator[list[NDArray[np.int64]]]:
    """Some ten thousand rows at a time. Raises _NotIntegers, and OSError where SQLite finds the file damaged."""
    import adbc_driver_manager.dbapi

    try:
        with connected(path) as connection, connection.cursor() as cursor:
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
