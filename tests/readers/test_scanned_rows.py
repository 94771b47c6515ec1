"""Columns are read as Python's sqlite3 reads them, whatever the table holds and however it was made."""

import random
import sqlite3
from contextlib import closing

import pytest

from profiles.ground.errors import UnreadableRecording
from profiles.readers.tables.scan import Column, scan
from profiles.readers.tables.sqlite import Database

NULL = -(1 << 63)
# Of each size that SQLite stores, at both ends.
EDGES = [
    sign * (1 << bits) + more
    for bits in (0, 7, 8, 15, 16, 23, 24, 31, 32, 47, 48)
    for sign in (1, -1)
    for more in (-1, 0)
]
EDGES += [0, 1, (1 << 63) - 1, NULL + 1]
KINDS = ["small", "edges", "same", "nulls", "any"]
COLUMNS = {"start": "INTEGER NOT NULL DEFAULT 7", "finish": "INT", "streamId": "BIGINT", "graphNodeId": "integer"}


def value(rng, kind):
    if kind == "small":
        return rng.randrange(256)
    if kind == "edges":
        return rng.choice(EDGES)
    if kind == "nulls":
        return rng.choice([None, 0, 1, 5])
    return 42 if kind == "same" else rng.getrandbits(rng.randrange(1, 63)) * rng.choice([-1, 1])


def written(path, rng, *, odd=()):
    """A file of SQLite with a table of integers, among others, some of its rows deleted again. odd: values that are no
    integers, of which some rows have one."""
    kinds = {name: rng.choice(KINDS) for name in COLUMNS}
    kinds["start"] = "any"
    rows = rng.choice([1, 5, 3000])
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(f"PRAGMA page_size = {rng.choice([512, 1024, 4096, 65536])}")
        connection.execute(f"PRAGMA auto_vacuum = {rng.choice([0, 1])}")
        fields = ", ".join(f"{name!r} {kind}" for name, kind in COLUMNS.items())
        connection.execute(f"CREATE TABLE rows ({fields}, text TEXT)")
        connection.execute("CREATE TABLE others (words TEXT)")
        rowid = rng.choice([1, 120, 1 << 40])
        for _ in range(rows):
            numbers = [value(rng, kind) for kind in kinds.values()]
            if odd and rng.random() < 0.01:
                numbers[rng.randrange(1, 4)] = rng.choice(odd)
            connection.execute(
                "INSERT INTO rows(rowid, start, finish, streamId, graphNodeId, text) VALUES (?, ?, ?, ?, ?, ?)",
                (rowid, *numbers, "x" * rng.choice([0, 3, 60])),
            )
            if rng.random() < 0.05:
                connection.execute("INSERT INTO others VALUES (?)", ("y" * rng.choice([5, 3000]),))
            rowid += rng.choice([1, 1, 1, 3])
        if rng.random() < 0.5:
            connection.execute("DELETE FROM rows WHERE rowid % 7 = 3 AND rowid > 2")
        connection.commit()
    return path


def by_sqlite(path, names):
    """The rows of integers and NULL, and how many others there are."""
    left = iter(range(1000))
    with closing(sqlite3.connect(path)) as connection:
        # Damaged pages may lead in circles.
        connection.set_progress_handler(lambda: next(left, None) is None, 100_000)
        rows = connection.execute(f"SELECT {', '.join(names)} FROM rows").fetchall()
    good = [row for row in rows if all(one is None or isinstance(one, int) for one in row)]
    columns = [[NULL if row[at] is None else row[at] for row in good] for at in range(len(names))]
    return dict(zip(names, columns, strict=True)), len(rows) - len(good)


def scanned(path, names):
    wanted = {"rows": {name: Column(name, NULL) for name in names}}
    found = scan(Database(path), wanted)["rows"]
    return {name: found.columns[name].tolist() for name in names}, found.left_out


@pytest.mark.parametrize("seed", range(40))
def test_columns_of_integers_are_read_as_sqlite_reads_them(tmp_path, seed):
    path = written(tmp_path / "rows.sqlite", random.Random(seed))
    names = ["rowid", *COLUMNS]
    expected, left_out = by_sqlite(path, names)
    assert left_out == 0
    assert scanned(path, names) == (expected, 0)


@pytest.mark.parametrize("seed", range(20))
def test_rows_with_other_values_are_left_out_as_sqlite_tells_them(tmp_path, seed):
    path = written(tmp_path / "rows.sqlite", random.Random(seed), odd=[1.5, "text", b"bytes", "long " * 40])
    assert scanned(path, list(COLUMNS)) == by_sqlite(path, list(COLUMNS))


ODD_TABLES = {
    "a float in it": "CREATE TABLE rows (start INTEGER); INSERT INTO rows VALUES (1), (2.5)",
    "a column of floats": "CREATE TABLE rows (start REAL); INSERT INTO rows VALUES (1), (2)",
    "a key that is the rowid": "CREATE TABLE rows (start INTEGER PRIMARY KEY); INSERT INTO rows VALUES (1), (2)",
    "no rowid": "CREATE TABLE rows (start INTEGER PRIMARY KEY) WITHOUT ROWID; INSERT INTO rows VALUES (1), (2)",
    "a column made of others": "CREATE TABLE rows (a INT, start INT AS (a + 1)); INSERT INTO rows VALUES (1), (2)",
    "a column that came later": "CREATE TABLE rows (a INT); INSERT INTO rows VALUES (1), (2); "
    "ALTER TABLE rows ADD COLUMN start INT DEFAULT 9",
    "a long text before it": f"CREATE TABLE rows (a TEXT, start INT); INSERT INTO rows VALUES ('{'x' * 70}', 3)",
    "a rowid below 0": "CREATE TABLE rows (start INT); INSERT INTO rows(rowid, start) VALUES (-1, 3), (4, 5)",
    "a row longer than a page": f"CREATE TABLE rows (start INT, a TEXT); INSERT INTO rows VALUES (3, '{'x' * 9000}')",
}


@pytest.mark.parametrize("what", ODD_TABLES)
def test_odd_tables_are_read_as_sqlite_reads_them(tmp_path, what):
    path = tmp_path / "rows.sqlite"
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript(ODD_TABLES[what])
    assert scanned(path, ["start"]) == by_sqlite(path, ["start"])


@pytest.mark.parametrize("seed", range(60))
def test_of_a_damaged_file_nothing_is_read_that_sqlite_does_not_read(tmp_path, seed):
    rng = random.Random(seed)
    path = written(tmp_path / "rows.sqlite", rng)
    names = list(COLUMNS)
    data = bytearray(path.read_bytes())
    for _ in range(rng.choice([1, 20])):
        data[rng.randrange(100, len(data))] = rng.choice([0, 5, 13, 127, 128, 255, rng.randrange(256)])
    path.write_bytes(data)
    try:
        read = scanned(path, names)
    except UnreadableRecording as error:
        assert "\n" not in str(error)
        return
    try:
        expected = by_sqlite(path, names)
    except sqlite3.DatabaseError:
        pass  # a whole scan may find damage that the pieces' ranges pass by
    else:
        assert read == expected
