"""Ids are kept in a small type, and come out whole where they outgrow it."""

import sqlite3
from contextlib import closing

import numpy as np
import pytest

from profiles.readers.tables.scan import Column, scan
from profiles.readers.tables.sqlite import Database

ROWS = 120_000
# Numbers that CUPTI writes: small ones, and those that a long run or a driver's handle reaches.
WIDE = {
    "at the end": lambda row: row if row < ROWS - 5 else (1 << 31) + row,
    "at the start": lambda row: (1 << 40) + row if row < 5 else row,
    "all": lambda row: (1 << 33) + row,
    "all the same": lambda row: 1 << 33,
    "in turn": lambda row: -(1 << 31) - 1 if row % 1000 == 0 else row,
    "nowhere": lambda row: row,
}


@pytest.mark.parametrize("plain", [True, False])
@pytest.mark.parametrize("where", WIDE)
def test_ids_that_outgrow_the_usual_type_are_read_as_sqlite_has_them(where, plain, tmp_path):
    path = tmp_path / "recording.sqlite"
    values = [WIDE[where](row) for row in range(ROWS)]
    with closing(sqlite3.connect(path)) as connection:
        # Of another affinity SQLite has to read the column, else it comes out of the pages.
        connection.execute(f"CREATE TABLE rows (correlationId {'INTEGER' if plain else 'NUMERIC'})")
        connection.executemany("INSERT INTO rows VALUES (?)", ((value,) for value in values))
        connection.commit()
    wanted = {"rows": {"correlation": Column("correlationId", -1, usual="int32")}}
    found = scan(Database(path), wanted)["rows"].columns["correlation"]
    assert found.tolist() == values
    assert found.dtype == (np.int32 if where == "nowhere" else np.int64)
