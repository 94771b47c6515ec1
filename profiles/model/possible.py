"""Leave out rows with impossible times: not set, with an end before the start, far outside of the recording's
session. Leave out operations that a file holds twice.

A profiler writes start = end = 0 for an event that it could not time; damage and clocks of other epochs give ends
before starts, and times of other years. `timeline.make` applies the same rules to every format. Few formats say
when their session began and ended, so the rows decide: a row more than a day from all others is outside of the
session, unless enough other rows lie beside it (`_sessions`). A session may pause for a weekend, but then both
the GPU and the host have rows on either side. Gaps under a day are kept, and so are operations of length 0, since
profilers that count whole microseconds write many of these. None of 8 097 real recordings holds an operation twice;
a file that was joined from two does.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    import pandas as pd

Int64s = NDArray[np.int64]
Bools = NDArray[np.bool_]

OPERATIONS: Final = ("kernels", "graphs", "copies", "memsets")
PLACED: Final = ("device", "context", "stream", "pid", "correlation")  # place and launch call of an operation

# Tables in which start = end = 0 is a valid time: an instant at the very beginning.
_INSTANTS: Final = ("marks", "exchanges", "phases")
# Times must be within this limit, 73 years, so that their differences are far from the limits of int64.
LIMIT_NS: Final = 1 << 61
DAY_NS: Final = 86_400 * 10**9
# A stretch of rows belongs to the session if it has at least 1 / _PART as many starts as the main stretch.
_PART: Final = 10

UNTIMED: Final = "have no usable times"
AT_ZERO: Final = "start and end at 0"
ENDS_EARLY: Final = "end before they start"
OUTSIDE: Final = "lie outside of the session"
TWICE: Final = "stand in the file twice"
_SPREADS: Final = np.int64(-7046029254386353131)  # 2^64 divided by the golden ratio: spreads numbers over 64 bits


@dataclass(slots=True)
class LeftOut:
    """Rows that were left out: their counts by (reason, table), and the GPU operations among them. The table, place and
    launch call of such an operation are valid, although its times are not."""

    counts: Counter[tuple[str, str]] = field(default_factory=Counter)
    operations: list[pd.DataFrame] = field(default_factory=list)


def possible(tables: Mapping[str, pd.DataFrame]) -> tuple[dict[str, pd.DataFrame], LeftOut]:
    """(the tables without rows that have impossible times, the rows left out). Times must be on the recording's own
    clock, on which 0 means that no time was set."""
    left_out = LeftOut()
    found = dict(tables)
    timed = [name for name, table in tables.items() if "start_ns" in table and len(table)]
    for name in timed:
        start, end = _times(found[name])
        bad: dict[str, Bools] = {}  # filled only if needed, since most tables have no bad rows
        if min(start.min(), end.min()) <= -LIMIT_NS or max(start.max(), end.max()) >= LIMIT_NS:
            bad[UNTIMED] = ~((start > -LIMIT_NS) & (end > -LIMIT_NS) & (start < LIMIT_NS) & (end < LIMIT_NS))
        if (end < start).any():
            bad[ENDS_EARLY] = end < start
        if name not in _INSTANTS and not start.all():
            bad[AT_ZERO] = (start == 0) & (end == 0)
        _leave_out(found, name, bad, left_out)
    timed = [name for name in timed if len(found[name])]
    if timed and _reach(found, timed) > DAY_NS:
        for name, outside in _outside(found, timed).items():
            _leave_out(found, name, {OUTSIDE: outside}, left_out)
    for name in OPERATIONS:
        if len(found.get(name, ())):
            _leave_out(found, name, {TWICE: _again(found[name])}, left_out)
    return found, left_out


def first_start(tables: Mapping[str, pd.DataFrame], names: tuple[str, ...]) -> int:
    """The earliest start in these tables, in ns; 0 if they have no rows."""
    return min(
        (int(tables[name]["start_ns"].min()) for name in names if name in tables and len(tables[name])), default=0
    )


def _times(table: pd.DataFrame) -> tuple[Int64s, Int64s]:
    return table["start_ns"].to_numpy(), table["end_ns"].to_numpy()


def _leave_out(tables: dict[str, pd.DataFrame], name: str, bad: Mapping[str, Bools], left_out: LeftOut) -> None:
    """Remove the bad rows from the table; count each under the first reason that holds."""
    if not bad:
        return
    good = np.ones(len(tables[name]), bool)
    for reason, rows in bad.items():
        if count := int((rows & good).sum()):
            left_out.counts[reason, name] += count
            good &= ~rows
    if not good.all():
        if name in OPERATIONS and TWICE not in bad:
            left_out.operations.append(tables[name].loc[~good, list(PLACED)].assign(table=name))
        tables[name] = tables[name][good].reset_index(drop=True)


def _again(table: pd.DataFrame) -> Bools:
    """True for each operation that equals one in an earlier row. Operations of length 0 are never such."""
    start, end = _times(table)
    key = start * _SPREADS + end  # of equal operations equal; of few others
    for column in ("correlation", "device", "stream"):
        if column in table:
            key = key * _SPREADS + table[column].to_numpy()
    ordered = np.sort(key)
    several = ordered[1:][ordered[1:] == ordered[:-1]]
    found = np.zeros(len(table), bool)
    if len(several):
        rows = np.flatnonzero(np.isin(key, several) & (end > start))
        found[rows] = table.iloc[rows].duplicated()
    return found


def _reach(tables: Mapping[str, pd.DataFrame], names: list[str]) -> int:
    starts = [tables[name]["start_ns"].to_numpy() for name in names]
    lasts = [start.max() for start in starts]
    lasts += [tables[name]["end_ns"].to_numpy().max() for name in names if name in OPERATIONS]
    return int(max(lasts)) - int(min(start.min() for start in starts))


def _outside(tables: Mapping[str, pd.DataFrame], names: list[str]) -> dict[str, Bools]:
    """For each table, True for the rows outside of the session. Host ranges may begin before the session or span all of
    it; operations must begin and end in it."""
    first, last = _sessions(tables, names)
    found = {}
    for name in names:
        start, end = _times(tables[name])
        part = np.maximum(np.searchsorted(first, start, side="right") - 1, 0)
        within = (start >= first[part]) & (start <= last[part])
        if name in OPERATIONS:
            found[name] = ~(within & (end - last[part] <= DAY_NS))
        else:
            ahead = np.minimum(np.searchsorted(first, start), len(first) - 1)
            found[name] = ~(within | ((start <= first[ahead]) & (first[ahead] <= end)))
    return found


def _sessions(tables: Mapping[str, pd.DataFrame], names: list[str]) -> tuple[Int64s, Int64s]:
    """First and last start of each stretch of the session. Within a stretch no two successive starts are over a day
    apart.

    The main stretch is the one with most starts of operations (of any rows, if there are no operations). Another
    stretch belongs to the session if it holds rows of both a GPU and the host, or a tenth as many starts as the
    main one. A stretch with a single distinct start does not: rows with the same wrong time look so.
    """
    starts = [np.unique(tables[name]["start_ns"].to_numpy()) for name in names]
    every = np.unique(np.concatenate(starts))
    opens = np.flatnonzero(np.append(True, np.diff(every) > DAY_NS))
    first, last = every[opens], every[np.append(opens[1:], len(every)) - 1]

    def count(chosen: list[Int64s]) -> Int64s:
        distinct = np.unique(np.concatenate(chosen)) if chosen else np.empty(0, np.int64)
        return np.bincount(np.searchsorted(first, distinct, side="right") - 1, minlength=len(first))

    of_gpu = count([start for name, start in zip(names, starts, strict=True) if name in OPERATIONS])
    of_host = count([start for name, start in zip(names, starts, strict=True) if name not in OPERATIONS])
    of_any = count([every])
    main = int(np.argmax(of_gpu if of_gpu.any() else of_any))
    kept = ((of_gpu > 0) & (of_host > 0)) | (of_any * _PART >= of_any[main])
    kept &= of_any > 1
    kept[main] = True
    return first[kept], last[kept]
