"""Record full garbage collections as profiler ranges, because they stop all Python of the process."""

from __future__ import annotations

import gc
from typing import Any

from .ranges import Place, writer
from .whose import caller

_FULL = 2
_running: list[Place] = []


def watch() -> None:
    """Put a range around each full garbage collection of this process. A second call changes nothing."""
    writer()  # created now, because nothing may be imported during a collection
    if _told not in gc.callbacks:
        gc.callbacks.append(_told)


def _told(phase: str, about: dict[str, Any]) -> None:
    if about["generation"] != _FULL:
        return
    if phase == "start":
        place = Place("gc", "garbage collection", caller(of_loops=True))
        place.__enter__()
        _running.append(place)
    elif _running:
        _running.pop().__exit__()
