"""Find cells that differ in one setting only, and compare their throughput."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from ..ground.stats import Ratio, Spread, ratio
from ..runs.cell import SETTINGS, Cell
from ..runs.strategies import OWN_SETTINGS

# Settings that say how a model is trained; all other settings say which model and data.
HOW = ("strategy", "feed", "step", *OWN_SETTINGS)


def efficiency_of(cell: Cell, cells: Iterable[Cell], spreads: dict[str, Spread]) -> Ratio | None:
    """Scaling efficiency X(N) / (N X(1)); X is the throughput, and X(1) that of the same cell on one rank.

    None if that cell is missing or has no throughput; exactly 1 for a cell on one rank."""
    if cell.id not in spreads:
        return None
    one = next((other for other in cells if other.ranks == 1 and same_but_ranks(cell, other)), None)
    if one is None or one.id not in spreads:
        return None
    if cell.id == one.id:
        return Ratio(1.0, 0.0, 1.0, 1.0, 1.0)
    return ratio(spreads[cell.id], spreads[one.id], scale=1 / cell.ranks)


def of_horovod(cell: Cell, cells: Iterable[Cell], spreads: dict[str, Spread]) -> float | None:
    """X(cell) / X(horovod), where X is the throughput for the same work. horovod's cell is that with the same step and
    feed or, if there is none, the fastest. None if no cell of horovod does this work."""
    beside = [
        other for other in cells if other.strategy == "horovod" and other.id in spreads and same_work(cell, other)
    ]
    alike = [other for other in beside if (other.step, other.feed) == (cell.step, cell.feed)]
    if cell.id not in spreads or not beside:
        return None
    if cell.strategy == "horovod":
        return 1.0
    return spreads[cell.id].median / max(spreads[other.id].median for other in alike or beside)


def same_work(cell: Cell, other: Cell) -> bool:
    """True if two cells train the same model on the same batches and the same number of GPUs."""
    how = {one.name: getattr(cell, one.name) for one in SETTINGS if one.name in HOW}
    return replace(other, **how) == cell


def same_but_ranks(cell: Cell, other: Cell) -> bool:
    """True if two cells differ in nothing but their ranks (and, with a fixed global batch, the batch per rank)."""
    batch = other.per_rank_batch if cell.global_batch is not None else cell.per_rank_batch
    return replace(cell, ranks=other.ranks, per_rank_batch=batch) == other
