"""A forecast on a terminal: a line for each number of GPUs, with an efficiency bar."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console

from ...ground import numbers
from ...predicting.throughput import Forecast, Row
from ..charts.chart import Chart
from ..charts.sweep import efficiency
from .recording import doubted
from .sweep import bar
from .widths import Column, Fitted, Prose

_BAR = 24  # width of a bar, so that a line fits 80 columns


def show(forecasts: Sequence[Forecast], console: Console) -> None:
    """Print each forecast: its rows, the number of GPUs from which one more adds little, what-ifs and doubts."""
    for one in forecasts:
        console.print(Prose(one.label, "bold"))
        rows = [(str(row.gpus), f"{row.per_s:,.0f}", bar(row.efficiency, _BAR), _share(row)) for row in one.rows]
        titles = [Column("GPUs", right=True), Column("samples/s", right=True), Column("efficiency"), Column()]
        console.print(Fitted(titles, rows))
        if one.stops_paying is not None:
            gpus = numbers.counted(one.stops_paying, "GPU")
            console.print(Prose(f"from {gpus} on, one more GPU adds less than half of one GPU's rate"))
        for each in one.what_if:
            console.print(Prose(f"{each.row.gpus:,} GPUs, {each.change}: {_share(each.row)}"))
        for doubt in one.doubts:
            console.print(Prose(doubted(doubt), "dim"))
        console.print()


def chart(forecasts: Sequence[Forecast]) -> Chart:
    """Efficiency over the number of GPUs; predicted points have an interval, measured points have none."""
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
