"""Collect a reader's columns into a Timeline, and turn counts of odd rows into doubts."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from ...doubts import recordings as doubts
from ...ground.errors import UnreadableRecording
from ...ground.numbers import counted
from ...model import launching
from ...model.possible import OPERATIONS
from ...model.tables import COLUMNS, MOST_BLOCKS, UNSAID, unsaid
from ...model.timeline import Doubt, Recording, Timeline, make

# Value in place of NULL in columns of times.
NO_TIME: Final = -(1 << 63)
# Codes in `Gathered.met` that become doubts in this module; readers make the doubts for other codes.
_DOUBTS: Final = {
    "mixed-types": doubts.mixed_types,
    "missing-strings": doubts.missing_strings,
}


@dataclass(slots=True)
class Gathered:
    """The tables read so far. `met`: counts of odd rows, code -> table -> number of rows."""

    tables: dict[str, pd.DataFrame] = field(default_factory=dict)
    met: dict[str, Counter[str]] = field(default_factory=dict)
    doubts: list[Doubt] = field(default_factory=list)

    def meet(self, code: str, table: str, count: int) -> None:
        if count:
            self.met.setdefault(code, Counter())[table] += count

    def add(self, table: str, columns: Mapping[str, Any]) -> None:
        """Append rows to a table; columns that the table does not have are ignored."""
        # Columns are put into the table's order now, since reordering the columns of a frame later would copy them.
        kept: dict[str, Any] = {name: columns[name] for name in COLUMNS[table] if name in columns}
        lacking = [name for name in COLUMNS[table] if name in UNSAID and name not in kept]
        kept |= {name: unsaid(COLUMNS[table][name], len(kept["start_ns"])) for name in lacking}
        frame = pd.DataFrame(kept, copy=False)
        if table in self.tables:
            frame = joined([self.tables[table], frame])
        self.tables[table] = frame

    def timeline(self, recording: Recording, known: frozenset[str], from_first: tuple[str, ...] = ()) -> Timeline:
        """Make a Timeline of the tables so far. `from_first`: as in `timeline.make`."""
        for code, tables in self.met.items():
            if code in _DOUBTS:
                self.doubts.append(_DOUBTS[code](tables.total(), ", ".join(tables)))
        left_out = {f"{code} in {table}": count for code, tables in self.met.items() for table, count in tables.items()}
        return make(
            recording, self.tables, known=known, from_first=from_first, doubts=tuple(self.doubts), left_out=left_out
        )


def require_gpu_work(timeline: Timeline, path: Path, remedy: str, holds: str = "") -> Timeline:
    """The timeline, if it has a GPU operation; otherwise raises UnreadableRecording. `holds`: words for its other
    content."""
    if any(len(getattr(timeline, table)) for table in OPERATIONS):
        return timeline
    left_out = sum(timeline.left_out.values())
    but = f" but {counted(left_out, 'event')} with impossible times" if left_out else ""
    launched = launching.named(timeline.api, f"{launching.KERNEL}|{launching.GRAPH}") & ~launching.captured(
        timeline.api
    )
    of = f"{counted(launched.sum(), 'launch')}, and no" if launched.any() else "no"
    problem = f"a recording without GPU work{but}: {of} kernels, copies or memsets{holds and f', but {holds}'}"
    raise UnreadableRecording(path, problem, remedy)


class Device(NamedTuple):
    """The facts that a file tells of a GPU; "" and 0 for facts that it lacks."""

    uuid: str = ""
    bus_id: str = ""
    name: str = ""
    multiprocessors: int = 0


def multiprocessors(told: Any) -> int:
    """A number of multiprocessors that a file tells; 0 if no GPU has such a number."""
    return told if type(told) is int and 0 < told < MOST_BLOCKS else 0


def blocks(grid: Any) -> int:
    """The blocks of a kernel's grid, at most MOST_BLOCKS, from the list of its extents; 0: not known."""
    known = isinstance(grid, list) and grid and all(type(extent) is int and extent > 0 for extent in grid)
    return min(math.prod(grid), MOST_BLOCKS) if known else 0


def gpus(listed: Mapping[int, Device], tables: Mapping[str, pd.DataFrame]) -> pd.DataFrame:
    """The table `devices`: the GPUs `listed` in the file by number, and those that only ran operations."""
    used = {number for name in OPERATIONS if name in tables for number in pd.unique(tables[name]["device"]).tolist()}
    rows = [(number, *listed.get(number, Device())) for number in sorted(used | set(listed))]
    return pd.DataFrame(rows, columns=["device", *Device._fields])


def joined(frames: list[pd.DataFrame]) -> pd.DataFrame:
    """The frames, of equal columns, joined into one; a categorical column gets the categories of all, in order."""
    columns = {}
    for name in frames[0]:
        parts = [frame[name] for frame in frames]
        is_text = isinstance(parts[0].dtype, pd.CategoricalDtype)
        columns[name] = pd.api.types.union_categoricals(parts) if is_text else pd.concat(parts, ignore_index=True)
    return pd.DataFrame(columns, copy=False)


def constant(value: int, count: int, dtype: str = "int64") -> NDArray[Any]:
    """A read-only array of `count` equal values, which takes the memory of one."""
    return np.broadcast_to(np.array(value, dtype=dtype), count)
