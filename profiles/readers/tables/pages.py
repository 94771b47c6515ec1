"""Integers of SQLite tables out of the file's own pages, thousands of rows at a time.

SQLite hands out one value after the other, which takes more than twice as long. Only what is plain is read here: rows
of integers and NULL that lie whole in their pages. Whatever else is met raises `Odd`, and SQLite is asked for these
rows; so a mistake in a file is told by SQLite in its own words. https://sqlite.org/fileformat2.html names the parts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ...ground.intervals import one_after_another
from .sqlite import Database, header_of, quoted

Bytes = NDArray[np.uint8]
Int64s = NDArray[np.int64]

_INTERIOR, _LEAF = 5, 13  # pages of a table, by their first byte
_DEEPEST: Final = 20
_ONE_BYTE: Final = 128  # from here on a varint has more than one
_LONGEST: Final = 8  # bytes of a varint that are read: 56 bits
# Bytes of a value, and what a value of none is, by its serial type. 10 and 11 are never written.
_SIZE: Final = np.array([0, 1, 2, 3, 4, 6, 8, 8, 0, 0, 0, 0, *((kind - 12) // 2 for kind in range(12, _ONE_BYTE))])
_NULL, _FLOAT, _ONE, _LAST_INTEGER = 0, 7, 9, 9
_MOST: Final = 8  # bytes of an integer: as much is left free before and after what is read


class Odd(Exception):
    """Rows, or a whole table, that SQLite has to read."""


@dataclass(frozen=True, slots=True)
class Leaves:
    """The pages that hold the rows of a table, in order. `last` is the greatest rowid that each may hold."""

    page: Int64s
    last: Int64s


class Pages:
    """The pages of a file."""

    def __init__(self, database: Database) -> None:
        self._path = database.path
        header = header_of(self._path)
        size = int.from_bytes(header[16:18], "big")
        self.size = 65536 if size == 1 else size
        self._usable = self.size - header[20]
        self._count = self._path.stat().st_size // self.size

    def leaves(self, root: int) -> Leaves:
        """The leaves of the table whose first page is `root`. Raises Odd if it is no tree of a table."""
        found = Leaves(np.array([root]), np.array([np.iinfo(np.int64).max]))
        try:
            for _ in range(_DEEPEST):
                # All leaves lie at one depth: who reads them sees whether they do.
                if self._read(found.page[:1])[_MOST] == _LEAF:
                    return found
                text = self._read(found.page)
                below = [self._children(text, at, last) for at, last in enumerate(found.last.tolist())]
                page, last = (np.concatenate(parts) for parts in zip(*below, strict=True))
                if len(page) > self._count or len(np.unique(page)) < len(page) or (last[1:] <= last[:-1]).any():
                    raise Odd
                found = Leaves(page, last)
        except IndexError:
            pass
        raise Odd

    def _children(self, text: Bytes, page: int, last: int) -> tuple[Int64s, Int64s]:
        """The pages below one, and the greatest rowid of each."""
        begin = _MOST + page * self.size
        if text[begin] != _INTERIOR:
            raise Odd
        count, right = (int(_number(text, np.array([begin + at]), size)[0]) for at, size in ((3, 2), (8, 4)))
        cells = begin + _number(text, begin + 12 + 2 * np.arange(count), 2)
        keys, _ = _varint(text, cells + 4)
        return np.append(_number(text, cells, 4), right), np.append(keys, last)

    def _read(self, pages: Int64s) -> Bytes:
        """Their bytes, one page after the other, _MOST bytes left free at either end."""
        if pages.min() < 1 or pages.max() > self._count:
            raise Odd
        text = np.empty(len(pages) * self.size + 2 * _MOST, np.uint8)
        text[:_MOST] = text[-_MOST:] = 0
        runs = np.flatnonzero(np.append(True, np.diff(pages) != 1)).tolist()
        with self._path.open("rb", buffering=0) as file:
            for first, end in zip(runs, [*runs[1:], len(pages)], strict=True):
                part = text.data[_MOST + first * self.size : _MOST + end * self.size]
                file.seek((int(pages[first]) - 1) * self.size)
                if file.readinto(part) != len(part):
                    raise Odd
        return text

    def integers(self, pages: Int64s, places: Mapping[int, int]) -> tuple[Int64s, dict[int, Int64s]]:
        """The rowids of all rows of some leaves, and columns of them by their place in the table.

        places: the columns that are wanted, with what NULL becomes in each. Raises Odd.
        """
        try:
            return self._integers(self._read(pages), len(pages), places)
        except IndexError:
            raise Odd from None

    def _integers(self, text: Bytes, count: int, places: Mapping[int, int]) -> tuple[Int64s, dict[int, Int64s]]:
        begins = _MOST + self.size * np.arange(count)
        rows = _number(text, begins + 3, 2)
        if (text[begins] != _LEAF).any() or (8 + 2 * rows > self._usable).any():
            raise Odd
        of, place = one_after_another(rows)
        begin = begins[of]
        cell = begin + _number(text, begin + 8 + 2 * place, 2)
        size, at = _varint(text, cell)
        rowid, at = _varint(text, at)
        end = at + size
        # A row longer than this goes on in other pages.
        if (size > self._usable - 35).any() or (end > begin + self._usable).any():
            raise Odd
        header = text.take(at).astype(np.int64)
        last = max(places, default=-1)
        if len(header) and not (last + 2 <= header.min() and header.max() < _ONE_BYTE):
            raise Odd
        kinds = np.lib.stride_tricks.sliding_window_view(text, last + 2)[at].T[1:].copy()  # by column
        lowest, highest = kinds.min(axis=1, initial=0xFF).tolist(), kinds.max(axis=1, initial=0).tolist()
        if max(highest, default=0) >= _ONE_BYTE:
            raise Odd
        value, ahead = at + header, 0  # where the values end: by row, and by as much more in all rows
        found = {}
        for index, (low, high) in enumerate(zip(lowest, highest, strict=True)):
            kind, width = (high, int(_SIZE[high])) if low >= high else (kinds[index], _SIZE.take(kinds[index]))
            if isinstance(width, int):  # as in most columns
                ahead += width
            else:
                value += width
            if index in places:
                found[index] = _values(text, value + ahead, kind, width, places[index])
        if (value + ahead > end).any():
            raise Odd
        return rowid, found


def _values(text: Bytes, end: Int64s, kind: Bytes | int, size: Int64s | int, null: int) -> Int64s:
    """Values that end at these places, `null` for NULL. kind: serial types, one for all where it is the same."""
    if np.max(kind, initial=0) > _LAST_INTEGER or np.any(kind == _FLOAT):
        raise Odd
    of_none = np.zeros(_LAST_INTEGER + 1, np.int64)
    of_none[_NULL], of_none[_ONE] = null, 1
    if isinstance(kind, int) and size == 0:
        return np.broadcast_to(of_none[kind], len(end))
    if isinstance(kind, int) and size == 1:
        return text.take(end - 1).view(np.int8).astype(np.int64)
    # Eight bytes that end where the value does; what is before it is shifted out.
    eights = np.lib.stride_tricks.as_strided(text[:_MOST].view(">i8"), (len(text) - _MOST + 1,), (1,))
    value = eights[end - _MOST].astype(np.int64)
    shift = 64 - 8 * np.maximum(size, 1)
    value <<= shift
    value >>= shift
    if isinstance(kind, int):
        return value
    empty = np.flatnonzero(size == 0)
    value[empty] = of_none.take(kind[empty])
    return value


def _number(text: Bytes, at: Int64s, size: int) -> Int64s:
    """Numbers of `size` bytes at these places."""
    found = np.zeros(len(at), np.int64)
    for byte in range(size):
        found = (found << 8) | text[at + byte]
    return found


def _varint(text: Bytes, at: Int64s) -> tuple[Int64s, Int64s]:
    """Varints at these places, and where they end."""
    byte = text.take(at)
    value, after = (byte & 127).astype(np.int64), at + 1
    for _ in range(_LONGEST - 1):
        more = byte >= _ONE_BYTE
        if not more.any():
            return value, after
        if more.all():
            byte = text.take(after)
            value, after = (value << 7) | (byte & 127), after + 1
        else:
            byte = np.where(more, text.take(after), 0)
            value = np.where(more, (value << 7) | (byte & 127), value)
            after = after + more
    if (byte >= _ONE_BYTE).any():
        raise Odd
    return value, after


def places(database: Database, table: str, names: Sequence[str]) -> tuple[int, dict[str, int]]:
    """The first page of a table, and the place of each of these columns in its rows; "rowid" is at -1.

    Raises Odd where a column is stored in another way than it is read.
    """
    table = database.stored(table)
    roots = database.query("SELECT rootpage FROM sqlite_master WHERE type = 'table' AND name = ?", (table,))
    rows: list[tuple[Any, ...]] = database.query(f"PRAGMA table_xinfo({quoted(table)})")
    if len(roots) != 1 or not isinstance(roots[0][0], int) or any(hidden for *_, hidden in rows):
        raise Odd
    found = {"rowid": -1}
    for place, name, kind, _, _, key, _ in rows:
        # Of another affinity a value may be read as something else than an integer; a key may be the rowid.
        found[str(name)] = -2 if key or "INT" not in str(kind).upper() else int(place)
    if any(found.get(name, -2) < -1 for name in names):
        raise Odd
    return roots[0][0], {name: found[name] for name in names}
