"""A sweep's strategies compared on the terminal: a table for each set of cells that do the same work with different
strategies."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from rich.console import RenderableType
from rich.text import Text

from ...ground import numbers
from ...runs.cell import TELLING
from ...runs.setting import Setting
from ...scaling.alike import HOW
from ...scaling.limits import COMPUTE
from ...scaling.rows import CellRow
from ..tables.sweep_cells import TOLD, milliseconds
from .widths import Column, Fitted, Prose

Shown: TypeAlias = "tuple[str, Callable[[CellRow], str]]"
LIMIT = ("limited_by", "limited_share")
HOW_SETTINGS = [one for one in TELLING if one.name in HOW and one.name != "strategy"]


def compared(cells: Sequence[CellRow]) -> list[list[CellRow]]:
    """Groups of cells that do the same work with several strategies, in the sweep's order; in a group horovod is first,
    then the fastest."""
    groups: dict[str, list[CellRow]] = {}
    for row in cells:
        groups.setdefault(_work(row), []).append(row)
    several = [rows for rows in groups.values() if len({row.cell.strategy for row in rows}) > 1]
    return [sorted(rows, key=lambda row: (row.of_horovod != 1, -(row.samples_per_s_global or 0))) for rows in several]


def _work(row: CellRow) -> str:
    said = (one.said(getattr(row.cell, one.name)) for one in TELLING if one.name not in HOW)
    return ", ".join(filter(None, said))


def table(rows: Sequence[CellRow]) -> list[RenderableType]:
    """The text of one group from `compared`: a heading, a table with a line per strategy, then notes and failures."""
    faults = [Prose(f"{row.cell.strategy}: {row.status}: {row.reason}", "red") for row in rows if row.reason]
    notes: dict[str, list[str]] = {}
    for row in rows:
        if row.note and row.samples_per_s_global:
            notes.setdefault(row.note, []).append(row.cell.strategy)
    noted = [Prose(f"{', '.join(dict.fromkeys(names))}: {note}", "dim") for note, names in notes.items()]
    return [Prose(f"\n{_work(rows[0])}", "bold"), _beside(rows), *noted, *faults]


def _beside(rows: Sequence[CellRow]) -> Fitted:
    """The table of a group. Speeds come first, because a narrow terminal splits the columns over several tables."""
    limited = any(row.limited_by for row in rows)
    told = [one for one in TOLD if one[0] not in LIMIT and any(getattr(row, one[0]) is not None for row in rows)]
    columns: list[Shown] = [
        ("samples/s", lambda row: numbers.per_s(row.samples_per_s_global).removesuffix(" samples/s")),
        ("", half),
        ("step", lambda row: milliseconds(row.step_ms_p50)),
        *([("limited by", _limit)] if limited else []),
        *(_column(*one) for one in told if one[0] == "of_horovod"),
        *(_column(*one) for one in told if one[0] != "of_horovod"),
    ]
    differs = [one for one in HOW_SETTINGS if len({getattr(row.cell, one.name) for row in rows}) > 1]
    shown = []
    for row in rows:
        cells = [Text(form(row)) for _, form in columns]
        if row.samples_per_s_global is None:
            cells = [Text(row.status, style="red"), *(Text() for _ in columns[1:])]
        shown.append([_name(row, differs), *cells])
    titles = [Column("strategy"), *(Column(title, right=True) for title, _ in columns)]
    return Fitted(titles, shown, style="dim")


def _name(row: CellRow, differs: Sequence[Setting]) -> Text:
    ways = filter(None, (one.said(getattr(row.cell, one.name)) for one in differs))
    return Text(row.cell.strategy).append("".join(f", {way}" for way in ways), style="dim")


def _column(key: str, title: str, form: Callable[[Any], str]) -> Shown:
    return title, lambda row: form(getattr(row, key))


def _limit(row: CellRow) -> str:
    """The part of the step that limits a cell, with its share of the step, such as `exchange 25 %`."""
    if row.limited_by == COMPUTE:
        return COMPUTE
    return f"{row.limited_by} {100 * (row.limited_share or 0):.0f} %" if row.limited_by else numbers.UNKNOWN


def half(row: CellRow) -> str:
    """Half of the interval over launches, such as `±1.2 %`; empty for one launch."""
    if row.samples_per_s_low is None or row.samples_per_s_high is None or row.ok <= 1 or not row.samples_per_s_global:
        return ""
    return f"±{(row.samples_per_s_high - row.samples_per_s_low) / 2 / row.samples_per_s_global * 100:.1f} %"
