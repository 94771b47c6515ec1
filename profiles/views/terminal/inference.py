"""Show inference measurements on a terminal and as charts: CPU against GPU, replicas, requests in batches."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console, Group, RenderableType
from rich.text import Text

from ...inference.records import Inference
from ..charts.chart import Chart, axis, series_colour
from ..tables import measured
from ..tables.table import Document
from . import recording, tables
from .widths import indented


def show(found: Inference, where: str, console: Console) -> None:
    """Print the report. where: the folder that holds it."""
    document = Document(found.to_json())
    parts: list[RenderableType] = [Text(f"\nInference, {where}", style="bold")]
    for table, conclusions in (
        (measured.calls(document), found.crossovers),
        (measured.together(document), []),
        (measured.served(document), found.best),
        (measured.failures(document), []),
    ):
        parts += [*tables.titled(table), *(indented(f"• {one.text}") for one in conclusions)]
    console.print(Group(*parts, *recording.doubts(found.doubts)))


def charts(found: Mapping[str, Any]) -> list[Chart]:
    """Charts from the JSON: per model the time of a call over its batch, and per request rate the latency over the
    longest wait that the server allows."""
    made = [
        _chart(
            f"calls-{model}",
            f"A call of {model}",
            "Time of a call over its batch, on each device; both axes are logarithmic.",
            [{"x": row["batch"], "y": row["call_ns"] / 1e6, "what": row["device"]} for row in rows],
            ("samples in a call", "ms"),
            {"type": "log"},
        )
        for model, rows in _by(found["calls"], "model").items()
    ]
    timed = [row for row in found["served"] if row["wait_ms"] is not None and row["p99_ns"] is not None]
    for rate, rows in _by(timed, "asked_per_s").items():
        points = [
            {"x": row["wait_ms"], "y": row[f"{name}_ns"] / 1e6, "what": f"{name}, batches of up to {row['most']}"}
            for row in rows
            for name in ("p50", "p99")
        ]
        text = f"Latency over the waiting limit at {rate:g} requests/s."
        made.append(
            _chart(f"latency-{rate:g}", f"Latency at {rate:g} requests/s", text, points, ("ms waited", "ms"), {})
        )
    return made


def _by(rows: Sequence[Mapping[str, Any]], key: str) -> dict[Any, list[Mapping[str, Any]]]:
    found: dict[Any, list[Mapping[str, Any]]] = {}
    for row in rows:
        found.setdefault(row[key], []).append(row)
    return found


def _chart(
    id: str, title: str, text: str, points: list[dict[str, Any]], titles: tuple[str, str], scale: dict[str, Any]
) -> Chart:
    names = list(dict.fromkeys(point["what"] for point in points))
    encoding = {
        "x": axis("x", titles[0], scale=scale),
        "y": axis("y", titles[1], scale=scale),
        "color": {"field": "what", "type": "nominal", "title": None, "scale": series_colour(names)},
    }
    mark = {"type": "line", "point": {"size": 64}}
    return Chart(
        id, title, text, {"width": 460, "height": 260, "data": {"values": points}, "mark": mark, "encoding": encoding}
    )
