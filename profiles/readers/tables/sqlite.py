"""Read SQLite recordings fast, and without changing the file or its directory.

Arrow's ADBC driver reads a table several times faster than Python's sqlite3, and on several threads. Files are opened
with `immutable=1`: SQLite then takes no lock, rolls back no journal and leaves no -wal or -shm beside the file.
"""

from __future__ import annotations

import os
import re
import sqlite3
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

from ...ground.errors import UnreadableRecording
from ...ground.files import open_regular

MAGIC: Final = b"SQLite format 3\0"
_HOT_JOURNAL: Final = bytes.fromhex("d9d505f920a163d7")

_TABLES_READ: Final = (
    "CUPTI_",
    "NVTX_",
    "StringIds",
    "StringTable",
    "TARGET_INFO_",
    "META_DATA_",
    "EXPORT_META_",
    "Version",
)
LENGTH: Final = 0  # SQLITE_LIMIT_LENGTH
# Longer messages are cut, because SQLite's error repeats the whole statement that it cannot parse.
_LONGEST_MESSAGE: Final = 300

# In a damaged file pages may point to each other in a loop, so that a query never ends. A row takes at least five bytes
# and a query a few steps (SQLite's virtual machine instructions) per row: a query with more steps, time, rows or bytes
# than a file of this size can need is stopped.
_STEPS_PER_BYTE: Final = 16
_FEW_STEPS: Final = 10_000_000
_STEPS_AT_ONCE: Final = 1000  # steps between two checks of the limits; each step may copy a long text
_FEW_SECONDS, _SECONDS_PER_BYTE = 10.0, 1 / 5_000_000  # of CPU
_FEW_ROWS, _ROWS_PER_BYTE = 10_000, 1 / 4
_FEW_BYTES: Final = 1 << 20
_LONGEST: Final = 1_000_000_000  # the largest limit that SQLite accepts
_CIRCLES: Final = "its pages or rows form a loop: they hold more than a file of this size can"

_VERSION: Final = r"_V(\d{1,3})$"

_HEADER_BYTES: Final = 100
# Errors that reading a damaged file may raise. UnicodeError: SQLite's message quotes damaged bytes. MemoryError: a
# damaged length asks for terabytes.
ERRORS: Final = (sqlite3.Error, OverflowError, UnicodeError, MemoryError)


