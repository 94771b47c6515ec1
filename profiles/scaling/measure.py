"""Measure the scaling of a sweep from its run records: launches, cells, doubts, and advice on what to look at first."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from ..ground.stats import Spread, spread
from ..model.timeline import Doubt
from ..runs.records import Run, SweepRecord
from . import limits, out_of_memory
from .alike import same_but_ranks
from .doubts import above_100_percent, doubts
from .first_looks import first_looks
from .look import Look
from .rows import CellRow, LaunchRow, cell_row, columns, launch_row, speedups_to_accuracy


@dataclass(slots=True)
class Scaling:
    """Everything a report of a sweep shows."""

    launches: list[LaunchRow]
    cells: list[CellRow]
    looks: list[Look]
    doubts: list[Doubt]
    spreads: dict[str, Spread] = field(default_factory=dict)  # by cell id: samples per second over the cell's launches

    def to_json(self) -> dict[str, Any]:
        return {
            "launches": list(map(columns, self.launches)),
            "cells": list(map(columns, self.cells)),
            "looks": list(map(asdict, self.looks)),
            "doubts": list(map(asdict, self.doubts)),
            "spreads": {cell: asdict(spread) for cell, spread in self.spreads.items()},
        }


def measure(sweep: SweepRecord, runs: Sequence[Run]) -> Scaling:
    """The scaling of a sweep, from the records of its launches. Launches under a profiler are in `launches` only."""
    rows = [launch_row(run) for run in runs]
    plain = [run for run in runs if not run.record.profiled]
    by_cell: dict[str, list[tuple[Run, LaunchRow]]] = defaultdict(list)
    for run, row in zip(runs, rows, strict=True):
        if not run.record.profiled:
            by_cell[row.cell.id].append((run, row))
    spreads = {
        cell: spread(values) for cell, pairs in by_cell.items() if (values := _throughputs(row for _, row in pairs))
    }
    recorded = {row.cell.id: row.profiled for row in rows if row.profiled}
    cells = [cell_row(cell, [row for _, row in by_cell[cell.id]], sweep, spreads) for cell in sweep.cells]
    speedups_to_accuracy(cells)
    limits.tell(cells)
    for cell in cells:
        if cell.status == "missing" and cell.cell.id in recorded:
            cell.reason = (
                f"all launches were recorded by {recorded[cell.cell.id]}, so their timings do not count; ringscope "
                "timeline shows the recordings"
            )
    doubted = doubts(plain, cells)
    # Something slowed these one-rank cells down: no other cell is so much faster.
    slowed = {
        one.cell.id
        for row in above_100_percent(cells)
        for one in cells
        if one.cell.ranks == 1 and same_but_ranks(row.cell, one.cell)
    }
    compared = {cell: found for cell, found in spreads.items() if cell not in slowed}
    looks = out_of_memory.looks(cells, plain) + first_looks(sweep, cells, compared, doubted)
    return Scaling(rows, cells, looks, doubted, spreads)


def _throughputs(rows: Iterable[LaunchRow]) -> list[float]:
    return [row.samples_per_s_global for row in rows if row.samples_per_s_global is not None]
