"""A sweep's strategies beside each other in the terminal: one table for each work that several of them did."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from .. import numbers
from ..cell import TELLING
from ..scaling.limits import COMPUTE
from ..scaling.rows import HOW, CellRow
from .tables.report import TOLD

LIMIT = ("limited_by", "limited_share")
HOW_SETTINGS = [one for one in TELLING if one.name in HOW and one.name != "strategy"]


def compared(cells: Sequence[CellRow]) -> list[list[CellRow]]:
    """Rows of the same work by several strategies, horovod first and then the fastest; in the sweep's order."""
    groups: dict[str, list[CellRow]] = {}
    for row in cells:
        groups.setdefault(_work(row), []).append(row)
    several = [rows for rows in groups.values() if len({row.cell.strategy for row in rows}) > 1]
    return [sorted(rows, key=lambda row: (row.of_horovod != 1, -(row.samples_per_s_global or 0))) for rows in several]


def _work(row: CellRow) -> str:
    said = (one.said(getattr(row.cell, one.name)) for one in TELLING if one.name not in HOW)
    return ", ".join(filter(None, said))


def table(rows: Sequence[CellRow]) -> list[RenderableType]:
    """What was trained, and a line for each way."""
    told = [one for one in TOLD if one[0] not in LIMIT and any(getattr(row, one[0]) is not None for row in rows)]
    limited = any(row.limited_by for row in rows)
    differs = [one for one in HOW_SETTINGS if len({getattr(row.cell, one.name) for row in rows}) > 1]
    grid = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="dim")
    grid.add_column("strategy")
    for title in ("samples/s", "", "step", *(["limited by"] if limited else []), *(title for _, title, _ in told)):
        grid.add_column(title, justify="right", no_wrap=True)
    for row in rows:
        ways = filter(None, (one.said(getattr(row.cell, one.name)) for one in differs))
        name = Text(row.cell.strategy).append("".join(f", {way}" for way in ways), style="dim")
        if row.samples_per_s_global is None:
            grid.add_row(name, Text(row.status, style="red"))
        else:
            limit = [_limit(row)] if limited else []
            grid.add_row(name, *_numbers(row), *limit, *(form(getattr(row, key)) for key, _, form in told))
    faults = [Text(f"{row.cell.strategy}: {row.status}: {row.reason}", style="red") for row in rows if row.reason]
    return [Text(f"\n{_work(rows[0])}", style="bold"), grid, *faults]


def _limit(row: CellRow) -> str:
    """`exchange 25 %`."""
    if row.limited_by == COMPUTE:
        return COMPUTE
    return f"{row.limited_by} {100 * (row.limited_share or 0):.0f} %" if row.limited_by else numbers.UNKNOWN


def _numbers(row: CellRow) -> tuple[str, str, str]:
    rate = numbers.per_s(row.samples_per_s_global).removesuffix(" samples/s")
    return rate, half(row), numbers.duration(None if row.step_ms_p50 is None else row.step_ms_p50 * 1e6)


def half(row: CellRow) -> str:
    """`±1.2 %`: half of the interval over launches; empty for one launch."""
    if row.samples_per_s_low is None or row.samples_per_s_high is None or row.ok <= 1 or not row.samples_per_s_global:
        return ""
    return f"±{(row.samples_per_s_high - row.samples_per_s_low) / 2 / row.samples_per_s_global * 100:.1f} %"
