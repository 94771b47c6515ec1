"""Read the texts of an SQLite table by number, and refuse texts that are longer than any profiler writes."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ...ground.errors import UnreadableRecording
from .sqlite import ERRORS, LENGTH, Database, arrow_cursor, end_circles, quoted, uri

# Bytes of a text; a longer one is no name. The longest in real recordings, arguments that PyProf wrote, have 100 KB.
_LONGEST_TEXT: Final = 16 << 20
# Python's sqlite3 reads up to this many rows faster than Arrow's driver opens a connection.
_FEW_TEXTS: Final = 1_000
# While a table's texts are read, they take twice their size in memory. Real recordings have up to 100 MB.
_MOST_TEXT: Final = 768 << 20


def texts_by_number(database: Database, table: str, key: str, value: str) -> tuple[NDArray[np.int64], Any]:
    """The texts of a table by number: (int64 numbers, Arrow array of binary, since a text may not be valid UTF-8).
    `key`, `value`: SQL expressions for the number and for the text."""
    import pyarrow as pa

    utf_8 = database.query("PRAGMA encoding") == [("UTF-8",)]
    sql = (
        f"SELECT {key}, CAST({value} AS BLOB) FROM {quoted(database.stored(table))} WHERE typeof({key}) = 'integer' "
        f"AND {value} IS NOT NULL"
    )
    if utf_8 and database.size < _LONGEST_TEXT:  # the file is too small for a text that is too long
        few = database.query(f"{sql} LIMIT {_FEW_TEXTS + 1}")
        if len(few) <= _FEW_TEXTS:
            numbers = np.array([number for number, _ in few], dtype=np.int64)
            return numbers, pa.array([text for _, text in few], pa.large_binary())
    _refuse_long(database, table, value)
    if not utf_8:  # not UTF-8, which profilers write: another tool has rewritten this file
        rows = database.query(f"SELECT {key}, {value} FROM {quoted(database.stored(table))}")
        told = [(number, text) for number, text in rows if type(number) is int and text is not None]
        raw = [text if isinstance(text, bytes) else str(text).encode("utf-8", "replace") for _, text in told]
        return np.array([number for number, _ in told], dtype=np.int64), pa.array(raw, pa.large_binary())
    try:
        with arrow_cursor(database.path) as cursor:
            cursor.execute(sql)
            found = cursor.fetch_arrow_table()
    except OSError as error:
        raise database.damaged(error) from None
    if not found.num_rows:
        return np.array([], dtype=np.int64), pa.array([], pa.large_binary())
    return found.column(0).to_numpy(), found.column(1).cast(pa.large_binary()).combine_chunks()


def _refuse_long(database: Database, table: str, value: str) -> None:
    """Raises UnreadableRecording for a text longer than _LONGEST_TEXT. Also if all texts of the column together are
    larger than the file or than _MOST_TEXT."""
    size = database.size
    most = min(size, _MOST_TEXT)
    with closing(sqlite3.connect(uri(database.path), uri=True)) as connection:
        connection.text_factory = bytes
        end_circles(connection, database.size)
        if hasattr(connection, "setlimit"):  # Python 3.10 has no setlimit
            connection.setlimit(LENGTH, _LONGEST_TEXT)
        try:
            stored = quoted(database.stored(table))
            answer = connection.execute(f"SELECT length(CAST({value} AS BLOB)) FROM {stored}")
            told = 0
            for (length,) in answer:
                told += length or 0
                if told > most:
                    break
        except sqlite3.DataError:
            problem = f"a text in {table} is longer than {_LONGEST_TEXT >> 20} MiB: no profiler writes such names"
            raise UnreadableRecording(database.path, problem, "record again, with shorter names of ranges") from None
        except ERRORS as error:
            raise database.damaged(error) from None
    if told > size:
        raise database.damaged("interrupted")
    if told > most:
        problem = f"the texts in {table} take more than {_MOST_TEXT >> 20} MiB together: no profiler writes such names"
        raise UnreadableRecording(database.path, problem, "record again, with shorter names of ranges, or fewer")
