"""Read the ranges and instants of nvprof's files, in which the start and the end of a range are separate rows."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ..tables.gathering import NO_TIME
from ..tables.scan import Column
from ..tables.sqlite import Database
from ..tables.strings import Strings
from ..tables.texts import texts_by_number

MARKER: Final = "CUPTI_ACTIVITY_KIND_MARKER"
# values of CUpti_ActivityFlag for markers
_INSTANT, START, _END = 1, 2, 4


def columns(database: Database, strings: Strings, table: str) -> dict[str, Column]:
    """The columns to read of the table of markers."""
    database.require(table, "_id_", "flags", "timestamp", "id", "name", "objectId")
    wanted = {
        "row": Column("_id_"),
        "flags": Column("flags"),
        "start_ns": Column("timestamp", NO_TIME),
        "id": Column("id", -1),
        "name": Column("name", -1, strings.dtype, strings.codes),
    }
    if database.has(table, "domain"):
        wanted["domain"] = Column("domain", -1, strings.dtype, strings.codes)
    return wanted


def rows(markers: dict[str, Any], strings: Strings, database: Database) -> dict[str, Any]:
    """The table `marks` of a Timeline. A range consists of two rows with the same id: its start, with the name, and
    its end."""
    order = np.lexsort((markers["row"], markers["start_ns"], markers["id"]))
    flags, numbers, times = markers["flags"][order], markers["id"][order], markers["start_ns"][order]
    ended = np.zeros(len(order), dtype=bool)
    ended[:-1] = (flags[:-1] & START != 0) & (flags[1:] & _END != 0) & (numbers[:-1] == numbers[1:])
    end = times.copy()
    end[:-1][ended[:-1]] = times[1:][ended[:-1]]
    begun = np.flatnonzero(flags & (START | _INSTANT))
    begun = begun[np.argsort(order[begun])]  # the order of the file's rows
    row = order[begun]
    pid, tid = _objects(database, markers["row"][row])
    domain = markers["domain"][row] if "domain" in markers else np.full(len(row), -1, dtype=np.int32)
    # nvprof writes the string "-- null --" as the domain of marks without a domain.
    domains = strings.categorical(domain, lambda text: "" if text == "-- null --" else text)
    return {
        "start_ns": times[begun],
        "end_ns": end[begun],
        "open": ~ended[begun] & (flags[begun] & _INSTANT == 0),
        "pid": pid,
        "tid": tid,
        "domain": domains.rename_categories({"(unknown)": ""}) if "" not in domains.categories else domains,
        "name": strings.categorical(markers["name"][row]),
    }


def _objects(database: Database, rows: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """(pid, tid) of marks. objectId holds both little-endian, 4 bytes each; the thread is signed as in the API rows."""
    hexes = Strings(*texts_by_number(database, MARKER, '"_id_"', 'hex("objectId")'))
    names = hexes.categorical(hexes.codes(rows))
    parts = []
    for text in names.categories:
        raw = bytes.fromhex(text)[:8].ljust(8, b"\0") if not text.startswith("(") else bytes(8)
        parts.append([int.from_bytes(raw[:4], "little"), int.from_bytes(raw[4:], "little", signed=True)])
    known = np.array(parts, dtype=np.int64).reshape(-1, 2)[names.codes]
    return known[:, 0], known[:, 1]
