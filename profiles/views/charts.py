"""The charts, each as a Vega-Lite specification that becomes SVG or PNG without a browser.

The page shows them in its own colours of text and lines (`PAGE`), files stand on white (`PAPER`). All data are those of
the JSON: charts scale to ms and percent, they compute nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from ..measures import OWNERS
from .files import written_whole
from .palette import OWNERS as LOOKS
from .report_tables import SETTINGS
from .tables import Document, gpu_title

Spec = dict[str, Any]
Row = Mapping[str, Any]
# What curves of a sweep are drawn over, the first in which its cells differ.
ALONG: Final = {"ranks": "ranks", "per_rank_batch": "samples a rank and step"}
MOST_BARS = 240  # steps drawn one by one; more become the mean of neighbours
# Lines in charts that do not tell of owners; apart under colour blindness like the owners' own colours.
SERIES: Final = ("#2574e1", "#cf7a14", "#2e6f59", "#7a3fb0", "#c9261a", "#44b4e6", "#7a2420", "#8a8090")


@dataclass(frozen=True, slots=True)
class Theme:
    ink: str
    faint: str
    background: str | None
    font: str


PAPER: Final = Theme("#1c2430", "#d9dee5", "#ffffff", "Liberation Sans, Arial, sans-serif")
PAGE: Final = Theme("currentColor", "var(--line)", None, "inherit")


@dataclass(frozen=True, slots=True)
class Chart:
    id: str
    title: str
    text: str  # what it shows, for who cannot see it
    spec: Spec

    def svg(self, theme: Theme = PAPER, *, legend: bool = True) -> str:
        import vl_convert

        spec = _themed(self.spec, theme)
        spec["config"]["legend"]["disable"] = not legend
        svg: str = vl_convert.vegalite_to_svg(spec)
        return svg

    def png(self) -> bytes:
        import vl_convert

        png: bytes = vl_convert.vegalite_to_png(_themed(self.spec, PAPER), scale=2)
        return png


def of_recordings(document: Document) -> list[Chart]:
    """The charts of measured recordings; those that have nothing to show are left out."""
    charts = [ledger_by_gpu(document)]
    if any(gpu["steps"].get("rows") for gpu in document.json["gpus"]):
        charts.append(ledger_by_step(document))
        if any(row["feed_gap_ns"] for gpu in document.json["gpus"] for row in gpu["steps"]["rows"]):
            charts.append(feed_gaps(document))
    return charts


def of_sweep(cells: Sequence[Row]) -> list[Chart]:
    """Throughput over ranks, a chart a model, and efficiency, of the cells that were measured (rows of summary.csv).

    One count of ranks makes no curve: then throughput is drawn over the batch, where there are several.
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


def write(charts: Sequence[Chart], folder: Path) -> list[Path]:
    """Write each chart to the folder as `<id>.svg` and `<id>.png`."""
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for chart in charts:
        for path, content in (
            (folder / f"{chart.id}.svg", chart.svg().encode()),
            (folder / f"{chart.id}.png", chart.png()),
        ):
            with written_whole(path) as beside:
                beside.write_bytes(content)
            written.append(path)
    return written


def ledger_by_gpu(document: Document) -> Chart:
    """A bar a GPU: shares of the window by owner."""
    rows = [
        {"gpu": gpu_title(gpu), "share": (gpu["ledger_ns"][owner] or 0) / gpu["span_ns"], **_owner(owner)}
        for gpu in document.json["gpus"]
        for owner in OWNERS
        if gpu["ledger_ns"][owner]
    ]
    spec = {
        "width": 720,
        "height": {"step": 30},
        "data": {"values": rows},
        "mark": {"type": "bar"},
        "encoding": {
            "y": {"field": "gpu", "type": "nominal", "title": None, "sort": None},
            "x": _axis("share", "share of the window", format="%", scale={"domain": [0, 1], "nice": False}),
            **_by_owner(rows),
        },
    }
    return Chart("ledger-by-gpu", "Where each GPU's time went", "Shares of each GPU's window by owner.", spec)


