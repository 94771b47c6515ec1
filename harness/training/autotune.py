"""Train until Horovod's autotune has finished, so that the timed steps use its choice."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ..machine.tuning import MIB, read

AT_ONCE = 50  # steps between two looks at autotune's log
PATIENCE_S = 120.0


def settle(turn: Callable[[], int], progress: Callable[[int], object]) -> dict[str, Any]:
    """Train until autotune has chosen, at most PATIENCE_S seconds. Returns autotune's choice and `finished`; `kept` is
    True if an earlier launch's choice is used, which takes no step."""
    from ringscope.ring.exchange import from_rank
    from ringscope.ring.internals.frameworks import hvd

    if os.environ.get("HOROVOD_AUTOTUNE") != "1":
        fusion, cycle = os.environ["HOROVOD_FUSION_THRESHOLD"], os.environ["HOROVOD_CYCLE_TIME"]
        return {"fusion_mib": int(fusion) / MIB, "cycle_ms": float(cycle), "finished": True, "kept": True}
    log, began, steps = Path(os.environ["HOROVOD_AUTOTUNE_LOG"]), time.monotonic(), 0
    while True:
        for _ in range(AT_ONCE):
            turn()
            steps += 1
            progress(steps)
        # Rank 0 writes autotune's log and tells the other ranks, because all must take the same number of steps.
        choice, finished = read(log) if hvd.rank() == 0 else (None, False)
        over = finished or time.monotonic() - began > PATIENCE_S
        choice, finished, over = from_rank(0, (choice, finished, over))
        if over:
            return {
                "fusion_mib": choice.fusion_mib if choice else None,
                "cycle_ms": choice.cycle_ms if choice else None,
                "finished": finished,
                "kept": False,
                "steps": steps,
            }
