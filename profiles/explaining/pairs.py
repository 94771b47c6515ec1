"""The cells between which a model's time is lost, and the launches that tell why."""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction

from ..runs.cell import Cell, setting
from ..runs.strategies import OWN_SETTINGS, TENSORFLOW, of
from ..scaling.alike import same_but_ranks
from ..scaling.measure import Scaling

BOUNDS = (("feed", "resident"), ("strategy", "independent"))  # they leave out the feed, or the exchange


@dataclass(frozen=True, slots=True)
class Pair:
    """The cells of one model between which its time is lost: on one rank, and on the most."""

    one: Cell
    many: Cell

    @property
    def scale(self) -> Fraction:
        """The share of one rank's step that a step of many has to do: 1; with strong scaling, the share of a rank."""
        return Fraction(self.many.per_rank_batch, self.one.per_rank_batch)


def pairs(scaling: Scaling) -> list[Pair]:
    """The fastest settings on the most ranks of each model that ran on one rank and on more, horovod before other
    strategies.

    Upper bounds (BOUNDS) are no settings to train with: one is taken where nothing else was measured.
    """
    speed = {row.cell: row.samples_per_s_global or 0.0 for row in scaling.cells if row.samples_per_s_global}
    best: dict[str, Pair] = {}
    for many in speed:
        one = next((cell for cell in speed if cell.ranks == 1 and same_but_ranks(many, cell)), None)
        if one is None or many.ranks == 1 or many.spread.backend != TENSORFLOW:  # which alone is recorded
            continue
        before = best.get(many.model)
        if before is None or _rank_of(many, speed) > _rank_of(before.many, speed):
            best[many.model] = Pair(one, many)
    return list(best.values())


def _rank_of(cell: Cell, speed: dict[Cell, float]) -> tuple[int, bool, bool, float]:
    bound = any(getattr(cell, name) == value for name, value in BOUNDS)
    return cell.ranks, not bound, cell.strategy == "horovod", speed[cell]


def short(cell: Cell, steps: int) -> Cell:
    """The cell as it is recorded."""
    return replace(cell, steps=min(cell.steps, steps), until="")


def exchanging_nothing(cell: Cell) -> Cell | None:
    """The same ranks beside each other without the exchange; None where it cannot be left out."""
    if cell.strategy not in ("horovod", "independent"):
        return None
    unheeded = {name: setting(name).default for name in OWN_SETTINGS if name not in of("independent").heeds}
    return replace(cell, strategy="independent", until="", **unheeded)
