"""The part of a page that shows many GPUs together; the rest of the page shows some of them one by one."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ...ground import numbers
from ..palette import OWNERS as LOOKS
from ..tables import ranks
from ..tables.table import Cell, Document

MOST_TILES = 6


def of_document(document: Document) -> dict[str, Any]:
    """Values for the template: the tables, their heading, and the names of the GPUs that are shown one by one."""
    summary = document["/summary"]
    return {
        "together": ranks.of_summary(document),
        "together_title": f"All {len(summary['titles'])} GPUs",
        "one_by_one": f"{len(document.titles)} of {len(summary['titles'])} GPUs in full: " + "; ".join(document.titles),
    }


def lead(document: Document) -> str:
    """A sentence with the numbers of GPUs and steps, and one with the outliers."""
    summary = document["/summary"]
    hosts = f" on {len(summary['hosts'])} hosts" if len(summary["hosts"]) > 1 else ""
    steps = f", {summary['count']} {summary['per']}s measured." if summary["per"] == "step" else "."
    names = [f"host {one['name']}" if one["what"] == "host" else one["name"] for one in summary["outliers"]]
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    differ = f" Far from the others: {', '.join(names[:3])}{more}." if names else " No GPU stands out from the others."
    return f"{len(summary['titles'])} GPUs{hosts}{steps}{differ}"


def tiles(document: Document) -> Iterator[tuple[str, Cell, str, str]]:
    """The tiles with the most important numbers (title, number, GPU and owner): the median step, the least compute, and
    the largest times of other owners."""
    summary = document["/summary"]
    at = {one["metric"]: (f"/summary/spreads/{place}", one) for place, one in enumerate(summary["spreads"])}
    step_at, step = at["step"]
    yield f"{summary['per']}, median", document.number(f"{step_at}/median_ns", numbers.duration), "of all GPUs", ""
    losses = [metric for metric in at if metric not in ("step", "compute", "waiting")]
    losses.sort(key=lambda metric: -at[metric][1]["max_ns"])
    for metric in ["compute", *losses][: MOST_TILES - 1]:
        if metric in at:
            end = "min" if metric == "compute" else "max"
            here, one = at[metric]
            cell = document.number(f"{here}/{end}_ns", numbers.duration)
            where = f"{'least' if end == 'min' else 'most'}: {summary['titles'][one[f'{end}_gpu']]}"
            yield LOOKS[metric].label, cell, "on every GPU" if one["min_ns"] == one["max_ns"] else where, metric
