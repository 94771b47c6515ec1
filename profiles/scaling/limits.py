"""Find what limits each cell of a sweep with several strategies, from the timed launches alone."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

from ..runs.cell import Cell
from ..runs.strategies import TENSORFLOW
from .alike import same_work
from .rows import CellRow

WORTH_A_WORD = 0.05  # a part of less than this share of the step is not called the limit
COMPUTE = "compute"


def tell(rows: Sequence[CellRow]) -> None:
    """Set `limited_by` and `limited_share` of each row whose work was also done with another strategy, to the largest
    share: `input`, the part of the step that waits for its batch (`input_wait_share`); `bubble`, the pipeline bubble,
    in which stages of a split model are idle (`bubble_share`); or `exchange`, 1 - X / X(independent), the throughput
    that is lost compared with the same number of GPUs, the same feed and no exchange.

    If all three are below WORTH_A_WORD: `compute`, with the rest of the step. Both stay None if the exchange is
    unknown, because there is no `independent` cell, and no other share is half of the step; and for other backends than
    TensorFlow, whose steps include the copies of batches.
    """
    for row in rows:
        if row.cell.spread.backend != TENSORFLOW:
            continue
        if row.samples_per_s_global and any(_beside(row.cell, other.cell) for other in rows):
            row.limited_by, row.limited_share = _limit(row, rows)


def _limit(row: CellRow, rows: Sequence[CellRow]) -> tuple[str | None, float | None]:
    exchange = _exchange_share(row, rows)
    shares = {"input": row.input_wait_share, "bubble": row.bubble_share, "exchange": exchange}
    known = {name: share for name, share in shares.items() if share is not None}
    most = max(known, key=lambda name: known[name], default=None)
    if most is None or (exchange is None and known[most] < 1 / 2):
        return None, None
    if known[most] < WORTH_A_WORD:
        return COMPUTE, 1 - known[most]
    return most, known[most]


def _exchange_share(row: CellRow, rows: Sequence[CellRow]) -> float | None:
    cell = row.cell
    if cell.spread.exchange is None or cell.ranks == 1:
        return 0.0
    free = [other for other in rows if other.cell.strategy == "independent" and same_work(cell, other.cell)]
    alike = [other for other in free if (other.cell.step, other.cell.feed) == (cell.step, cell.feed)]
    rates = [other.samples_per_s_global for other in alike if other.samples_per_s_global]
    if not rates or not row.samples_per_s_global:
        return None
    return max(0.0, 1 - row.samples_per_s_global / median(rates))


def _beside(cell: Cell, other: Cell) -> bool:
    return cell.strategy != other.strategy and same_work(cell, other)
