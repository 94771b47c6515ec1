"""Sort the operations in recordings' tables by GPU, one column at a time.

Recordings hold tens of millions of operations. So nothing here copies more than one column at a time, and a
column of the tables is freed once every GPU has taken its rows from it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Final

import numpy as np
from numpy.typing import NDArray

from ..ground.threads import each, release_unused
from .operations import TABLES, Operations, distinct, narrow
from .tables import BLOCK, Array, Tables

if TYPE_CHECKING:
    import pandas as pd

_NO_ROWS: Final = np.empty(0, np.int32)
Places = Sequence[tuple[int, int]]  # (recording, device number in it)


@dataclass(frozen=True, slots=True)
class Gathered:
    """The operations of one GPU in order of time, and their kernel names, processes and streams; see
    `operations.Gpu`."""

    operations: Operations
    names: pd.Index
    processes: tuple[tuple[int, int], ...]
    streams: tuple[tuple[int, int, int], ...]


def gather(tables: Sequence[Tables], shifts: Sequence[int], gpus: Sequence[Places]) -> list[Gathered]:
    """Collect the operations of each GPU. Empties the columns of `tables` to save memory.

    `shifts`: ns that bring each recording's times to the common clock; a GPU stays on the clock of its first
    recording. `gpus`: for each GPU, the recordings and device numbers under which it appears.
    """
    most = max((len(columns["start_ns"]) for one in tables for columns in one.columns.values()), default=0)
    making = list(each(partial(_Gpu, tables, shifts), gpus, most))
    rows = max(map(len, making), default=0)
    for take, used in (
        (_Gpu.order, ("start_ns", "kind", "device")),
        (_Gpu.end, ("lasted_ns",)),
        (_Gpu.calls, ("call_row",)),
        (_Gpu.streams, ("process", "context", "stream")),
        (_Gpu.name, ("name",)),
    ):
        list(each(take, making, rows))
        for columns in (columns for one in tables for columns in one.columns.values()):
            for column in used:
                del columns[column]
        release_unused(rows)
    return [one.gathered() for one in making]


@dataclass(frozen=True, slots=True)
class _Part:
    """The rows of one table of one recording that belong to a GPU. `place`: index of the recording among the GPU's
    recordings. `processes`: for each process of the recording, its number among the GPU's processes."""

    place: int
    table: str
    columns: dict[str, Array]
    shift_ns: int
    rows: Array
    processes: Array


