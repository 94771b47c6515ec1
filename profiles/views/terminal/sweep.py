"""A sweep on the terminal: tables with an efficiency bar per cell, what to look at first, doubts."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.text import Text

from ...explaining.explained import Explained
from ...ground import numbers
from ...runs.cell import TELLING, Cell
from ...runs.setting import Setting
from ...scaling.measure import Scaling
from ...scaling.rows import CellRow, columns
from ..tables import sweep_cells
from . import strategies, tables
from .explained import blocks
from .widths import Column, Fitted, Prose, Row

COLUMNS = ("ranks", "samples/s", "", "median step", "waits", "memory")
BAR_WIDTH = range(10, 41)
BESIDE_BAR = 72  # width of a line without its bar; the efficiency after the bar takes about 20


def terminal(scaling: Scaling, directory: str, width: int = 80, explained: Sequence[Explained] = ()) -> RenderableType:
    """The whole report, for a terminal of `width` columns (80 or more). It begins with why N ranks are not N times as
    fast as one."""
    bar = _bar_width(width)
    parts: list[RenderableType] = [*blocks(explained, directory), _heading(scaling, directory)]
    beside = strategies.compared(scaling.cells)
    for rows in beside:
        parts += strategies.table(rows)
    in_tables = {id(row) for rows in beside for row in rows}
    every = _groups(scaling.cells)
    groups = [(label, rows) for label, rows in every if len(rows) > 1 or id(rows[0]) not in in_tables]
    ahead = [label for label, rows in groups if all(row.status == "missing" for row in rows)]
    if len(ahead) < len(groups):  # groups of cells that have not begun are named on one line instead of in table rows
        groups = [(label, rows) for label, rows in groups if label not in ahead]
    if groups:
        parts += [Text(), _cells(groups, bar)]
        if ahead and groups[0][0] not in ahead:
            parts.append(Prose(f"\nnot launched yet: {'; '.join(ahead)}", style="dim"))
    parts += _legend(scaling.cells)
    parts += _tuned(scaling.cells)
    parts += learning(scaling.cells)
    if scaling.looks:
        parts.append(Text("\nLook at first", style="bold"))
        parts += [_point(f"{i}.", look.text, look.next) for i, look in enumerate(scaling.looks, 1)]
    if scaling.doubts:
        parts.append(Text("\nDoubts", style="bold"))
        parts += [_point("-", f"{doubt.text} ({doubt.code})", doubt.next) for doubt in scaling.doubts]
    return Group(*parts)


def show(scaling: Scaling, directory: str, console: Console, explained: Sequence[Explained] = ()) -> None:
    """Print the report."""
    console.print(terminal(scaling, directory, console.width, explained))


def show_curve(scaling: Scaling, cells: Sequence[Cell], console: Console) -> None:
    """Print the scaling table of `cells`, which differ only in ranks."""
    rows = [row for row in scaling.cells if row.cell in cells]
    label = ", ".join(_settings(rows[0], [one for one in TELLING if one.name != "ranks"]))
    console.print(_cells([(label, rows)], _bar_width(console.width)))


def show_explained(explained: Sequence[Explained], directory: str, console: Console) -> None:
    """Print the explanation why N ranks are not N times as fast as one."""
    console.print(Group(*blocks(explained, directory)))


def _heading(scaling: Scaling, directory: str) -> RenderableType:
    first = scaling.cells[0]
    said = _settings(first, [one for one in TELLING if not _varies(scaling.cells, one)])
    steps = f"{first.cell.steps} steps after {first.cell.warmup}"
    epochs = f"until {first.cell.until}, {first.cell.max_epochs} epochs of {first.cell.epoch_samples:,} samples at most"
    said += [epochs if first.cell.until else steps]
    said += [f"{first.launches} launches" if first.launches > 1 else "one launch"]
    return Group(Text(f"\nScaling of {directory}", style="bold"), Prose(", ".join(said), style="dim"))


def learning(cells: Sequence[CellRow]) -> list[RenderableType]:
    """A table of the time in which each cell trained to the accuracy of --until; empty without --until."""
    found = sweep_cells.learning([columns(row) for row in cells])
    if not found.rows:
        return []
    return [Text(f"\n{found.title}", style="bold"), tables.fitted(found)]


def _tuned(cells: Sequence[CellRow]) -> list[RenderableType]:
    """The values that Horovod's autotune chose, a line per cell."""
    return [
        Prose(
            f"\nautotune, {row.cell.model} on {row.cell.ranks} ranks, {row.cell.per_rank_batch} per rank: fusion "
            f"{row.tuned_fusion_mib:.2f} MiB, cycle {row.tuned_cycle_ms:.2f} ms",
            style="dim",
        )
        for row in cells
        if row.tuned_cycle_ms is not None
    ]


