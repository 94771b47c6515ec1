"""Show inference measurements on a terminal and as charts: CPU against GPU, replicas, requests in batches."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from rich.console import Console, Group, RenderableType
from rich.text import Text

from ...ground import numbers
from ...inference.records import Call, Inference, Served, Together
from ..charts.chart import Chart, axis, series_colour
from .sweep import bar
from .widths import Column, Fitted, Prose, Row, indented

_BAR: Final = 10  # width of a bar, so that the tables fit 80 columns


def show(found: Inference, where: str, console: Console) -> None:
    """Print the report. where: the folder that holds it."""
    console.print(terminal(found, where))


def terminal(found: Inference, where: str) -> RenderableType:
    parts: list[RenderableType] = [Text(f"\nInference, {where}", style="bold")]
    parts += _calls(found)
    parts += _together(found.together)
    parts += _served(found)
    if found.failures:
        parts.append(Text("\nwhat failed", style="bold"))
        parts += [_point(f"{one['what']}: {one['why']}", "red") for one in found.failures]
    if found.doubts:
        parts.append(Text("\nwhat to doubt", style="bold"))
        parts += [_point(f"{doubt.code}: {doubt.text}\n  → {doubt.next}") for doubt in found.doubts]
    return Group(*parts)


def _calls(found: Inference) -> Iterator[RenderableType]:
    by_model: dict[str, list[Call]] = {}
    for call in found.calls:
        by_model.setdefault(call.model, []).append(call)
    if by_model:
        yield Text("\nCPU and GPU: time of a call, from samples in host memory to answers in host memory", style="bold")
    for model, calls in by_model.items():
        yield Text(f"\n{model}, {numbers.count(calls[0].parameters)} parameters")
        yield _calls_of(calls)
        yield from (_point(one.text) for one in found.crossovers if one.model == model)


def _calls_of(calls: Sequence[Call]) -> Fitted:
    told = any(call.launches_ns is not None for call in calls)
    most = max(call.samples_per_s for call in calls)
    rows: list[Row] = []
    for call in calls:
        parts = (call.launches_ns, call.copies_ns, call.compute_ns) if told else ()
        rows.append(
            (
                numbers.count(call.batch),
                call.device,
                numbers.duration(call.call_ns),
                _rate(call.samples_per_s),
                *map(numbers.duration, parts),
                bar(call.samples_per_s / most, _BAR),
            )
        )
    titles = ("batch", "on", "call", "samples/s", *(("launches", "copies", "compute") if told else ()), "")
    return _table(titles, rows, keys=2)


def _together(rows: Sequence[Together]) -> Iterator[RenderableType]:
    if not rows:
        return
    yield Text("\nReplicas against one synchronous model", style="bold")
    shown: list[Row] = []
    for row in rows:
        most = max(other.samples_per_s for other in rows if other.model == row.model)
        shown.append(
            (
                row.model,
                row.way,
                f"{row.processes} x {row.devices}",
                numbers.count(row.batch),
                _rate(row.samples_per_s),
                numbers.duration(row.p50_ns),
                numbers.duration(row.p99_ns),
                bar(row.samples_per_s / most if most else 0.0, _BAR),
            )
        )
    yield _table(("model", "way", "devices", "batch", "samples/s", "p50", "p99", ""), shown, keys=2)


def _served(found: Inference) -> Iterator[RenderableType]:
    if not found.served:
        return
    yield Text("\nRequests in batches: latency from the planned arrival", style="bold")
    alone = any(row.simulated_p99_ns is not None for row in found.served)
    batched = any(row.mean_batch is not None for row in found.served)
    extra = (("batch",) if batched else ()) + (("p99 alone",) if alone else ())
    by_server: dict[str, list[Served]] = {}
    for row in found.served:
        by_server.setdefault(", ".join(filter(None, (row.model, row.server))), []).append(row)
    for title, rows in by_server.items():
        yield Text(f"\n{title}")
        shown = [(*_load(row, alone, batched), bar(_share(row, rows), _BAR).plain) for row in rows]
        yield _table(("asked/s", "limits", "answered", "p50", "p99", *extra, "lost", ""), shown, keys=2)
    if alone:
        yield Prose("\np99 alone: simulated with the model's own times, without HTTP, JSON and other processes", "dim")
    yield from (_point(one.text) for one in found.best)


def _load(row: Served, alone: bool, batched: bool) -> tuple[str | Text, ...]:
    lost = str(row.lost) + (f", {row.wrong} wrong" if row.wrong else "")
    return (
        f"{row.asked_per_s:g}",
        limits(row.most, row.wait_ms),
        Text(_rate(row.answered_per_s), style="" if row.keeps_up else "red"),
        numbers.duration(row.p50_ns),
        numbers.duration(row.p99_ns),
        *((numbers.figure(row.mean_batch),) if batched else ()),
        *((numbers.duration(row.simulated_p99_ns),) if alone else ()),
        Text(lost, style="red" if row.lost or row.wrong else ""),
    )


def limits(most: int | None, wait_ms: float | None) -> str:
    """The server's limits, largest batch and longest wait, such as `8, 2 ms`; `its own` if they are unknown."""
    if most is None or wait_ms is None:
        return "its own"
    return "1" if most == 1 else f"{most}, {wait_ms:g} ms"


def _share(row: Served, rows: Sequence[Served]) -> float:
    """The row's p99 latency as a share of the largest among `rows`, so that the shortest bar is the lowest latency."""
    most = max((other.p99_ns or 0 for other in rows), default=0)
    return (row.p99_ns or 0) / most if most else 0.0


def _rate(per_s: float | None) -> str:
    return numbers.per_s(per_s).removesuffix(" samples/s")


def _table(titles: Sequence[str], rows: Sequence[Row], *, keys: int) -> Fitted:
    left = ("on", "model", "way", "limits", "")
    return Fitted([Column(title, right=title not in left) for title in titles], rows, keys=keys, style="dim")


def _point(text: str, style: str = "") -> RenderableType:
    return indented(f"• {text}", style)


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
