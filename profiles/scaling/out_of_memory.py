"""Advice for cells that ran out of memory: changes that would make each fit, and the bytes that each change saves."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ..ground import numbers
from ..runs.cell import in_words
from ..runs.records import Run
from .first_looks import options
from .fits import capacity
from .look import Look
from .remedies import Remedy, alike, known, needed, remedies
from .rows import CellRow


def looks(cells: Sequence[CellRow], runs: Sequence[Run]) -> list[Look]:
    """Advice for each group of cells that differ only in batch, about the smallest batch that did not fit."""
    smallest: list[CellRow] = []
    for row in sorted(cells, key=lambda row: row.cell.per_rank_batch):
        if row.status == "oom" and not any(alike(row.cell, other.cell) for other in smallest):
            smallest.append(row)
    return [_look(row, runs) for row in smallest]


def _look(row: CellRow, runs: Sequence[Run]) -> Look:
    cell = row.cell
    machine = next((run.record.machine for run in runs if run.record.cell == cell), {})
    room = capacity(cell, machine)
    near = [run.record.cell for run in runs if run.record.status == "ok" and alike(cell, run.record.cell)]
    fitting = max((one.per_rank_batch for one in near if one.per_rank_batch < cell.per_rank_batch), default=0)
    about = known(cell, runs)
    needs = needed(cell, about, room)
    takes = "" if needs is None else f": by the memory of smaller batches, this batch takes some {numbers.size(needs)}"
    where = f", and a rank has {numbers.size(room)}" if room else ""
    changes = remedies(cell, about, capacity_bytes=room, fits=fitting)
    searched = replace(cell, until="")  # a search for a batch has no target accuracy
    return Look(
        "out-of-memory",
        f"{in_words(cell)} does not fit{takes}{where}",
        f"one of: {'; '.join(map(words, changes))}; and the largest batch: ringscope fits {options(searched)}",
        model=cell.model,
    )


def words(one: Remedy) -> str:
    """A change in words, such as `--per-rank-batch 64 (smaller-batch, saves 1.2 GB)`."""
    saved = "an unknown amount" if one.saves_bytes is None else numbers.size(one.saves_bytes)
    return f"{one.option} ({one.code}, saves {saved})"
