"""Recordings with a few values changed into odd ones, each in a way that its format allows."""

from __future__ import annotations

import gzip
import io
import json
import math
import random
import sqlite3
import tarfile
import zipfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

from google.protobuf.message import DecodeError

from profiles.readers import xplane

from . import documents

DAY_NS = 86_400 * 10**9
TIMES = (0, 1, -5, 2**40, 3 * DAY_NS, -3 * DAY_NS, 400 * DAY_NS, 2**62, -(2**63), 2**63 - 1)
LONG = (100_000, 100_000, 3_000_000, 20_000_000)  # letters
TEXTS = ("\x1b]0;x\x07", "<script>", "step 3", "7", "", b"\xff\xfe", 0.5, None, -1, 2**40)
CELLS = (b"", b"-1", b"0", b"1e300", b"nan", b"9" * 30, b"259200000", b'"', b"x" * 100_000, b"GPU (99999999999)")
_PAGES = (5, 13)  # of a table, by their first byte


def changed(path: Path, dice: random.Random) -> None:
    """Changes the file in place; one in ten is put into an archive, or packed."""
    head = path.read_bytes()[:16]
    if dice.randrange(8) == 0:
        bytes_changed(path, dice)
    elif head.startswith(b"SQLite format 3\0"):
        tables_changed(path, dice)
    elif head.lstrip()[:1] in (b"{", b"["):
        trace_changed(path, dice)
    elif head[:1] == b"\n":
        message_changed(path, dice)
    else:
        cells_changed(path, dice)
    if dice.randrange(10) == 0:
        packed(path, dice)


def bytes_changed(path: Path, dice: random.Random) -> None:
    data = bytearray(path.read_bytes())
    for _ in range(dice.randrange(1, 4)):
        at = dice.randrange(len(data) + 1)
        data[at : at + dice.choice((0, 1, 1, 8))] = dice.randbytes(dice.choice((0, 1, 1, 4)))
    path.write_bytes(data[: dice.randrange(len(data) + 1)] if dice.randrange(6) == 0 else data)


def tables_changed(path: Path, dice: random.Random) -> None:
    with closing(sqlite3.connect(path)) as connection:
        for _ in range(dice.choice((1, 1, 2, 3))):
            try:
                rows_changed(connection, dice)
            except (sqlite3.Error, OverflowError, MemoryError):  # the last of SQLite's, of damaged pages
                connection.rollback()
    if dice.randrange(6) == 0:
        pages_shared(path, dice)


