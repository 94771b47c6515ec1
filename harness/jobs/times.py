"""Estimates how long a sweep's launches take."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from statistics import median

from profiles.runs.records import Cell
from profiles.scaling.rows import LaunchRow


@dataclass(frozen=True, slots=True)
class Usual:
    """Usual seconds of a cell's first launch, on one rank and on several; `again`: a later launch takes this part of
    the first one's time."""

    one_s: float
    several_s: float
    again: float


# On H100s and H200s ResNet-50 took 56 to 73 s on one rank, 35 of them in XLA's compiler; the second launch took 30 to
# 35 s, because compiled programs are cached. On several GPUs the first step came 10 to 30 s sooner than on one: they
# need another program, but its kernels are already chosen (docs/results, 2026-11-21 and 2026-11-26). On two CPU cores
# most of the time is TensorFlow's import.
GPU = Usual(70, 50, 0.55)
CPU = Usual(10, 18, 1.0)


class Times:
    """Durations of launches in seconds: as measured in this sweep; before a cell's first launch, as assumed from other
    machines."""

    def __init__(self, gpus: int, rows: Iterable[LaunchRow] = ()) -> None:
        self._usual = GPU if gpus else CPU
        self._took: dict[Cell, list[float]] = {}
        for row in rows:
            if row.status == "ok" and not row.profiled:
                self._took.setdefault(row.cell, []).append(row.seconds)

    def next_s(self, cell: Cell) -> float:
        """The expected duration of the cell's next launch, in s."""
        took = self._took.get(cell)
        if not took:
            return self._usual.one_s if cell.ranks == 1 else self._usual.several_s
        return median(took[1:]) if took[1:] else self._usual.again * took[0]

    def planned_s(self, cells: Collection[Cell], launches: int) -> float:
        """The duration of `launches` launches of each of the cells, in s: launches so far as measured, the rest as
        expected. Cells that never ran do not count."""
        return sum(
            sum(took) + max(0, launches - len(took)) * self.next_s(cell)
            for cell, took in self._took.items()
            if cell in cells
        )