class Database:
    """An SQLite file opened for reading only. `tables`: column names by table. `size`: bytes of the file.

    The thread that made the object keeps one connection for all its queries, since opening a connection takes longer
    than reading a few rows; other threads open one per query. After `close` the next query opens a new connection.
    """

    def __init__(self, path: Path) -> None:
        self._connection: sqlite3.Connection | None = None
        self._thread = threading.get_ident()
        check(path)
        self.path, self.size = path, path.stat().st_size
        self.tables: dict[str, tuple[str, ...]] = {}
        try:
            self._look()
        except UnreadableRecording:
            self.close()  # the error's traceback keeps this object alive
            raise
        self._stored = {plain(table): table for table in sorted(self.tables, key=_version)}

    def _look(self) -> None:
        with self._connected() as query:
            names = query("SELECT name, type, sql FROM sqlite_master WHERE type IN ('table', 'view')")
            for name, kind, sql in names:
                if isinstance(name, str):
                    if kind == "view" or str(sql).upper().startswith("CREATE VIRTUAL"):
                        self._refuse_code(name)
                        continue
                    columns = query(f"PRAGMA table_info({quoted(name)})")
                    self.tables[name] = tuple(str(row[1]) for row in columns)

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
        self._connection = None

    def __del__(self) -> None:
        self.close()

    def _refuse_code(self, name: str) -> None:
        """Raises UnreadableRecording for a view with a profiler table's name: it is a query, and may run for ever."""
        if name.startswith(_TABLES_READ):
            raise UnreadableRecording(
                self.path,
                f"{name} is a view or a virtual table, not the profiler's own",
                "give the file that the profiler wrote, or export it again with `nsys export -t sqlite`",
            )

    def query(self, sql: str, values: Sequence[object] = ()) -> list[tuple[Any, ...]]:
        """All rows of a query's answer, for small tables. Bytes that are not UTF-8 become U+FFFD."""
        with self._connected() as query:
            return query(sql, values)

    @contextmanager
    def _connected(self) -> Iterator[Callable[..., list[tuple[Any, ...]]]]:
        """A function that runs queries, all on the same connection. Errors of SQLite become UnreadableRecording."""
        try:
            if self._thread != threading.get_ident():
                with closing(self._opened()) as connection:
                    yield self._asking(connection)
                return
            if self._connection is None:
                self._connection = self._opened()
            yield self._asking(self._connection)
        except ERRORS as error:
            raise self.damaged(error) from None

    def _opened(self) -> sqlite3.Connection:
        connection = sqlite3.connect(uri(self.path), uri=True, check_same_thread=False)  # other threads may close it
        connection.text_factory = _text
        return connection

    def _asking(self, connection: sqlite3.Connection) -> Callable[..., list[tuple[Any, ...]]]:
        end_circles(connection, self.size)
        return lambda *query: self._all(connection.execute(*query))

    def stored(self, table: str) -> str:
        """The name of the table's newest version in the file. When a table's schema changes, nsys writes NAME_V2 or
        NAME_V3, at times beside NAME."""
        return self._stored.get(table, table)

    def _all(self, answer: sqlite3.Cursor) -> list[tuple[Any, ...]]:
        """All rows of a cursor. Raises UnreadableRecording if there are more than the file can hold."""
        most_rows, most_bytes = _FEW_ROWS + self.size * _ROWS_PER_BYTE, _FEW_BYTES + self.size
        found: list[tuple[Any, ...]] = []
        told = 0
        for row in answer:  # after each row, since one row's text may be as long as the file
            found.append(row)
            for value in row:
                if isinstance(value, (str, bytes)):
                    told += len(value)
            if told > most_bytes or len(found) > most_rows:
                raise self.damaged("interrupted")
        return found

    def has(self, table: str, *columns: str) -> bool:
        return set(columns) <= set(self.tables.get(self.stored(table), ())) and self.stored(table) in self.tables

    def require(self, table: str, *columns: str) -> None:
        """Raises UnreadableRecording if the table is missing, or lacks a column that every known schema has."""
        table = self.stored(table)
        if table not in self.tables:
            problem = f"there is no table {table}"
        elif missing := [column for column in columns if column not in self.tables[table]]:
            problem = f"table {table} has no column {', '.join(missing)}"
        else:
            return
        remedy = "record it again (nsys: or export it again with `nsys export -t sqlite`), or report the file"
        raise UnreadableRecording(self.path, f"{problem}: not a schema that this version knows", remedy)

    def first(self, table: str, names: Iterable[str]) -> str | None:
        """The first of `names` that is a column of the table; None if the table has none of them."""
        return next((name for name in names if self.has(table, name)), None)

    def damaged(self, error: object) -> UnreadableRecording:
        if isinstance(error, MemoryError):
            error = "SQLite needs more memory than there is"
        said = str(error).removeprefix("[SQLite] ").strip()[:_LONGEST_MESSAGE]
        return UnreadableRecording(
            self.path,
            f"SQLite cannot read it ({_CIRCLES if said == 'interrupted' else said})",
            "copy or export it again; `sqlite3 FILE .recover` saves what it can",
        )


def plain(table: str) -> str:
    """The name of a table without its version, see `Database.stored`."""
    return re.sub(_VERSION, "", table)


def _version(table: str) -> tuple[int, str]:
    found = re.search(_VERSION, table)
    return int(found[1]) if found else 0, table


def is_device(value: object) -> bool:
    """True if the value can be a device number (-1: none); a damaged table may hold any value."""
    return type(value) is int and -1 <= value < 1 << 31


