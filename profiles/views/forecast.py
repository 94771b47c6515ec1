"""A forecast on a terminal: a line for each count of GPUs, with its bar."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from .. import numbers
from ..judging.forecast import Forecast, Row
from .charts.chart import Chart
from .charts.sweep import efficiency
from .sweep import bar

_BAR = 24  # with it a line fits 80 columns


def show(forecasts: Sequence[Forecast], console: Console) -> None:
    """Print each curve, where another GPU stops paying, and the doubts."""
    for one in forecasts:
        console.print(Text(one.label, style="bold"))
        table = Table.grid(padding=(0, 2))
        for justify in ("right", "right", "left", "left"):
            table.add_column(justify=justify, no_wrap=True)
        table.add_row("GPUs", "samples/s", "efficiency", "")
        for row in one.rows:
            table.add_row(str(row.gpus), f"{row.per_s:,.0f}", bar(row.efficiency, _BAR), _share(row))
        console.print(table)
        if one.stops_paying is not None:
            gpus = f"{one.stops_paying:,} GPU{'s' * (one.stops_paying > 1)}"
            console.print(f"from {gpus} on, one more adds less than half of what one alone does")
        for each in one.what_if:
            console.print(f"{each.row.gpus:,} GPUs, {each.change}: {_share(each.row)}", highlight=False)
        for doubt in one.doubts:
            console.print(Text(f" - {doubt.text} ({doubt.code})\n   -> {doubt.next}", style="dim"))
        console.print()


def chart(forecasts: Sequence[Forecast]) -> Chart:
    """Efficiency over GPUs, with the interval of what was not measured."""
    rows = [
        {
            "model": one.label,
            "ranks": row.gpus,
            "efficiency": row.efficiency,
            "efficiency_low": None if row.measured else row.low,
            "efficiency_high": None if row.measured else row.high,
        }
        for one in forecasts
        for row in one.rows
    ]
    return efficiency(rows)


def _share(row: Row) -> str:
    if row.measured:
        return f"{numbers.share(row.efficiency)} measured"
    return f"{numbers.share(row.efficiency)} ({numbers.share(row.low)} to {numbers.share(row.high)})"
