"""Compare batch sizes: does throughput still grow at the largest batch, and does the fastest batch reach the accuracy
first?"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from ..ground.stats import Spread, ratio
from ..runs.cell import Cell
from .look import WORTH_A_LOOK, Look, ranks
from .rows import CellRow


def looks(rows: Sequence[CellRow], spreads: dict[str, Spread]) -> list[Look]:
    """Advice on batch sizes, from groups of cells that differ only in batch, on a model's largest number of ranks. It
    is about the group whose throughput still grew most at the largest batch, and about each group whose fastest batch
    reaches the accuracy later than another batch, or never."""
    most = most_ranks(row.cell for row in rows if row.cell.id in spreads)
    alike: dict[Cell, list[CellRow]] = {}
    for row in rows:
        cell = row.cell
        if cell.id in spreads and cell.global_batch is None and most[cell.model] == cell.ranks:
            alike.setdefault(replace(cell, per_rank_batch=0), []).append(row)
    grown, learning = [], []
    for cell, group in alike.items():
        if len(group) == 1:
            continue
        by_batch = sorted(group, key=lambda row: row.cell.per_rank_batch)
        if not cell.until or _soonest(group) is by_batch[-1]:
            grown += _grown(by_batch[-2], by_batch[-1], spreads)
        learning += _learns_later(group, spreads)
    return sorted(grown, key=lambda look: -look.worth)[:1] + learning


def most_ranks(cells: Iterable[Cell]) -> dict[str, int]:
    """For each model the largest number of ranks of these cells."""
    most: dict[str, int] = {}
    for cell in cells:
        most[cell.model] = max(cell.ranks, most.get(cell.model, 0))
    return most


def _grown(smaller: CellRow, largest: CellRow, spreads: dict[str, Spread]) -> list[Look]:
    gain = ratio(spreads[largest.cell.id], spreads[smaller.cell.id])
    if gain.low <= 1 + WORTH_A_LOOK:
        return []
    cell, batch = largest.cell, largest.cell.per_rank_batch
    return [
        Look(
            "larger-batch",
            f"{cell.model} on {ranks(cell.ranks)}: throughput still grows at the largest batch: with {batch} per rank "
            f"it is {gain.value:.2f} x that with {smaller.cell.per_rank_batch}",
            f"ringscope bench --models {cell.model} --ranks {cell.ranks} --per-rank-batch "
            f"{batch},{2 * batch},{4 * batch}; a larger batch needs another learning rate",
            gain.value - 1,
            cell.model,
        )
    ]


def _soonest(group: Sequence[CellRow]) -> CellRow | None:
    """The row that reaches the accuracy first; None if no row reaches it in all launches."""
    reached = [(row.seconds_to_accuracy, row.cell.per_rank_batch, row) for row in group if row.seconds_to_accuracy]
    return min(reached, key=lambda one: one[:2])[2] if reached else None


def _learns_later(group: Sequence[CellRow], spreads: dict[str, Spread]) -> list[Look]:
    """Advice if samples per second mislead, because the fastest batch does not reach the accuracy first; else []."""
    fastest, soonest = max(group, key=lambda row: spreads[row.cell.id].median), _soonest(group)
    if soonest is None or soonest is fastest:
        return []
    assert soonest.seconds_to_accuracy is not None
    cell, batch = fastest.cell, soonest.cell.per_rank_batch
    gain = ratio(spreads[cell.id], spreads[soonest.cell.id]).value
    if fastest.seconds_to_accuracy is None:
        later = f"do not reach {cell.until} in {fastest.epochs or 0:g} epochs"
        worth = gain - 1
    else:
        later = f"reach {cell.until} after {fastest.seconds_to_accuracy:.3g} s"
        worth = fastest.seconds_to_accuracy / soonest.seconds_to_accuracy - 1
    return [
        Look(
            "larger-batch-learns-later",
            f"{cell.model} on {ranks(cell.ranks)}: {cell.per_rank_batch} samples per rank are {gain:.2f} x as "
            f"fast as {batch} and {later}; with {batch} samples training takes {soonest.seconds_to_accuracy:.3g} s",
            f"train with --per-rank-batch {batch}, or give the larger batch another learning rate or more --max-epochs",
            worth,
            cell.model,
        )
    ]
