"""The charts of measured recordings: the ledger by GPU and by step, and the feed gaps."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from ...model.measures import OWNERS
from ..palette import OWNERS as LOOKS
from ..tables.table import Document
from .chart import Chart, Row, Spec, axis, series_colour

MOST_BARS: Final = 240  # if there are more steps, each bar is the mean of neighbouring steps


def of_recordings(document: Document) -> list[Chart]:
    """The charts of measured recordings, without charts that have nothing to show."""
    charts = [ledger_by_gpu(document)]
    if any(gpu["steps"].get("rows") for gpu in document.json["gpus"]):
        charts.append(ledger_by_step(document))
        if any(row["feed_gap_ns"] for gpu in document.json["gpus"] for row in gpu["steps"]["rows"]):
            charts.append(feed_gaps(document))
    return charts


def ledger_by_gpu(document: Document) -> Chart:
    """The chart with a bar per GPU: shares of the window by owner."""
    rows = [
        {"gpu": title, "share": (gpu["ledger_ns"][owner] or 0) / gpu["span_ns"], **_owner(owner)}
        for gpu, title in zip(document.json["gpus"], document.titles, strict=True)
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
            "x": axis("share", "share of the window", format="%", scale={"domain": [0, 1], "nice": False}),
            **_by_owner(rows),
        },
    }
    return Chart("ledger-by-gpu", "Where each GPU's time went", "Shares of each GPU's window by owner.", spec)


def ledger_by_step(document: Document) -> Chart:
    """The chart with a bar per step and GPU: ms by owner. More than MOST_BARS steps are shown as means of neighbouring
    steps."""
    most = max(len(gpu["steps"]["rows"]) for gpu in document.json["gpus"])
    width = -(-most // MOST_BARS)
    rows = [
        {"gpu": title, "step": first, "ms": ns / 1e6, **_owner(owner)}
        for gpu, title in zip(document.json["gpus"], document.titles, strict=True)
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
            "width": 1080,
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
                "y": axis("ms", "ms"),
                **_by_owner(rows),
            },
        },
    }
    text = "Time of each measured step by owner, one row of bars per GPU."
    if width > 1:
        text += f" A bar is the mean of {width} neighbouring steps."
    return Chart("ledger-by-step", "Where each step's time went", text, spec)


def feed_gaps(document: Document) -> Chart:
    """A histogram of the steps' feed gaps, the ms in which the GPU waits for the batch."""
    rows = [
        {"gpu": title, "ms": row["feed_gap_ns"] / 1e6}
        for gpu, title in zip(document.json["gpus"], document.titles, strict=True)
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
            "x": {"field": "ms", "bin": {"maxbins": 30}, "title": "feed gap per step, ms"},
            "y": {**axis(None, "steps", aggregate="count"), "axis": {"tickCount": 5, "tickMinStep": 1}},
            "color": {
                "field": "gpu",
                "type": "nominal",
                "title": None,
                "scale": series_colour(names),
            },
        },
    }
    return Chart("feed-gaps", "Feed gaps", "A histogram of the time for which the GPU waited for a step's batch.", spec)


def _binned(rows: Sequence[Row], width: int) -> list[tuple[int, dict[str, float]]]:
    """For each `width` neighbouring rows, the number of the first step and the mean ledger."""
    groups = [rows[first : first + width] for first in range(0, len(rows), width)]
    return [
        (group[0]["step"], {owner: sum(row["ledger_ns"][owner] or 0 for row in group) / len(group) for owner in OWNERS})
        for group in groups
    ]


def _owner(owner: str) -> Spec:
    return {"owner": LOOKS[owner].label, "order": OWNERS.index(owner)}


def _by_owner(rows: Sequence[Row]) -> Spec:
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
