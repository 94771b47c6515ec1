"""Horovod's tensor fusion: the environment variables that set it for a cell, and what Horovod's autotune has chosen.

Horovod waits for a cycle, takes the gradients that are ready, and joins them into buffers up to the fusion threshold.
Its autotune tries values of cycle time and threshold while training goes on, and keeps the pair that moved the most
bytes per second. ringscope keeps the choice per machine and cell, in `~/.cache/ringscope/autotune.json`.
"""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from profiles.ground.files import user_cache, write_whole
from profiles.runs.cell import Cell, setting
from profiles.runs.rank_records import read_rank

MIB = 1 << 20
# Autotune tries 8 points, each with one sample to warm up and five more, of 4 steps each. Horovod's defaults, 20 points
# and 10 steps, would take some thousand steps.
TUNING = {
    "HOROVOD_AUTOTUNE": "1",
    "HOROVOD_AUTOTUNE_WARMUP_SAMPLES": "1",
    "HOROVOD_AUTOTUNE_STEPS_PER_SAMPLE": "4",
    "HOROVOD_AUTOTUNE_BAYES_OPT_MAX_SAMPLES": "8",
}
# Autotune's choice depends on these settings of a cell.
_OF_A_CELL = ("model", "ranks", "per_rank_batch", "precision", "step", "compression", "aggregate")


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


def kept_in() -> Path | None:
    """The file of autotune's choices; None if the user has no cache folder."""
    folder = user_cache()
    return folder / "autotune.json" if folder else None


def _key(cell: Cell, launcher: str, machine: Mapping[str, Any]) -> str:
    """The key under which a choice is kept: the machine, the launcher, and the cell's settings in _OF_A_CELL."""
    gpus = sorted(str(gpu.get("name")) for gpu in machine.get("gpus") or ())
    cpu = (machine.get("cpu") or {}).get("model")
    versions = (machine.get("packages") or {}).get("horovod")
    facts = [machine.get("host"), cpu, gpus, versions, launcher, *(getattr(cell, name) for name in _OF_A_CELL)]
    return json.dumps(facts)


def find(cell: Cell, launcher: str, machine: Mapping[str, Any]) -> Choice | None:
    """The choice that autotune made for an equal cell on an equal machine; None if there is none."""
    kept = _all_kept().get(_key(cell, launcher, machine))
    return Choice(**kept) if kept else None


def keep(cell: Cell, launcher: str, machine: Mapping[str, Any], folder: Path) -> None:
    """Keep the choice that rank 0 of a launch has recorded, if autotune finished there."""
    told = read_rank(folder / "rank0.jsonl").extra.get("autotune") or {}
    if not told.get("finished") or told.get("kept"):
        return
    found = _all_kept()
    found[_key(cell, launcher, machine)] = {name: told[name] for name in ("fusion_mib", "cycle_ms")}
    if file := kept_in():
        with suppress(OSError):  # if the file cannot be written, autotune runs again each time
            file.parent.mkdir(parents=True, exist_ok=True)
            write_whole(file, json.dumps(found, indent=1))


def _all_kept() -> dict[str, Any]:
    file = kept_in()
    try:
        found = json.loads(file.read_text()) if file else {}
    except (OSError, ValueError):  # no file yet, or not one of ringscope's; it will be overwritten
        return {}
    return found if isinstance(found, dict) else {}
