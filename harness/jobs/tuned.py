"""Keep the settings that Horovod's autotune chose, per machine and cell, in `~/.cache/ringscope/autotune.json`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from profiles.ground.files import user_cache, write_whole
from profiles.runs.rank_records import read_rank
from profiles.runs.records import Cell

from ..machine.tuning import Choice

# Autotune's choice depends on these settings of a cell.
_OF_A_CELL = ("model", "ranks", "per_rank_batch", "precision", "step", "compression", "aggregate")


def path() -> Path | None:
    """The file of autotune's choices; None if the user has no cache folder."""
    folder = user_cache()
    return folder / "autotune.json" if folder else None


def key(cell: Cell, launcher: str, machine: Mapping[str, Any]) -> str:
    """The key under which a choice is kept: the machine, the launcher, and the cell's settings in _OF_A_CELL."""
    gpus = sorted(str(gpu.get("name")) for gpu in machine.get("gpus") or ())
    cpu = (machine.get("cpu") or {}).get("model")
    versions = (machine.get("packages") or {}).get("horovod")
    facts = [machine.get("host"), cpu, gpus, versions, launcher, *(getattr(cell, name) for name in _OF_A_CELL)]
    return json.dumps(facts)


def find(cell: Cell, launcher: str, machine: Mapping[str, Any]) -> Choice | None:
    """The choice that autotune made for an equal cell on an equal machine; None if there is none."""
    kept = _read().get(key(cell, launcher, machine))
    return Choice(**kept) if kept else None


def keep(cell: Cell, launcher: str, machine: Mapping[str, Any], folder: Path) -> None:
    """Keep the choice that rank 0 of a launch has recorded, if autotune finished there."""
    told = read_rank(folder / "rank0.jsonl").extra.get("autotune") or {}
    if not told.get("finished") or told.get("kept"):
        return
    found = _read()
    found[key(cell, launcher, machine)] = {name: told[name] for name in ("fusion_mib", "cycle_ms")}
    if file := path():
        with suppress(OSError):  # if the file cannot be written, autotune runs again each time
            file.parent.mkdir(parents=True, exist_ok=True)
            write_whole(file, json.dumps(found, indent=1))


def _read() -> dict[str, Any]:
    file = path()
    try:
        found = json.loads(file.read_text()) if file else {}
    except (OSError, ValueError):  # no file yet, or not one of ringscope's; it will be overwritten
        return {}
    return found if isinstance(found, dict) else {}
