"""Check nsys's warnings that it may have lost events.

A session that is stopped while the program runs on, as at the end of each capture range, warns that not all
events *might* have been collected, since a thread's last events may still be in its buffers. So the recording is
checked: CUDA events were lost if a launch call has no operation, NVTX events if a number is missing among the
ranges `step N` (nothing tells of other ranges). All other warnings are passed on unchecked.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from ...doubts.recordings import dropped_events
from ...model import launching
from ...model.marks import STEP_PREFIX
from ...model.timeline import Doubt
from ..tables.sqlite import Database

_DIAGNOSTICS: Final = "DIAGNOSTIC_EVENT"
_SHOWN: Final = 5
_SAYS: Final = ("dropped", "lost", "not all", "incomplete", "missing")
_MIGHT: Final = {"Not all CUDA events might": "cuda", "CUPTI events might": "cuda", "Not all NVTX events might": "nvtx"}
# Calls that always make an operation. A memset of 0 bytes makes none, so calls of memset are not among them.
_LAUNCHES: Final = r"^cu(?:da)?(?:Launch(?:Cooperative)?Kernel|GraphLaunch|Memcpy.*Async)"
_STEP: Final = rf"^{STEP_PREFIX}\d{{1,18}}$"
_OPERATIONS: Final = ("kernels", "graphs", "copies", "memsets")


def doubts(database: Database, tables: Mapping[str, pd.DataFrame]) -> list[Doubt]:
    """Doubts for nsys's own warnings of lost events, except for warnings that the recording disproves."""
    if not database.has(_DIAGNOSTICS, "text"):
        return []
    texts = dict.fromkeys(str(text) for (text,) in database.query(f"SELECT text FROM {database.stored(_DIAGNOSTICS)}"))
    said = [text for text in texts if any(word in text.lower() for word in _SAYS)][:_SHOWN]
    found = {"cuda": _operations_missing, "nvtx": _ranges_missing}
    of = {text: next((kind for words, kind in _MIGHT.items() if words in text), None) for text in said}
    return [dropped_events(text) for text, kind in of.items() if kind is None or found[kind](tables)]


def _operations_missing(tables: Mapping[str, pd.DataFrame]) -> bool:
    """True if a launch call, not captured into a graph, has no operation, or if there are no calls to check."""
    api = tables.get("api")
    if api is None or not len(api):
        return True
    launches = api[launching.named(api, _LAUNCHES) & ~launching.captured(api)]
    there = [_keys(tables[name]) for name in _OPERATIONS if name in tables]
    return not np.isin(_keys(launches), np.concatenate([np.empty(0, np.int64), *there])).all()


def _ranges_missing(tables: Mapping[str, pd.DataFrame]) -> bool:
    """True if a number is missing among a process's `step N` ranges, or if there are no such ranges to check."""
    marks = tables.get("marks")
    if marks is None:
        return True
    steps = marks[launching.named(marks, _STEP)]
    number = steps["name"].astype(str).str.removeprefix(STEP_PREFIX).astype("int64")
    ahead = number.groupby(steps["pid"].to_numpy()).apply(lambda found: bool((np.diff(np.sort(found)) == 1).all()))
    return not len(steps) or not ahead.all()


def _keys(table: pd.DataFrame) -> NDArray[np.int64]:
    key: NDArray[np.int64] = (table["pid"].to_numpy() << 40) | table["correlation"].to_numpy()
    return key