def ledger_by_step(document: Document) -> Chart:
    """A bar a step and GPU: ms by owner. Many steps are shown as the mean of neighbours."""
    most = max(len(gpu["steps"]["rows"]) for gpu in document.json["gpus"])
    width = -(-most // MOST_BARS)
    rows = [
        {"gpu": gpu_title(gpu), "step": first, "ms": ns / 1e6, **_owner(owner)}
        for gpu in document.json["gpus"]
        for first, means in _binned(gpu["steps"]["rows"], width)
        for owner, ns in means.items()
        if ns
    ]
    spec = {
        "data": {"values": rows},
        "facet": {
            "row": {
                "field": "gpu",
                "type": "nominal",
                "title": None,
                "sort": None,
                "header": {
                    "labelAngle": 0,
                    "labelAlign": "left",
                    "labelAnchor": "start",
                    "labelOrient": "top",
                    "labelPadding": 4,
                },
            }
        },
        "spacing": 10,
        "spec": {
            "width": 720,
            "height": 96,
            "mark": {"type": "bar"},
            "encoding": {
                "x": {
                    "field": "step",
                    "type": "ordinal",
                    "title": "step",
                    "axis": {"labelAngle": 0, "labelOverlap": "greedy"},
                    "scale": {"paddingInner": 0.12 if most <= 60 else 0},
                },
                "y": _axis("ms", "ms"),
                **_by_owner(rows),
            },
        },
    }
    text = "Time of each measured step by owner, one row of bars a GPU."
    if width > 1:
        text += f" A bar is the mean of {width} neighbouring steps."
    return Chart("ledger-by-step", "Where each step's time went", text, spec)


def feed_gaps(document: Document) -> Chart:
    """How many steps waited how long for their batch."""
    rows = [
        {"gpu": gpu_title(gpu), "ms": row["feed_gap_ns"] / 1e6}
        for gpu in document.json["gpus"]
        for row in gpu["steps"]["rows"]
        if row["feed_gap_ns"] is not None
    ]
    names = list(dict.fromkeys(row["gpu"] for row in rows))
    spec = {
        "width": 460,
        "height": 200,
        "data": {"values": rows},
        "mark": {"type": "bar"},
        "encoding": {
            "x": {"field": "ms", "bin": {"maxbins": 30}, "title": "feed gap of a step, ms"},
            "y": _axis(None, "steps", aggregate="count"),
            "color": {
                "field": "gpu",
                "type": "nominal",
                "title": None,
                "scale": {"domain": names, "range": [SERIES[i % len(SERIES)] for i in range(len(names))]},
            },
        },
    }
    return Chart("feed-gaps", "Feed gaps", "A histogram of the time that steps waited for their batch.", spec)


def throughput(cells: Sequence[Row], along: str) -> Chart:
    """Samples a second of one model over ranks (or the batch) with the interval over launches; over ranks the ideal
    line from one rank."""
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
    dashes = ", dashes the ideal line from one rank" if ideal else ""
    model = cells[0]["model"]
    return Chart(
        f"throughput-{model}",
        f"Throughput, {model}",
        f"Samples a second over {ALONG[along]}; bars are the interval over launches{dashes}.",
        _curve(rows, ideal, along, _axis("rate", "samples/s, all ranks")),
    )


def efficiency(cells: Sequence[Row]) -> Chart:
    """Efficiency over ranks with its interval; the ideal is 100 %."""
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
        "Throughput of N ranks by N times that of one; bars are its interval, the dashes are the ideal, 100 %.",
        _curve(rows, ideal, "ranks", _axis("efficiency", "efficiency", format="%")),
    )


def _curve(rows: list[Spec], ideal: list[Spec], along: str, y: Spec) -> Spec:
    """`low` and `high` of a row are its interval."""
    names = list(dict.fromkeys(row["cell"] for row in rows))
    ticks = sorted({row[along] for row in rows})
    low, high = "low", "high"
    scale: Spec = {"domain": [min(ticks) - 0.2, max(ticks) + 0.2], "nice": False}
    if along != "ranks":  # batches double
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
        "scale": {"domain": names, "range": [SERIES[i % len(SERIES)] for i in range(len(names))]},
    }
    bars = {
        "data": {"values": [row for row in rows if row[low] is not None and row[high] is not None]},
        "mark": {"type": "rule", "strokeWidth": 2},
        "encoding": {"x": x, "y": {"field": low, "type": "quantitative"}, "y2": {"field": high}, "color": colour},
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
    """The model, and of the cell's other settings those in which the cells of the sweep differ."""
    told = [
        key for key in SETTINGS if key not in ("model", along) and len({str(other.get(key)) for other in cells}) > 1
    ]
    return ", ".join([str(cell["model"]), *(SETTINGS[key].format(cell[key]) for key in told)])


def _binned(rows: Sequence[Row], width: int) -> list[tuple[int, dict[str, float]]]:
    """The first step's number and the mean ledger of each `width` neighbouring rows."""
    groups = [rows[first : first + width] for first in range(0, len(rows), width)]
    return [
        (group[0]["step"], {owner: sum(row["ledger_ns"][owner] or 0 for row in group) / len(group) for owner in OWNERS})
        for group in groups
    ]


def _owner(owner: str) -> Spec:
    return {"owner": LOOKS[owner].label, "order": OWNERS.index(owner)}


def _by_owner(rows: Sequence[Row]) -> Spec:
    """The colour and the stacking order of the owners that are there."""
    there = {row["owner"] for row in rows}
    looks = [look for look in LOOKS.values() if look.label in there]
    return {
        "color": {
            "field": "owner",
            "type": "nominal",
            "title": None,
            "scale": {"domain": [look.label for look in looks], "range": [look.colour for look in looks]},
        },
        "order": {"field": "order", "type": "quantitative"},
    }


def _axis(
    name: str | None, title: str, *, aggregate: str | None = None, format: str = "", scale: Spec | None = None
) -> Spec:
    encoding: Spec = {"type": "quantitative", "title": title, "scale": scale or {}}
    if name:
        encoding["field"] = name
    if aggregate:
        encoding["aggregate"] = aggregate
    encoding["axis"] = {"format": format, "tickCount": 5} if format else {"tickCount": 5}
    return encoding


def _themed(spec: Spec, theme: Theme) -> Spec:
    text = {"labelColor": theme.ink, "titleColor": theme.ink, "labelFont": theme.font, "titleFont": theme.font}
    sizes = {"labelFontSize": 12, "titleFontSize": 12, "titleFontWeight": "normal"}
    return {
        **spec,
        "$schema": "https://vega.github.io/schema/vega-lite/v5.json",
        "background": theme.background,
        "padding": 6,
        "config": {
            "font": theme.font,
            "view": {"stroke": None},
            "axis": {**text, **sizes, "gridColor": theme.faint, "domainColor": theme.faint, "tickColor": theme.faint},
            "axisX": {"grid": False},
            "legend": {**text, "labelFontSize": 12, "orient": "top", "columns": 7, "symbolSize": 120},
            "header": {**text, "labelFontSize": 12, "labelFontWeight": "bold"},
            "line": {"color": theme.ink, "strokeWidth": 2},
            "text": {"color": theme.ink, "font": theme.font},
        },
    }
