"""Horovod's tensor fusion: the environment variables that set it for a cell, and what Horovod's autotune has chosen.

Horovod waits for a cycle, takes the gradients that are ready, and joins them into buffers up to the fusion threshold.
Its autotune tries values of cycle time and threshold while training goes on, and keeps the pair that moved the most
bytes per second.
"""

from __future__ import annotations

import csv
import math
from dataclasses import dataclass
from pathlib import Path

from profiles.runs.cell import Cell, setting

MIB = 1 << 20
# Autotune tries 8 points, each with one sample to warm up and five more, of 4 steps each. Horovod's defaults, 20 points
# and 10 steps, would take some thousand steps.
TUNING = {
    "HOROVOD_AUTOTUNE": "1",
    "HOROVOD_AUTOTUNE_WARMUP_SAMPLES": "1",
    "HOROVOD_AUTOTUNE_STEPS_PER_SAMPLE": "4",
    "HOROVOD_AUTOTUNE_BAYES_OPT_MAX_SAMPLES": "8",
}


@dataclass(frozen=True, slots=True)
class Choice:
    """A fusion threshold (MB) and a cycle time (ms) that autotune has chosen."""

    fusion_mib: float
    cycle_ms: float

    def environment(self) -> dict[str, str]:
        return {
            "HOROVOD_FUSION_THRESHOLD": str(round(self.fusion_mib * MIB)),
            "HOROVOD_CYCLE_TIME": f"{self.cycle_ms:g}",
        }


def environment(cell: Cell, log: Path, kept: Choice | None) -> dict[str, str]:
    """Horovod's variables for a cell. A setting at Horovod's default gets no variable, so that the user's variable
    stays.

    log: the file in which autotune writes its points. kept: autotune's earlier choice for this cell on this machine;
    with one, autotune does not run.
    """
    if "autotune" not in cell.spread.heeds:
        return {}
    if cell.autotune == "on":
        return kept.environment() if kept else {**TUNING, "HOROVOD_AUTOTUNE_LOG": str(log)}
    chosen = Choice(cell.fusion_mb, cell.cycle_us / 1000).environment()
    fixed = {"HOROVOD_FUSION_THRESHOLD": "fusion_mb", "HOROVOD_CYCLE_TIME": "cycle_us"}
    return {name: chosen[name] for name, of in fixed.items() if getattr(cell, of) != setting(of).default}


def read(log: Path) -> tuple[Choice | None, bool]:
    """The best choice in autotune's log so far, and True if it is final: then Horovod writes the best point a second
    time."""
    try:
        rows = list(csv.DictReader(log.read_text().splitlines()))
        points = [
            (float(row["score"]), Choice(float(row["tensor_fusion_threshold"]), float(row["cycle_time_ms"])))
            for row in rows
        ]
    except (OSError, KeyError, TypeError, ValueError):  # there is no file yet, or its last line is half-written
        return None, False
    points = [point for point in points if math.isfinite(point[0])]
    if not points:
        return None, False
    best = max(points, key=lambda point: point[0])
    return best[1], len(points) > 1 and points[-1] == best and best in points[:-1]
