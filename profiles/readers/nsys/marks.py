"""Read the NVTX ranges and instants of Nsight Systems' exports."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from ..tables.gathering import NO_TIME, Gathered
from ..tables.scan import Column, present
from ..tables.sqlite import Database
from ..tables.strings import Strings, categorical, either
from ..tables.texts import texts_by_number
from . import message_sizes

NVTX: Final = "NVTX_EVENTS"

# Values of eventType in NVTX_EVENTS (ENUM_NSYS_EVENT_TYPE); types from 65 on were imported from text (NVTXT).
INSTANTS: Final = (34, 65)
RANGES: Final = (59, 60, 70, 71)
DOMAIN: Final = 75


def columns(database: Database, host: dict[str, Column]) -> dict[str, Column]:
    """Columns to read of NVTX_EVENTS: `host`, the columns of all host tables, and its own; {} if `host` is empty."""
    found = dict(host)
    if found:
        database.require(NVTX, "eventType", "text")
        found |= {"type": Column("eventType", -1), "row": Column("rowid")}
        optional = {
            "text": Column("textId", -1),
            "domain_id": Column("domainId", -1),
            "payload": Column("int64Value", -1),
        }
        found |= present(database, NVTX, optional)
    return found


def add(gathered: Gathered, marks: dict[str, Any], strings: Strings, database: Database) -> None:
    """Add the table `marks`, and `exchanges` if ranges say how many bytes collectives move."""
    own = Strings(*texts_by_number(database, NVTX, "rowid", "text"))
    row_codes = own.codes(marks["row"])
    shared = strings.codes(marks["text"]) if "text" in marks else np.full(len(row_codes), -1, dtype=np.int32)
    names = either(own.categorical(row_codes), strings.categorical(shared), row_codes >= 0)
    instants, ranges = np.isin(marks["type"], INSTANTS), np.isin(marks["type"], RANGES)
    opened = ranges & (marks["end_ns"] == NO_TIME)
    wanted = instants | ranges
    if "text" in marks:
        nameless = wanted & (marks["text"] >= 0) & (row_codes < 0) & (shared < 0)
        gathered.meet("missing-strings", NVTX, int(nameless.sum()))
    told = {
        "start_ns": marks["start_ns"],
        "end_ns": np.where(instants | opened, marks["start_ns"], marks["end_ns"]),
        "open": opened,
        "pid": marks["pid"],
        "tid": marks["tid"],
        "domain": _domains(marks["pid"], marks, names),
        "name": names,
    }
    exchanges = message_sizes.rows(database, marks | told, ranges)
    if len(exchanges["bytes"]):
        gathered.add("exchanges", exchanges)
    gathered.add("marks", {key: values[wanted] for key, values in told.items()})


def _domains(pid: NDArray[np.int64], marks: dict[str, Any], names: pd.Categorical) -> pd.Categorical:
    """The name of each mark's domain, "" if it has none; events of type 75 name the domains of their process."""
    if "domain_id" not in marks:
        return categorical(np.zeros(len(pid), dtype=np.int8), [""])
    process, pids = pd.factorize(pid)
    number, ids = pd.factorize(marks["domain_id"])
    codes, pairs = pd.factorize(process * len(ids) + number)
    named = np.flatnonzero(marks["type"] == DOMAIN)
    distinct = names.categories.tolist()  # rows with the same name share one string
    known = {(int(pid[row]), int(marks["domain_id"][row])): distinct[names.codes[row]] for row in named}
    texts = [known.get((int(pids[pair // len(ids)]), int(ids[pair % len(ids)])), "") for pair in pairs]
    return categorical(codes, texts)