def rows_changed(connection: sqlite3.Connection, dice: random.Random) -> None:
    tables = [name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
    table = dice.choice([name for name in tables if not name.startswith("sqlite_")])
    columns = [row[1] for row in connection.execute(f'PRAGMA table_info("{table}")')]
    column = dice.choice([name for name in columns if name in ("start", "end")] * 5 + columns)
    some = f'(SELECT rowid FROM "{table}" ORDER BY random() LIMIT {dice.choice((1, 1, 3, 1000))})'
    how = dice.randrange(8)
    if how == 0:
        connection.execute(f'DELETE FROM "{table}"')
    elif how == 1:
        connection.execute(f'DROP TABLE "{table}"')
    elif how == 2 and "contextId" in columns:
        connection.execute(f'UPDATE "{table}" SET contextId = contextId + 1 WHERE rowid IN {some}')
    elif how == 3:
        text = dice.choice((*TEXTS, "x" * dice.choice(LONG)))
        connection.execute(f'UPDATE "{table}" SET "{column}" = ? WHERE rowid IN {some}', (text,))
    elif how == 4 and {"start", "end"} <= set(columns):
        away = dice.choice(TIMES)
        connection.execute(
            f'UPDATE "{table}" SET start = start + ?, "end" = "end" + ? WHERE rowid IN {some}', (away, away)
        )
    else:
        connection.execute(f'UPDATE "{table}" SET "{column}" = ? WHERE rowid IN {some}', (dice.choice(TIMES),))
    connection.commit()


def pages_shared(path: Path, dice: random.Random) -> None:
    """All places of a page of a table lead to its first row, or its first page, and there are more of them."""
    data = bytearray(path.read_bytes())
    size = int.from_bytes(data[16:18], "big")
    size = 65536 if size == 1 else max(size, 512)
    found = [at for at in range(size, len(data), size) if data[at] in _PAGES]  # not the first: it lists the tables
    if not found:
        return
    at = dice.choice(found)
    places = at + (12 if data[at] == 5 else 8)
    count = dice.choice((2, 7, (size - 64) // 2))
    first = bytes(data[places : places + 2])
    data[at + 3 : at + 5] = count.to_bytes(2, "big")
    data[places : min(places + 2 * count, at + size)] = (first * count)[: at + size - places]
    path.write_bytes(data)


def trace_changed(path: Path, dice: random.Random) -> None:
    try:
        document = json.loads(path.read_bytes())
    except (ValueError, RecursionError):
        return bytes_changed(path, dice)
    path.write_bytes(documents.written(documents.changed(times_changed(document, dice), dice), dice))
    return None


def times_changed(document: Any, dice: random.Random) -> Any:
    """Of a trace the times of some events."""
    events = document.get("traceEvents") if isinstance(document, dict) else document
    timed = [event for event in events or () if isinstance(event, dict) and "ts" in event]
    for event in dice.sample(timed, min(len(timed), dice.choice((0, 1, 1, 5, 50)))):
        key = dice.choice(("ts", "ts", "dur"))
        odd = (*TIMES, 0.0005, 2**63, math.nan, -math.inf)
        event[key] = dice.choice(odd) if dice.randrange(2) else dice.choice(TIMES) / 1000
    return document


def cells_changed(path: Path, dice: random.Random) -> None:
    """Of a printed table."""
    lines = path.read_bytes().split(b"\n")
    for _ in range(dice.choice((1, 1, 5, 50))):
        at = dice.randrange(len(lines))
        cells = lines[at].split(b",")
        cells[dice.randrange(len(cells))] = dice.choice((*CELLS, dice.choice(cells)))
        lines[at] = b",".join(cells) if dice.randrange(10) else b""
    path.write_bytes(b"\n".join(lines))


def message_changed(path: Path, dice: random.Random) -> None:
    """Of a profile of XLA's: numbers, texts and lists of some of its messages."""
    try:
        space = xplane.message().FromString(path.read_bytes())
    except (DecodeError, ValueError):
        return bytes_changed(path, dice)
    inside = list(messages(space))
    for _ in range(dice.choice((1, 1, 3, 20))):
        one = dice.choice(inside)
        if not (told := one.ListFields()):
            continue
        field, value = dice.choice(told)
        if isinstance(value, str):
            setattr(one, field.name, dice.choice(("", "x" * dice.choice(LONG), "/device:GPU:0", "Stream #1", "step 3")))
        elif isinstance(value, int):
            low, high = (0, 2**64) if field.cpp_type in (3, 4) else (-(2**63), 2**63)
            setattr(one, field.name, min(max(dice.choice(TIMES), low), high - 1))
        else:
            one.ClearField(field.name)
    path.write_bytes(space.SerializeToString())
    return None


def messages(one: Any) -> Iterator[Any]:
    """The message and those within it."""
    yield one
    for field, value in one.ListFields():
        if field.message_type is None:
            continue
        values = value.values() if hasattr(value, "values") else value if hasattr(value, "__len__") else [value]
        for inner in values:
            if hasattr(inner, "ListFields"):
                yield from messages(inner)


def packed(path: Path, dice: random.Random) -> None:
    """In an archive whose headers may be odd, or compressed once or twice."""
    data, whole = path.read_bytes(), io.BytesIO()
    how = dice.randrange(4)
    if how == 0:
        for _ in range(dice.choice((1, 1, 2, 4))):
            data = gzip.compress(data, 1)
    elif how == 1:
        with zipfile.ZipFile(whole, "w") as file:
            file.writestr("recording", data)
        data = whole.getvalue()
    else:
        with tarfile.open(fileobj=whole, mode="w:gz" if how == 2 else "w") as archive:
            for _ in range(dice.choice((1, 1, 3))):
                member = tarfile.TarInfo("d/" * dice.choice((0, 1, 3000)) + "recording")
                key = dice.choice(("path", "size", "mtime", "hdrcharset", "GNU.sparse.map", "GNU.sparse.realsize", "a"))
                value = dice.choice(("", "-5", "inf", "9" * 30, "1 " * 20_000, "0," * 500, "../../a", "BINARY"))
                member.size, member.pax_headers = len(data), {key: value} if dice.randrange(3) else {}
                archive.addfile(member, io.BytesIO(data))
        data = whole.getvalue()
    path.write_bytes(data)
