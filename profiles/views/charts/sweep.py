"""The charts of a sweep: throughput and efficiency with their intervals."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from ...runs.cell import TELLING
from .chart import Chart, Row, Spec, axis, series_colour

# Settings that the x axis may show, with the axis's title; the first setting in which the cells differ is used.
ALONG: Final = {"ranks": "ranks", "per_rank_batch": "samples per rank and step"}


def of_sweep(cells: Sequence[Row]) -> list[Chart]:
    """Charts of the measured cells (rows of summary.csv): the throughput of each model over ranks, and efficiency.

    If all cells of a model have the same number of ranks but different batches, the throughput is drawn over the batch.
    """
    measured = [cell for cell in cells if cell["samples_per_s_global"] is not None]
    by_model = [[cell for cell in measured if cell["model"] == model] for model in _distinct(measured, "model")]
    charts = []
    for mine in by_model:
        along = next((key for key in ALONG if len(_distinct(mine, key)) > 1), None)
        charts += [throughput(mine, along)] if along else []
    related = [cell for cell in measured if cell["efficiency"] is not None]
    return charts + ([efficiency(related)] if len(_distinct(related, "ranks")) > 1 else [])


def _distinct(cells: Sequence[Row], key: str) -> list[Any]:
    return list(dict.fromkeys(cell[key] for cell in cells))


def throughput(cells: Sequence[Row], along: str) -> Chart:
    """The chart of one model's samples/s over ranks (or the batch), with the interval over launches. Over ranks it also
    has the line of ideal scaling from one rank."""
    rows = [
        {
            along: cell[along],
            "cell": _series(cell, cells, along),
            "rate": cell["samples_per_s_global"],
            "low": cell["samples_per_s_low"],
            "high": cell["samples_per_s_high"],
        }
        for cell in cells
    ]
    most = max(row[along] for row in rows)
    ideal = [
        {"cell": row["cell"], "ranks": ranks, "rate": row["rate"] * ranks}
        for row in rows
        if row.get("ranks") == 1
        for ranks in {1, most}
    ]
    dashes = ", the dashed line is ideal scaling from one rank" if ideal else ""
    model = cells[0]["model"]
    return Chart(
        f"throughput-{model}",
        f"Throughput, {model}",
        f"Samples per second over {ALONG[along]}; bars are the interval over launches{dashes}.",
        _curve(rows, ideal, along, axis("rate", "samples/s, all ranks")),
    )


def efficiency(cells: Sequence[Row]) -> Chart:
    """The chart of efficiency over ranks, with the interval; the ideal is 100 %."""
    rows = [
        {
            "ranks": cell["ranks"],
            "cell": _series(cell, cells, "ranks"),
            "efficiency": cell["efficiency"],
            "low": cell["efficiency_low"],
            "high": cell["efficiency_high"],
        }
        for cell in cells
    ]
    ranks = sorted({row["ranks"] for row in rows})
    ideal = [{"cell": "ideal", "ranks": one, "efficiency": 1.0} for one in (ranks[0], ranks[-1])]
    return Chart(
        "efficiency",
        "Efficiency",
        "Throughput of N ranks divided by N times one rank's throughput; bars are the interval, the dashed line is "
        "the ideal, 100 %.",
        _curve(rows, ideal, "ranks", axis("efficiency", "efficiency", format="%")),
    )


def _curve(rows: list[Spec], ideal: list[Spec], along: str, y: Spec) -> Spec:
    """The chart of `rows` over the setting `along`; a row's `low` and `high` are its interval."""
    ticks = sorted({row[along] for row in rows})
    scale: Spec = {"domain": [min(ticks) - 0.2, max(ticks) + 0.2], "nice": False}
    if along != "ranks":  # logarithmic, because sweeps double the batch
        scale = {"type": "log", "base": 2, "domain": [min(ticks) * 0.9, max(ticks) * 1.1], "nice": False}
    x = {
        "field": along,
        "type": "quantitative",
        "title": ALONG[along],
        "axis": {"values": ticks, "format": "d"},
        "scale": scale,
    }
    colour = {
        "field": "cell",
        "type": "nominal",
        "title": None,
        "legend": {"columns": 1, "labelLimit": 600},
        "scale": series_colour(_distinct(rows, "cell")),
    }
    bars = {
        "data": {"values": [row for row in rows if row["low"] is not None and row["high"] is not None]},
        "mark": {"type": "rule", "strokeWidth": 2},
        "encoding": {"x": x, "y": {"field": "low", "type": "quantitative"}, "y2": {"field": "high"}, "color": colour},
    }
    line = {
        "data": {"values": rows},
        "mark": {"type": "line", "point": {"size": 64}},
        "encoding": {"x": x, "y": y, "color": colour},
    }
    dashes = {
        "data": {"values": ideal},
        "mark": {"type": "line", "strokeDash": [5, 4], "opacity": 0.55},
        "encoding": {"x": x, "y": y, "detail": {"field": "cell"}},
    }
    return {"width": 460, "height": 260, "layer": [dashes, bars, line]}


def _series(cell: Row, cells: Sequence[Row], along: str) -> str:
    """The model, and the settings in which the sweep's cells differ."""
    told = [
        one for one in TELLING if one.name not in ("model", along) and len({other.get(one.name) for other in cells}) > 1
    ]
    return ", ".join(filter(None, [str(cell["model"]), *(one.said(cell.get(one.name, one.default)) for one in told)]))
