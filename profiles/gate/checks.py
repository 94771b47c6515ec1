"""Check one metric of a run against a limit."""

from __future__ import annotations

from dataclasses import dataclass

from .metrics import Metric

HOLDS, BROKEN, UNJUDGED = "holds", "broken", "cannot be judged"


@dataclass(frozen=True, slots=True)
class Check:
    """One budget and its result."""

    metric: str
    bound: str  # max, min
    limit: float
    value: float | None
    status: str
    message: str
    where: str = ""  # if broken: the GPU and step, or the cell


def checked(metric: Metric, bound: str, limit: float, what: str) -> Check:
    """The metric checked against a limit. bound: max or min. what: words for the limit (`budget`, `baseline 0.9,`)."""
    if metric.value is None:
        text = f"{metric.name} is unknown: {metric.where}"
        return Check(metric.name, bound, limit, None, UNJUDGED, text)
    holds = metric.value <= limit if bound == "max" else metric.value >= limit
    relation = "at most" if bound == "max" else "at least"
    text = f"{metric.name} = {metric.value:.6g}, {what} {relation} {limit:.6g}"
    if holds:
        return Check(metric.name, bound, limit, metric.value, HOLDS, text)
    return Check(metric.name, bound, limit, metric.value, BROKEN, f"{text} ({metric.where})", metric.where)
