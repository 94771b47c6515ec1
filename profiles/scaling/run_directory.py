"""Measure the scaling of a run directory, and write its two tables."""

from __future__ import annotations

import contextlib
import csv
import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ..ground.errors import RingscopeError
from ..ground.files import write_whole
from ..runs.rank_records import Damaged
from ..runs.records import COMMAND, Run, read_runs, read_sweep
from .measure import Scaling, measure
from .rows import CellRow, LaunchRow, column_names, columns

ROOT = Path("runs")


def read(directory: Path, runs: Sequence[Run] | None = None) -> Scaling:
    """Measure a run directory, or `runs` already read from it. Raises RingscopeError if it holds no sweep."""
    return measure(read_sweep(directory), read_runs(directory) if runs is None else runs)


def write(directory: Path, scaling: Scaling) -> None:
    """Write `results.csv` (a row per launch) and `summary.csv` (a row per cell). Raises OSError."""
    write_whole(directory / "results.csv", csv_text(scaling.launches, LaunchRow))
    write_whole(directory / "summary.csv", csv_text(scaling.cells, CellRow))


def machine(runs: Sequence[Run]) -> dict[str, Any]:
    """The description of the machine by the first launch that has one; {} if none has."""
    described = (run.record.machine for run in runs)
    return next((found for found in described if found), {})


def newest(root: Path = ROOT, *, searches: bool = False) -> Path:
    """The directory of the sweep under `runs/` that began last or, with `searches`, of the search of `ringscope fits`
    that began last.

    Recordings of `ringscope record` do not count. Raises RingscopeError if there is none."""
    sweeps = {}
    for path in root.glob("*/sweep.json"):
        with contextlib.suppress(Damaged):  # a damaged sweep must not hide others
            sweeps[path.parent] = read_sweep(path.parent)
    found = [
        path
        for path, sweep in sweeps.items()
        if not sweep.options.get("profiler") and ("fits" in sweep.options) is searches
    ]
    if not found:
        kind, start = ("search", "ringscope fits --model NAME") if searches else ("sweep", "ringscope bench")
        recorded = ", or show recordings with: ringscope timeline PATH" if any(root.glob(f"*/{COMMAND}")) else ""
        raise RingscopeError(
            f"{root}: this directory has no {kind}; name the directory of one, or start one with: {start}{recorded}"
        )
    return max(found, key=lambda path: (sweeps[path].created_utc_ns, path.name))


def csv_text(rows: Sequence[LaunchRow] | Sequence[CellRow], kind: type[LaunchRow] | type[CellRow]) -> str:
    """The rows as CSV with a header line; unknown values are empty."""
    out = io.StringIO()
    writer = csv.DictWriter(out, column_names(kind), lineterminator="\n")
    writer.writeheader()
    writer.writerows(map(columns, rows))
    return out.getvalue()