def _legend(cells: Sequence[CellRow]) -> list[RenderableType]:
    """Lines that explain the two kinds of ±; empty if no cell has an interval."""
    told = next((row for row in cells if row.coverage), None)
    if told is None:
        return []
    text = (
        f"± after samples/s: half the width of {told.interval} over {told.ok} launches; this interval contains the "
        f"true median with a probability of {100 * (told.coverage or 0):.0f} %"
    )
    if any(row.efficiency_error and row.cell.ranks > 1 for row in cells):
        text += "; after efficiency: 1.4826 x MAD of both cells' launches"
    return [Prose(f"\n{text}", style="dim")]


def _groups(cells: Sequence[CellRow]) -> list[tuple[str, list[CellRow]]]:
    """Groups of cells that differ only in ranks, by label. The label names the settings in which the groups differ."""
    telling = [one for one in TELLING if one.name != "ranks" and _varies(cells, one)]
    # With a fixed global batch, the batch per rank follows from the ranks.
    if any(row.cell.global_batch is not None for row in cells):
        telling = [one for one in telling if one.name != "per_rank_batch"]
    groups: dict[str, list[CellRow]] = {}
    for row in cells:
        groups.setdefault(", ".join(_settings(row, telling)) or row.cell.model, []).append(row)
    return [(label, sorted(rows, key=lambda row: row.cell.ranks)) for label, rows in groups.items()]


def _settings(row: CellRow, settings: Sequence[Setting]) -> list[str]:
    return list(filter(None, (one.said(getattr(row.cell, one.name)) for one in settings)))


def _cells(groups: Sequence[tuple[str, list[CellRow]]], bar: int) -> Fitted:
    """The lines of the table: one per cell, under the label of the cell's group."""
    lines: list[Row] = []
    for label, rows in groups:
        lines += [Text(f"\n{label}", style="bold"), *(_line(row, bar) for row in rows)]
    return Fitted([*(Column(title, right=True) for title in COLUMNS), Column("efficiency")], lines)


def _line(row: CellRow, bar: int) -> Row:
    ranks = f"{row.cell.ranks:>5}"
    # A cell that was not measured has its status and the reason, across all columns.
    if row.samples_per_s_global is None:
        style = "dim" if row.status in ("missing", "interrupted") else "red"
        return Text(f"{ranks}  ").append(f"{row.status}: {row.reason}", style=style)
    return [
        ranks,
        numbers.per_s(row.samples_per_s_global).removesuffix(" samples/s"),
        strategies.half(row),
        sweep_cells.milliseconds(row.step_ms_p50),
        numbers.share(row.input_wait_share),
        numbers.gigabytes(row.memory_gb),
        _efficiency(row, bar),
    ]


def _efficiency(row: CellRow, width: int) -> Text:
    """The bar, efficiency and error, such as `████████▊· 88 % ±3`; the bar ends at 100 %."""
    if row.efficiency is None:
        text = Text("n/a: no cell on 1 rank", style="dim")
    else:
        text = bar(row.efficiency, width)
        text.append(f" {100 * row.efficiency:3.0f} %")
        if row.efficiency_error and row.cell.ranks > 1:
            text.append(f" ±{100 * row.efficiency_error:.0f}", style="dim")
    if row.ok < row.launches:
        text.append(f" {row.ok}/{row.launches} ok", style="red")
    return text


def _bar_width(width: int) -> int:
    return max(BAR_WIDTH.start, min(width - BESIDE_BAR, BAR_WIDTH.stop - 1))


def bar(share: float, width: int) -> Text:
    """A bar of `width` columns that ends at 100 %, coloured by how good the efficiency is."""
    eighths = round(min(share, 1.0) * width * 8)
    full, rest = divmod(eighths, 8)
    bar = "█" * full + (" ▏▎▍▌▋▊▉"[rest] if rest else "")
    return Text(bar.ljust(width, "·"), style="green" if share >= 0.9 else "yellow" if share >= 0.7 else "red")


def _point(mark: str, text: str, then: str) -> RenderableType:
    told = Text(f"{mark} {text}\n").append(f"{' ' * len(mark)} -> {then}", style="cyan")
    return Padding(Prose(told), (0, 0, 0, 1))


def _varies(cells: Sequence[CellRow], setting: Setting) -> bool:
    return len({getattr(row.cell, setting.name) for row in cells}) > 1
