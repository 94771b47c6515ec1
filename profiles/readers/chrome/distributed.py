"""Read a trace's `distributedInfo`: the process's rank and the number of ranks of its run."""

from __future__ import annotations

from typing import Any, Final

import pandas as pd

from . import events as chrome

_MOST_RANKS: Final = 10**9  # more than any run has


def ranks(told: Any, frames: dict[str, pd.DataFrame]) -> tuple[int | None, int | None]:
    """(rank, number of ranks); None for each that `told`, the value of `distributedInfo`, does not say.

    A file of several processes names the rank of only one of them, so both are None.
    """
    if not isinstance(told, dict) or ("api" in frames and frames["api"]["pid"].nunique() > 1):
        return None, None
    rank, size = (int(chrome.integers([told.get(key)])[0]) for key in ("rank", "world_size"))
    if not 0 <= rank < _MOST_RANKS:
        return None, None
    return rank, size if rank < size < _MOST_RANKS else None
