"""A chart: a Vega-Lite specification that becomes SVG or PNG without a browser.

On the page, charts have the page's colours of text and lines (`PAGE`); in files they have a white background (`PAPER`).
All data come from the JSON: charts convert to ms and percent, and compute nothing else.
"""

from __future__ import annotations

import mmap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final

from ...ground.errors import RingscopeError
from ...ground.files import made_folder, written_whole

Spec = dict[str, Any]
Row = Mapping[str, Any]
# Colours of lines in charts that show no owners of time. Colour-blind readers can tell them apart, as they can the
# owners' colours.
SERIES: Final = ("#2574e1", "#cf7a14", "#2e6f59", "#7a3fb0", "#c9261a", "#44b4e6", "#7a2420", "#8a8090")


@dataclass(frozen=True, slots=True)
class Theme:
    ink: str
    faint: str
    background: str | None
    font: str


PAPER: Final = Theme("#1c2430", "#d9dee5", "#ffffff", "Liberation Sans, Arial, sans-serif")
PAGE: Final = Theme("currentColor", "var(--line)", None, "inherit")
# The V8 engine in vl_convert 1.9 reserves 64.2 GiB of address space as it starts, and uses little of it as memory.
_ROOM_BYTES: Final = 65 << 30


@cache
def renderer() -> Any:
    """The module that draws, vl_convert. Raises RingscopeError without enough address space, where vl_convert would end
    the process."""
    try:
        mmap.mmap(-1, _ROOM_BYTES, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, prot=0).close()
    except OSError:
        raise RingscopeError(
            "charts need 65 GiB of address space (not of memory), and this shell or job limits address space; lift "
            "the limit (ulimit -v unlimited), or leave out --html and --charts"
        ) from None
    import vl_convert

    return vl_convert


@dataclass(frozen=True, slots=True)
class Chart:
    id: str
    title: str
    text: str  # a description of the chart for readers who cannot see it
    spec: Spec

    def svg(self, theme: Theme = PAPER, *, legend: bool = True) -> str:
        spec = _themed(self.spec, theme)
        spec["config"]["legend"]["disable"] = not legend
        svg: str = renderer().vegalite_to_svg(spec)
        return svg

    def png(self) -> bytes:
        png: bytes = renderer().vegalite_to_png(_themed(self.spec, PAPER), scale=2)
        return png


def write(charts: Sequence[Chart], folder: Path) -> list[Path]:
    """Write each chart to the folder as `<id>.svg` and `<id>.png`. Raises RingscopeError if one cannot be written; a
    new folder is then removed."""
    drawn: dict[Path, bytes] = {}
    for chart in charts:
        drawn |= {folder / f"{chart.id}.svg": chart.svg().encode(), folder / f"{chart.id}.png": chart.png()}
    with made_folder(folder):
        for path, content in drawn.items():
            with written_whole(path) as beside:
                beside.write_bytes(content)
    return list(drawn)


def axis(
    name: str | None, title: str, *, aggregate: str | None = None, format: str = "", scale: Spec | None = None
) -> Spec:
    """A quantitative axis of the field `name`, or of an aggregate that needs no field, with its title."""
    encoding: Spec = {"type": "quantitative", "title": title, "scale": scale or {}}
    if name:
        encoding["field"] = name
    if aggregate:
        encoding["aggregate"] = aggregate
    encoding["axis"] = {"format": format, "tickCount": 5} if format else {"tickCount": 5}
    return encoding


def series_colour(names: Sequence[str]) -> Spec:
    """A colour scale for the names, in their order; colours repeat if there are more names."""
    return {"domain": list(names), "range": [SERIES[i % len(SERIES)] for i in range(len(names))]}


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
