"""A sweep's strategies beside each other in the terminal: one table for each work that several of them did."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from .. import numbers
from ..cell import TELLING
from ..scaling.limits import COMPUTE
from ..scaling.rows import HOW, CellRow
from .tables.report import TOLD

Column: TypeAlias = "tuple[str, Callable[[CellRow], str]]"
WIDE = 1000  # as wide as any table wants
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
    faults = [Text(f"{row.cell.strategy}: {row.status}: {row.reason}", style="red") for row in rows if row.reason]
    return [Text(f"\n{_work(rows[0])}", style="bold"), _Beside(rows), *faults]


class _Beside:
    """One table where the terminal is as wide as it, else two, of which the first holds speeds."""

    def __init__(self, rows: Sequence[CellRow]) -> None:
        limited = any(row.limited_by for row in rows)
        told = [one for one in TOLD if one[0] not in LIMIT and any(getattr(row, one[0]) is not None for row in rows)]
        self._rows = rows
        self._speeds: list[Column] = [
            ("samples/s", _rate),
            ("", half),
            ("step", _step),
            *([("limited by", _limit)] if limited else []),
            *(_column(*one) for one in told if one[0] == "of_horovod"),
        ]
        self._others: list[Column] = [_column(*one) for one in told if one[0] != "of_horovod"]
        self._differs = [one for one in HOW_SETTINGS if len({getattr(row.cell, one.name) for row in rows}) > 1]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        whole = self._grid([*self._speeds, *self._others])
        wide = Measurement.get(console, options.update(width=WIDE), whole).maximum
        names = [self._name(row).plain for row in self._rows]  # which may take more lines than one
        if wide - max(map(len, names)) + _longest_word(names) <= options.max_width:
            yield whole
        else:
            yield self._grid(self._speeds)
            if self._others:
                yield Text()
                yield self._grid(self._others)

    def _grid(self, columns: Sequence[Column]) -> Table:
        grid = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="dim")
        names = [self._name(row) for row in self._rows]
        grid.add_column("strategy", min_width=_longest_word([name.plain for name in names]))
        for title, _ in columns:
            grid.add_column(title, justify="right", no_wrap=True)
        for name, row in zip(names, self._rows, strict=True):
            if row.samples_per_s_global is None:
                grid.add_row(name, Text(row.status, style="red"))
            else:
                grid.add_row(name, *(form(row) for _, form in columns))
        return grid

    def _name(self, row: CellRow) -> Text:
        ways = filter(None, (one.said(getattr(row.cell, one.name)) for one in self._differs))
        return Text(row.cell.strategy).append("".join(f", {way}" for way in ways), style="dim")


def _longest_word(names: Sequence[str]) -> int:
    return max(len(word) for name in names for word in name.split())


def _column(key: str, title: str, form: Callable[[Any], str]) -> Column:
    return title, lambda row: form(getattr(row, key))


def _limit(row: CellRow) -> str:
    """`exchange 25 %`."""
    if row.limited_by == COMPUTE:
        return COMPUTE
    return f"{row.limited_by} {100 * (row.limited_share or 0):.0f} %" if row.limited_by else numbers.UNKNOWN


def _rate(row: CellRow) -> str:
    return numbers.per_s(row.samples_per_s_global).removesuffix(" samples/s")


def _step(row: CellRow) -> str:
    return numbers.duration(None if row.step_ms_p50 is None else row.step_ms_p50 * 1e6)


def half(row: CellRow) -> str:
    """`±1.2 %`: half of the interval over launches; empty for one launch."""
    if row.samples_per_s_low is None or row.samples_per_s_high is None or row.ok <= 1 or not row.samples_per_s_global:
        return ""
    return f"±{(row.samples_per_s_high - row.samples_per_s_low) / 2 / row.samples_per_s_global * 100:.1f} %"
