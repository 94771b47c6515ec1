"""A sweep in the terminal: a table, an efficiency bar a cell, what to look at first, what to doubt; and as CSV."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from dataclasses import asdict, fields
from typing import Any

from rich import box
from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from ..scaling import CellRow, LaunchRow, Scaling
from . import numbers

BAR_WIDTH = 10
# What a row need not say again when every row says it: shown once above the table instead.
SETTINGS = {
    "model": "model",
    "per_rank_batch": "batch",
    "global_batch": "global batch",
    "feed": "feed",
    "input_dtype": "input",
    "step": "step",
    "precision": "precision",
    "compression": "compression",
    "aggregate": "aggregate",
    "strategy": "strategy",
}


def terminal(scaling: Scaling, directory: str) -> RenderableType:
    """The whole report; it fits 80 columns and takes what it is given beyond."""
    parts: list[RenderableType] = [_heading(scaling, directory), _table(scaling.cells)]
    if scaling.looks:
        parts.append(Text("\nLook at first", style="bold"))
        parts += [_point(f"{i}.", look.text, look.next) for i, look in enumerate(scaling.looks, 1)]
    if scaling.doubts:
        parts.append(Text("\nDoubts", style="bold"))
        parts += [_point("-", f"{doubt.text} ({doubt.code})", doubt.next) for doubt in scaling.doubts]
    return Group(*parts)


def show(scaling: Scaling, directory: str, console: Console) -> None:
    """Print the report."""
    console.print(terminal(scaling, directory))


def _heading(scaling: Scaling, directory: str) -> RenderableType:
    common = {name: getattr(scaling.cells[0], name) for name in SETTINGS if not _varies(scaling.cells, name)}
    usual = {"strategy": "horovod", "compression": "none", "aggregate": 1, "global_batch": None}
    said = [f"{SETTINGS[name]} {value}" for name, value in common.items() if value != usual.get(name, ...)]
    launches = max(row.launches for row in scaling.cells)
    first = scaling.cells[0]
    said.append(f"{first.steps} steps after {first.warmup}")
    said.append(f"{launches} launches" if launches > 1 else "one launch")
    return Group(Text(f"\nScaling of {directory}", style="bold"), Text(", ".join(said), style="dim"), Text(""))


def _table(cells: Sequence[CellRow]) -> Table:
    shown = [name for name in SETTINGS if _varies(cells, name)]
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False, show_edge=False)
    for name in shown:
        table.add_column(SETTINGS[name], justify="right" if "batch" in name else "left", overflow="fold")
    table.add_column("ranks", justify="right")
    table.add_column("samples/s", justify="right", no_wrap=True)
    table.add_column("step", justify="right", no_wrap=True)
    table.add_column("waits", justify="right", no_wrap=True)
    table.add_column("efficiency", no_wrap=True)
    before: dict[str, Any] = {}
    for row in cells:
        settings = {name: getattr(row, name) for name in shown}
        if before and settings != before and row.ranks <= cells[0].ranks:
            table.add_section()
        before = settings
        table.add_row(*(_setting(value) for value in settings.values()), str(row.ranks), *_numbers(row))
    return table


def _setting(value: Any) -> str:
    return "" if value is None else str(value).replace("mixed_", "")


def _numbers(row: CellRow) -> tuple[RenderableType, ...]:
    if row.samples_per_s_global is None:
        status = Text(row.status, style="red" if row.status != "missing" else "dim")
        return (status, "", "", Text(row.reason, style="dim", overflow="ellipsis"))
    rate = Text(numbers.per_s(row.samples_per_s_global).removesuffix(" samples/s"))
    if row.samples_per_s_low is not None and row.samples_per_s_high is not None and row.ok > 1:
        half = (row.samples_per_s_high - row.samples_per_s_low) / 2 / row.samples_per_s_global
        rate.append(f" ±{half:.0%}".replace("±0%", "±<1%"), style="dim")
    step = numbers.duration(None if row.step_ms_p50 is None else row.step_ms_p50 * 1e6)
    return rate, step, numbers.share(row.input_wait_share), _efficiency(row)


def _efficiency(row: CellRow) -> Text:
    """`████████▊   88 % ±3`; the bar ends at 100 %."""
    if row.efficiency is None:
        return Text("n/a: no 1-rank cell", style="dim")
    text = _bar(row.efficiency)
    text.append(f" {row.efficiency:4.0%}")
    if row.efficiency_error and row.ranks > 1:
        text.append(f" ±{100 * row.efficiency_error:.0f}", style="dim")
    if row.ok < row.launches:
        text.append(f" ({row.ok} of {row.launches})", style="red")
    return text


def _bar(share: float) -> Text:
    eighths = round(min(share, 1.0) * BAR_WIDTH * 8)
    full, rest = divmod(eighths, 8)
    bar = "█" * full + (" ▏▎▍▌▋▊▉"[rest] if rest else "")
    return Text(bar.ljust(BAR_WIDTH, "·"), style="green" if share >= 0.9 else "yellow" if share >= 0.7 else "red")


def _point(mark: str, text: str, then: str) -> RenderableType:
    table = Table.grid(padding=(0, 1))
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    table.add_row(mark, Text(text))
    table.add_row("", Text(f"-> {then}", style="cyan"))
    return Padding(table, (0, 0, 0, 1))


def _varies(cells: Sequence[CellRow], name: str) -> bool:
    return len({getattr(row, name) for row in cells}) > 1


def csv_text(rows: Sequence[LaunchRow] | Sequence[CellRow], kind: type) -> str:
    """The rows with a header line; unknown is empty."""
    out = io.StringIO()
    writer = csv.DictWriter(out, [field.name for field in fields(kind)], lineterminator="\n")
    writer.writeheader()
    writer.writerows(asdict(row) for row in rows)
    return out.getvalue()