def uri(path: Path) -> str:
    """The file's name for SQLite, which reads the file alone. mode=rw: SQLite neither makes a file that is gone, nor
    waits for the other end of a pipe that has taken its place."""
    return "file:" + quote(os.fsencode(path.absolute())) + "?immutable=1&mode=rw"


def table_names(path: Path) -> frozenset[str]:
    """Names of all tables, views and indexes in an SQLite file; empty if the file cannot be read."""
    try:
        with closing(sqlite3.connect(uri(path), uri=True)) as connection:
            connection.text_factory = _text
            return frozenset(str(name) for (name,) in connection.execute("SELECT name FROM sqlite_master"))
    except ERRORS:
        return frozenset()


def end_circles(connection: sqlite3.Connection, size: int) -> None:
    """Limit the connection to the steps and the CPU time that a file of `size` bytes can need. A query beyond them
    raises sqlite3.OperationalError; a value longer than the file raises sqlite3.DataError (from Python 3.11 on)."""
    if hasattr(connection, "setlimit"):  # Python 3.10 has no setlimit
        connection.setlimit(LENGTH, min(_FEW_BYTES + size, _LONGEST))
    left = (_FEW_STEPS + _STEPS_PER_BYTE * size) // _STEPS_AT_ONCE
    until = time.thread_time() + _FEW_SECONDS + size * _SECONDS_PER_BYTE

    def over() -> bool:
        nonlocal left
        left -= 1
        return left < 0 or time.thread_time() > until

    connection.set_progress_handler(over, _STEPS_AT_ONCE)


@contextmanager
def arrow_cursor(path: Path) -> Iterator[Any]:
    """A cursor of Arrow's driver. Raises OSError if the file is damaged."""
    import adbc_driver_manager.dbapi
    import adbc_driver_sqlite.dbapi

    try:
        with adbc_driver_sqlite.dbapi.connect(uri(path)) as connection, connection.cursor() as cursor:
            yield cursor
    except (UnicodeError, adbc_driver_manager.dbapi.Error) as error:
        # At Ctrl-C the driver cancels its query, raises that SQLite cannot, and names the interrupt as the cause.
        if isinstance(error.__cause__, KeyboardInterrupt):
            raise KeyboardInterrupt from None
        raise OSError(str(error)) from None


def check(path: Path) -> None:
    """Raises UnreadableRecording if the file is cut short, or has changes left in a -wal or -journal file."""
    for suffix, hot in (("-wal", b""), ("-journal", _HOT_JOURNAL)):
        beside = path.with_name(path.name + suffix)
        try:
            with open_regular(beside) as file:
                start = file.read(8)
        except OSError:
            continue
        if start and start.startswith(hot):
            remedy = (
                f"let the program that writes it finish, or on a copy of both files run `sqlite3 {path.name} "
                "'PRAGMA wal_checkpoint(TRUNCATE); VACUUM'` and give that"
            )
            raise UnreadableRecording(path, f"the database's last changes are still in {beside.name}", remedy)
    header = header_of(path)
    page = int.from_bytes(header[16:18], "big")
    pages = int.from_bytes(header[28:32], "big")
    expected = (65536 if page == 1 else page) * pages
    # The header's page count is valid only if the last change wrote it (SQLite file format, 1.3.7).
    if header[24:28] == header[92:96] and path.stat().st_size < expected:
        raise UnreadableRecording(
            path, f"cut short: {path.stat().st_size:,} of {expected:,} bytes", "copy or export it again"
        )


def header_of(path: Path) -> bytes:
    """The first 100 bytes of a database. Raises UnreadableRecording if they are not SQLite's header."""
    with open_regular(path) as file:
        header = file.read(_HEADER_BYTES)
    if not header.startswith(MAGIC) or len(header) < _HEADER_BYTES:
        raise UnreadableRecording(path, "its SQLite header is incomplete", "copy or export it again")
    return header


def _text(value: bytes) -> str:
    return value.decode("utf-8", "replace")


def quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
