"""Decode integer columns of SQLite tables straight from the file's pages, thousands of rows at a time.

SQLite returns one value after the other, which takes more than twice as long. Only plain rows are decoded:
integers and NULL, with no overflow pages. Other rows raise `Odd`, and the caller reads them by SQLite, which also
reports any damage. Terms are those of https://sqlite.org/fileformat2.html.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from io import FileIO
from typing import Any, Final, cast

import numpy as np
from numpy.typing import NDArray

from ...ground.files import open_regular
from ...ground.intervals import one_after_another
from .sqlite import Database, header_of, quoted

Bytes = NDArray[np.uint8]
Int64s = NDArray[np.int64]

_INTERIOR, _LEAF = 5, 13  # first byte of an interior page and of a leaf page of a table
_DEEPEST: Final = 20
_ONE_BYTE: Final = 128  # varints below this take one byte
_LONGEST: Final = 8  # the longest varint decoded, in bytes (56 bits)

# Bytes of a value by its serial type. Types 10 and 11 are never written.
_SIZE: Final = np.array([0, 1, 2, 3, 4, 6, 8, 8, 0, 0, 0, 0, *((kind - 12) // 2 for kind in range(12, _ONE_BYTE))])
_NULL, _FLOAT, _ONE, _LAST_INTEGER = 0, 7, 9, 9
_MOST: Final = 8  # bytes of the longest integer, and of the padding before and after the pages in memory


class Odd(Exception):
    """These rows, or the whole table, cannot be decoded in this module: SQLite has to read them."""


@dataclass(frozen=True, slots=True)
class Leaves:
    """The leaf pages of a table, in rowid order. `page`: page numbers. `last`: the greatest rowid that each page may
    hold."""

    page: Int64s
    last: Int64s


class Pages:
    """The pages of a database file. `size`: bytes of a page."""

    def __init__(self, database: Database) -> None:
        self._path = database.path
        header = header_of(self._path)
        size = int.from_bytes(header[16:18], "big")
        self.size = 65536 if size == 1 else size
        self._usable = self.size - header[20]
        self._count = self._path.stat().st_size // self.size

    def leaves(self, root: int) -> Leaves:
        """The leaf pages of the table's B-tree with the root page `root`. Raises Odd if it is no such tree."""
        found = Leaves(np.array([root]), np.array([np.iinfo(np.int64).max]))
        try:
            for _ in range(_DEEPEST):
                # All leaves have the same depth, so the first page shows it; decoding raises Odd for any other page.
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
        """(child pages of an interior page, greatest rowid of each child). `page`: the interior page's index in `text`.
        `last`: the interior page's greatest rowid."""
        begin = _MOST + page * self.size
        if text[begin] != _INTERIOR:
            raise Odd
        count, right = (int(_number(text, np.array([begin + at]), size)[0]) for at, size in ((3, 2), (8, 4)))
        cells = begin + _number(text, begin + 12 + 2 * np.arange(count), 2)
        keys, _ = _varint(text, cells + 4)
        return np.append(_number(text, cells, 4), right), np.append(keys, last)

    def _read(self, pages: Int64s) -> Bytes:
        """The bytes of these pages, one page after the other, with _MOST zero bytes before and after."""
        if pages.min() < 1 or pages.max() > self._count:
            raise Odd
        text = np.empty(len(pages) * self.size + 2 * _MOST, np.uint8)
        text[:_MOST] = text[-_MOST:] = 0
        runs = np.flatnonzero(np.append(True, np.diff(pages) != 1)).tolist()
        with open_regular(self._path) as opened:
            file = cast(FileIO, opened.raw)  # with a buffer, Python would read more than a page, and copy it
            for first, end in zip(runs, [*runs[1:], len(pages)], strict=True):
                part = text.data[_MOST + first * self.size : _MOST + end * self.size]
                file.seek((int(pages[first]) - 1) * self.size)
                if file.readinto(part) != len(part):
                    raise Odd
        return text

    def integers(self, pages: Int64s, places: Mapping[int, int]) -> tuple[Int64s, dict[int, Int64s]]:
        """(rowids, columns by index) of all rows on these leaf pages. `places`: index of each wanted column -> its
        value for NULL. Raises Odd if a row is not plain."""
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
        # A longer row continues on overflow pages.
        if (size > self._usable - 35).any() or (end > begin + self._usable).any():
            raise Odd
        header = text.take(at).astype(np.int64)
        last = max(places, default=-1)
        if len(header) and not (last + 2 <= header.min() and header.max() < _ONE_BYTE):
            raise Odd
        kinds = np.lib.stride_tricks.sliding_window_view(text, last + 2)[at].T[1:].copy()  # one row per column
        lowest, highest = kinds.min(axis=1, initial=0xFF).tolist(), kinds.max(axis=1, initial=0).tolist()
        if max(highest, default=0) >= _ONE_BYTE:
            raise Odd
        value, ahead = at + header, 0  # each value ends at `value` (of its row) + `ahead`
        found = {}
        for index, (low, high) in enumerate(zip(lowest, highest, strict=True)):
            kind, width = (high, int(_SIZE[high])) if low >= high else (kinds[index], _SIZE.take(kinds[index]))
            if isinstance(width, int):  # all rows have the same serial type, as in most columns
                ahead += width
            else:
                value += width
            if index in places:
                found[index] = _values(text, value + ahead, kind, width, places[index])
        if (value + ahead > end).any():
            raise Odd
        return rowid, found


def _values(text: Bytes, end: Int64s, kind: Bytes | int, size: Int64s | int, null: int) -> Int64s:
    """The values that end at these offsets, `null` for NULL. `kind`: serial types; `size`: bytes. Each is one number if
    all values agree."""
    if np.max(kind, initial=0) > _LAST_INTEGER or np.any(kind == _FLOAT):
        raise Odd
    of_none = np.zeros(_LAST_INTEGER + 1, np.int64)
    of_none[_NULL], of_none[_ONE] = null, 1
    if isinstance(kind, int) and size == 0:
        return np.broadcast_to(of_none[kind], len(end))
    if isinstance(kind, int) and size == 1:
        return text.take(end - 1).view(np.int8).astype(np.int64)
    # Read the eight bytes that end with the value, and shift out the bytes before it.
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
    """The big-endian unsigned integers of `size` bytes at these offsets."""
    found = np.zeros(len(at), np.int64)
    for byte in range(size):
        found = (found << 8) | text[at + byte]
    return found


def _varint(text: Bytes, at: Int64s) -> tuple[Int64s, Int64s]:
    """(varints at these offsets, offsets after them). Raises Odd if one is longer than _LONGEST bytes."""
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
    """(root page of a table, for each of these columns its index in the rows, -1 for "rowid"). Raises Odd if a column
    is no plain integer column."""
    table = database.stored(table)
    roots = database.query("SELECT rootpage FROM sqlite_master WHERE type = 'table' AND name = ?", (table,))
    rows: list[tuple[Any, ...]] = database.query(f"PRAGMA table_xinfo({quoted(table)})")
    if len(roots) != 1 or not isinstance(roots[0][0], int) or any(hidden for *_, hidden in rows):
        raise Odd
    found = {"rowid": -1}
    for place, name, kind, _, _, key, _ in rows:
        # Without integer affinity SQLite may convert the stored value; a primary key may be stored as the rowid.
        found[str(name)] = -2 if key or "INT" not in str(kind).upper() else int(place)
    if any(found.get(name, -2) < -1 for name in names):
        raise Odd
    return roots[0][0], {name: found[name] for name in names}
