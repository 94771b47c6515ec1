"""Steps until Horovod's autotune has come to an end, so that what is timed is trained with its choice."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ..machine.tuning import MIB, read

AT_ONCE = 50  # steps between two looks at what autotune has written
PATIENCE_S = 120.0


def settle(turn: Callable[[], int], progress: Callable[[int], object]) -> dict[str, Any]:
    """Take steps until autotune has chosen, PATIENCE_S at most: its choice, `finished`, and `kept` where an earlier
    launch's is taken and no step is needed."""
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
        # Rank 0 writes it, and tells the others, which must take as many steps.
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
