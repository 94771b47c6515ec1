"""Let launches warm up side by side and be timed one after the other.

RINGSCOPE_TURNS names a folder of one launch. Once its ranks are warm, rank 0 writes the file `warm` there and waits for
the file `go`; the other ranks wait for rank 0. Without the variable no rank waits. `benchmarks/strategies.py` writes
`go`.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

VARIABLE = "RINGSCOPE_TURNS"
LOOK_EVERY_S = 0.02


def wait(rank: int, barrier: Callable[[], object]) -> None:
    """Wait for this launch's turn. barrier: a function that waits for all ranks and for all work on their devices."""
    if folder := os.environ.get(VARIABLE):
        barrier()
        if rank == 0:
            (Path(folder) / "warm").touch()
            while not (Path(folder) / "go").exists():
                time.sleep(LOOK_EVERY_S)
        barrier()
