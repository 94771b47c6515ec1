"""The API call that launched an operation."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from .operations import distinct
from .timeline import Timeline


class LaunchCalls:
    """Finds the API call that launched an operation: the row of its process with its correlation.

    Where several rows share one (a runtime call and the driver call inside it) the one that began first counts.
    """

    def __init__(self, timeline: Timeline) -> None:
        api = timeline.api
        self.start_ns = api["start_ns"].to_numpy()
        self.end_ns = api["end_ns"].to_numpy()
        self._correlation = api["correlation"].to_numpy()
        self._pid = api["pid"].to_numpy()
        self._by_pid: dict[int, tuple[int, NDArray[np.int32]] | tuple[NDArray[np.int64], NDArray[np.int32]]] = {}
        self._pids = set(distinct(self._pid).tolist())

    def rows(self, pid: int, correlation: NDArray[np.int64]) -> NDArray[np.int32]:
        """Row of `api` per correlation of this process; -1: none."""
        none = np.full(len(correlation), -1, np.int32)
        if pid not in self._pids:
            return none
        if pid not in self._by_pid:
            self._by_pid[pid] = self._index(pid)
        first, row_of = self._by_pid[pid]
        if isinstance(first, int):  # a table by correlation
            place = correlation - first
            inside = (place >= 0) & (place < len(row_of)) & (correlation >= 0)
            if inside.all():
                return row_of[place]
            none[inside] = row_of[place[inside]]
            return none
        if not len(first):
            return none
        place = np.minimum(np.searchsorted(first, correlation), len(first) - 1)
        return np.where(first[place] == correlation, row_of[place], np.int32(-1))

    def _index(self, pid: int) -> tuple[int, NDArray[np.int32]] | tuple[NDArray[np.int64], NDArray[np.int32]]:
        rows = np.flatnonzero((self._pid == pid) & (self._correlation >= 0)).astype(np.int32)
        correlation = self._correlation[rows]
        first, last = (int(correlation.min()), int(correlation.max())) if len(rows) else (0, 0)
        if len(rows) and last - first < 8 * len(rows) + 1000:
            correlation -= first
            row_of = np.full(last - first + 1, -1, np.int32)
            row_of[correlation] = rows
            if (row_of[correlation] != rows).any():
                order = np.argsort(self.start_ns[rows], kind="stable")[::-1]
                row_of[correlation[order]] = rows[order]  # the last written is the one that began first
            return first, row_of
        order = np.argsort(self.start_ns[rows], kind="stable")
        found, place = np.unique(correlation[order], return_index=True)
        return found, rows[order[place]]
