"""Find the API call that launched an operation."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from ..model.timeline import Timeline
from .operations import distinct

_BLOCK: Final = 1 << 17  # rows handled at once, so that their arrays fit into the CPU's cache


class LaunchCalls:
    """Finds the API call that launched an operation: the call of the operation's process with the same correlation.

    If several calls share a correlation (a runtime call and the driver call inside it), the one that began first
    counts.
    """

    def __init__(self, timeline: Timeline) -> None:
        api = timeline.api
        self.start_ns = api["start_ns"].to_numpy()
        self.end_ns = api["end_ns"].to_numpy()
        self._correlation = api["correlation"].to_numpy()
        self._pid = api["pid"].to_numpy()
        self._by_pid: dict[int, _Table | _Sorted] = {}
        self._pids = set(distinct(self._pid).tolist())

    def rows(self, pid: NDArray[np.int64], correlation: NDArray[np.int64]) -> NDArray[np.int32]:
        """For each operation, the row in `api` of the call that launched it: int32[n]; -1: none. `pid`, `correlation`:
        of each operation."""
        found = np.full(len(correlation), -1, np.int32)
        for one in distinct(pid).tolist():
            if one not in self._pids:
                continue
            if one not in self._by_pid:
                self._by_pid[one] = self._index(one)
            index = self._by_pid[one]
            for first in range(0, len(found), _BLOCK):
                block = slice(first, first + _BLOCK)
                mine = (pid[block] == one) & (correlation[block] >= 0)
                if mine.all():
                    found[block] = index.rows(correlation[block])
                else:
                    found[block][mine] = index.rows(correlation[block][mine])
        return found

    def _index(self, pid: int) -> _Table | _Sorted:
        count, low, high = 0, 0, -1
        for _, correlation in self._blocks(pid):
            low = min(low, int(correlation.min())) if count else int(correlation.min())
            high = max(high, int(correlation.max()))
            count += len(correlation)
        if high - low >= 8 * count + 1000:
            rows = np.concatenate([rows for rows, _ in self._blocks(pid)])
            order = np.argsort(self.start_ns[rows], kind="stable")
            found, place = np.unique(self._correlation[rows[order]], return_index=True)
            return _Sorted(found, rows[order[place]].astype(np.int32))
        row_of = np.full(high - low + 1, -1, np.int32)
        for rows, correlation in self._blocks(pid):
            row_of[correlation - low] = rows
        if (row_of >= 0).sum() < count:
            rows = np.concatenate([rows for rows, _ in self._blocks(pid)])
            order = np.argsort(self.start_ns[rows], kind="stable")[::-1]
            row_of[self._correlation[rows[order]] - low] = rows[order]  # the last row written is that of the first call
        return _Table(low, row_of)

    def _blocks(self, pid: int) -> Iterator[tuple[NDArray[np.int64], NDArray[np.int64]]]:
        """Rows of the process's calls that have a correlation, in blocks, and their correlations; no block is empty."""
        for first in range(0, len(self._pid), _BLOCK):
            correlation = self._correlation[first : first + _BLOCK]
            mine = (self._pid[first : first + _BLOCK] == pid) & (correlation >= 0)
            if mine.all():
                yield np.arange(first, first + len(mine)), correlation
            elif mine.any():
                yield first + np.flatnonzero(mine), correlation[mine]


@dataclass(frozen=True, slots=True)
class _Table:
    """The row of each correlation of a process: `row_of[correlation - low]`; -1: none."""

    low: int
    row_of: NDArray[np.int32]

    def rows(self, correlation: NDArray[np.int64]) -> NDArray[np.int32]:
        place = correlation.astype(np.int64) - self.low
        inside = (place >= 0) & (place < len(self.row_of))
        if inside.all():
            return self.row_of[place]
        found = np.full(len(place), -1, np.int32)
        found[inside] = self.row_of[place[inside]]
        return found


@dataclass(frozen=True, slots=True)
class _Sorted:
    """The row of each correlation of a process, for correlations too sparse for a `_Table`; `correlation` is
    ascending."""

    correlation: NDArray[np.int64]
    row: NDArray[np.int32]

    def rows(self, correlation: NDArray[np.int64]) -> NDArray[np.int32]:
        place = np.minimum(np.searchsorted(self.correlation, correlation), len(self.correlation) - 1)
        found: NDArray[np.int32] = np.where(self.correlation[place] == correlation, self.row[place], np.int32(-1))
        return found
