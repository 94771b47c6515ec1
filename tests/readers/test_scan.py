"""Ids are kept in a small type, and come out whole where they outgrow it."""

import sqlite3
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import numpy as np
import psutil
import pytest

from profiles import read
from profiles.ground.errors import UnreadableRecording
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


@pytest.mark.parametrize("where", WIDE)
def test_ids_that_outgrow_the_usual_type_are_read_as_sqlite_has_them(where, tmp_path):
    path = tmp_path / "recording.sqlite"
    values = [WIDE[where](row) for row in range(ROWS)]
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE rows (correlationId INTEGER)")
        connection.executemany("INSERT INTO rows VALUES (?)", ((value,) for value in values))
        connection.commit()
    wanted = {"rows": {"correlation": Column("correlationId", -1, usual="int32")}}
    found = scan(Database(path), wanted)["rows"].columns["correlation"]
    assert found.tolist() == values
    assert found.dtype == (np.int32 if where == "nowhere" else np.int64)


def test_a_database_asks_by_one_connection_a_thread_and_lets_go_of_the_file(tmp_path) -> None:
    path = tmp_path / "one.sqlite"
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("CREATE TABLE rows (a INTEGER)")
        connection.executemany("INSERT INTO rows VALUES (?)", [(1,), (2,)])
    database, own = Database(path), psutil.Process()

    def held() -> int:
        return sum(file.path == str(path) for file in own.open_files())

    for _ in range(3):
        assert database.query("SELECT sum(a) FROM rows") == [(3,)]
        assert held() == 1
    with ThreadPoolExecutor(1) as other:
        assert other.submit(database.query, "SELECT count(*) FROM rows").result() == [(2,)]
    assert held() == 1
    del database
    assert held() == 0


@pytest.mark.parametrize(
    "table", ["StringIds (a)", "CUPTI_ACTIVITY_KIND_KERNEL (start); CREATE VIEW NVTX_ AS SELECT 1"]
)
def test_a_recording_that_is_refused_is_let_go_of_while_its_error_is_held(table, tmp_path) -> None:
    path = tmp_path / "one.sqlite"
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript(f"CREATE TABLE {table}")
        if "StringIds" not in table:
            connection.execute("CREATE TABLE StringIds (id INTEGER, value TEXT)")
        connection.commit()
    with pytest.raises(UnreadableRecording) as held:
        read(path)
    assert held.value.__traceback__ is not None
    assert str(path) not in [file.path for file in psutil.Process().open_files()]