class _Gpu:
    """A GPU whose columns are being collected. `_part` and `_row` tell in which part and row each operation lies."""

    def __init__(self, tables: Sequence[Tables], shifts: Sequence[int], places: Places) -> None:
        self._sources = tuple(tables[index].source(shifts[index] - shifts[places[0][0]]) for index, _ in places)
        self._names = [tables[index].names for index, _ in places]
        self._processes: dict[tuple[int, int], int] = {}
        self._parts: list[_Part] = []
        for place, (index, device) in enumerate(places):
            for table, columns in tables[index].columns.items():
                rows = np.flatnonzero(columns["device"] == device).astype(np.int32)
                if len(rows):
                    numbers = self._numbers(index, tables[index].pids, columns["process"][rows])
                    shift = self._sources[place].shift_ns
                    self._parts.append(_Part(place, table, columns, shift, rows, numbers))
        self._columns: dict[str, Array] = {}

    def _numbers(self, index: int, pids: Sequence[int], process: Array) -> Array:
        """For each process of a recording, its number among the GPU's: int32[processes]; 0 for processes without
        rows here."""
        found = np.zeros(len(pids), np.int32)
        for one in distinct(process).tolist():
            found[one] = self._processes.setdefault((index, pids[one]), len(self._processes))
        return found

    def __len__(self) -> int:
        return sum(len(part.rows) for part in self._parts)

    def order(self) -> None:
        """Sort the operations that have a class by start, then class, then row of their table."""
        order = self._sorted()
        rows = [part.rows for part in self._parts]
        self._parts = [replace(part, rows=_NO_ROWS) for part in self._parts]
        numbers = np.arange(len(rows), dtype=np.min_scalar_type(len(rows)))
        self._part = narrow(np.repeat(numbers, [len(one) for one in rows])[order])
        self._row = np.concatenate(rows)[order]

    def _sorted(self) -> Array:
        """Return the operations' order as indices, and store their starts and kinds in this order."""
        start = np.concatenate([part.columns["start_ns"][part.rows] + part.shift_ns for part in self._parts])
        kind = np.concatenate([part.columns["kind"][part.rows] for part in self._parts])
        order = _order(start, kind)
        self._columns = {"start_ns": start[order], "kind": kind[order]}
        return order

    def end(self) -> None:
        self._columns["end_ns"] = self._ordered("lasted_ns")
        self._columns["end_ns"] = self._columns["end_ns"] + self._columns["start_ns"]

    def calls(self) -> None:
        self._columns["call_row"] = self._ordered("call_row")

    def streams(self) -> None:
        """Number the processes and streams of the operations."""
        process = self._ordered("process", lambda part, values: part.processes[values])
        context, number = self._ordered("context"), self._ordered("stream")
        stream = _numbered(process, context, number)
        self._streams = tuple((int(process[at]), int(context[at]), int(number[at])) for at in _first_of_each(stream))
        self._columns |= {"process": narrow(process), "stream": narrow(stream)}

    def name(self) -> None:
        names = self._names[0]
        for more in self._names[1:]:
            names = names.union(more, sort=False)
        place_of = [names.get_indexer(one).astype(np.int32) for one in self._names]

        def named(part: _Part, values: Array) -> Array:
            return place_of[part.place][values] if part.table == "kernels" else values

        self._columns["name"] = narrow(self._ordered("name", named))
        self._names = [names]

    def gathered(self) -> Gathered:
        # `narrow` chooses the type, because there may be hundreds of recordings.
        place = narrow(np.array([part.place for part in self._parts], np.int32))
        table = np.array([TABLES.index(part.table) for part in self._parts], np.int8)
        operations = Operations(
            **self._columns, place=place[self._part], table=table[self._part], row=self._row, sources=self._sources
        )
        return Gathered(operations, self._names[0], tuple(self._processes), self._streams)

    def _ordered(self, column: str, changed: Callable[[_Part, Array], Array] = lambda _, values: values) -> Array:
        """A column of the tables in the order of the operations. `changed` converts the values of each part."""
        found = np.empty(len(self._row), np.result_type(*(changed(p, p.columns[column][:0]) for p in self._parts)))
        for first in range(0, len(found), BLOCK):
            block = slice(first, first + BLOCK)
            numbers, rows = self._part[block], self._row[block]
            for number in np.flatnonzero(np.bincount(numbers)):
                mine = np.flatnonzero(numbers == number)
                part = self._parts[number]
                found[first + mine] = changed(part, part.columns[column][rows[mine]])
        return found


def _order(start: NDArray[np.int64], kind: NDArray[np.int8]) -> Array:
    """Indices of the operations that have a class, sorted by start, then by class. Tables are mostly sorted and equal
    starts are rare, so a stable sort by start alone comes first: it is the fastest."""
    order = np.argsort(start, kind="stable").astype(np.int32)
    start, kind = start[order], kind[order]
    if ((start[1:] == start[:-1]) & (kind[1:] < kind[:-1])).any():
        by_class = np.lexsort((kind, start))
        order, kind = order[by_class], kind[by_class]
    return order if kind.min() >= 0 else order[kind >= 0]


def _numbered(*keys: Array) -> Array:
    """A number for each distinct tuple of keys, counted from 0 in the order in which they first appear."""
    import pandas as pd

    varying = [pd.factorize(key) for key in keys if (key != key[0]).any()]
    number = varying.pop(0)[0] if varying else np.zeros(len(keys[0]), np.int64)
    for code, values in varying:
        number = pd.factorize(number * len(values) + code)[0]
    return number


def _first_of_each(numbers: Array) -> list[int]:
    """The index at which each of the numbers 0, 1, 2... first appears. They must first appear in this order."""
    found: list[int] = []
    for first in range(0, len(numbers), BLOCK):
        block = numbers[first : first + BLOCK]
        if len(block) and int(block.max()) >= len(found):
            values, places = np.unique(block, return_index=True)
            found += (first + places[values >= len(found)]).tolist()
    return found
