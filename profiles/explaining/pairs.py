"""Choose the pairs of cells (on one rank, on the largest number of ranks) whose difference is explained, and the
launches that explain it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction

from ..runs.cell import Cell, setting
from ..runs.strategies import OWN_SETTINGS, TENSORFLOW, of
from ..scaling.alike import same_but_ranks
from ..scaling.measure import Scaling

# Settings without the feed, or without the exchange, which give upper bounds.
BOUNDS = (("feed", "resident"), ("strategy", "independent"))


@dataclass(frozen=True, slots=True)
class Pair:
    """A model's cells on one rank and on the largest number of ranks, whose step times are compared."""

    one: Cell
    many: Cell

    @property
    def scale(self) -> Fraction:
        """A rank's samples per step on many ranks / its samples on one: 1, or less with a fixed global batch."""
        return Fraction(self.many.per_rank_batch, self.one.per_rank_batch)


def pairs(scaling: Scaling) -> list[Pair]:
    """For each model that ran on one rank and on more, the cells with the fastest settings on the largest number of
    ranks; horovod comes before other strategies.

    Settings that only give upper bounds (BOUNDS) are chosen only if nothing else was measured."""
    speed = {row.cell: row.samples_per_s_global or 0.0 for row in scaling.cells if row.samples_per_s_global}
    best: dict[str, Pair] = {}
    for many in speed:
        one = next((cell for cell in speed if cell.ranks == 1 and same_but_ranks(many, cell)), None)
        if one is None or many.ranks == 1 or many.spread.backend != TENSORFLOW:  # other backends cannot be recorded
            continue
        before = best.get(many.model)
        if before is None or _rank_of(many, speed) > _rank_of(before.many, speed):
            best[many.model] = Pair(one, many)
    return list(best.values())


def _rank_of(cell: Cell, speed: dict[Cell, float]) -> tuple[int, bool, bool, float]:
    bound = any(getattr(cell, name) == value for name, value in BOUNDS)
    return cell.ranks, not bound, cell.strategy == "horovod", speed[cell]


def short(cell: Cell, steps: int) -> Cell:
    """The cell for a recording: at most `steps` steps, without a target accuracy."""
    return replace(cell, steps=min(cell.steps, steps), until="")


def exchanging_nothing(cell: Cell) -> Cell | None:
    """The cell with independent ranks, which exchange nothing; None if the cell's strategy needs the exchange."""
    if cell.strategy not in ("horovod", "independent"):
        return None
    unheeded = {name: setting(name).default for name in OWN_SETTINGS if name not in of("independent").heeds}
    return replace(cell, strategy="independent", until="", **unheeded)
