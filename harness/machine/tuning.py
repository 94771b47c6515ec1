"""Horovod's gathering of gradients before an exchange: its variables for a cell, and the choices of its autotune.

Horovod waits for a cycle, takes the gradients that have come, and joins them to buffers of at most the fusion
threshold. Its autotune tries values of both while training goes on, and keeps the pair that moved most bytes per
second.
"""

from __future__ import annotations

import csv
import math
from dataclasses import dataclass
from pathlib import Path

from profiles.runs.cell import Cell, setting

MIB = 1 << 20
# Points that autotune tries, and steps at each of five samples of a point: fewer than Horovod's own 20 and 10, which
# take some thousand steps. The first point is warm-up.
TUNING = {
    "HOROVOD_AUTOTUNE": "1",
    "HOROVOD_AUTOTUNE_WARMUP_SAMPLES": "1",
    "HOROVOD_AUTOTUNE_STEPS_PER_SAMPLE": "4",
    "HOROVOD_AUTOTUNE_BAYES_OPT_MAX_SAMPLES": "8",
}


@dataclass(frozen=True, slots=True)
class Choice:
    """A choice of autotune's."""

    fusion_mib: float
    cycle_ms: float

    def environment(self) -> dict[str, str]:
        return {
            "HOROVOD_FUSION_THRESHOLD": str(round(self.fusion_mib * MIB)),
            "HOROVOD_CYCLE_TIME": f"{self.cycle_ms:g}",
        }


def environment(cell: Cell, log: Path, kept: Choice | None) -> dict[str, str]:
    """Horovod's variables for a cell. Those at Horovod's own defaults are left as they are set where ranks start.

    log: where autotune writes. kept: its choice for such a cell on this machine, which then is taken and not sought.
    """
    if "autotune" not in cell.spread.heeds:
        return {}
    if cell.autotune == "on":
        return kept.environment() if kept else {**TUNING, "HOROVOD_AUTOTUNE_LOG": str(log)}
    chosen = Choice(cell.fusion_mb, cell.cycle_us / 1000).environment()
    fixed = {"HOROVOD_FUSION_THRESHOLD": "fusion_mb", "HOROVOD_CYCLE_TIME": "cycle_us"}
    return {name: chosen[name] for name, of in fixed.items() if getattr(cell, of) != setting(of).default}


def read(log: Path) -> tuple[Choice | None, bool]:
    """The choice so far in what autotune writes, and whether it is final: Horovod then writes the best point again."""
    try:
        rows = list(csv.DictReader(log.read_text().splitlines()))
        points = [
            (float(row["score"]), Choice(float(row["tensor_fusion_threshold"]), float(row["cycle_time_ms"])))
            for row in rows
        ]
    except (OSError, KeyError, TypeError, ValueError):  # not there yet, or a line half written
        return None, False
    points = [point for point in points if math.isfinite(point[0])]
    if not points:
        return None, False
    best = max(points, key=lambda point: point[0])
    return best[1], len(points) > 1 and points[-1] == best and best in points[:-1]
