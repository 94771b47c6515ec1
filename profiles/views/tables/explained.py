"""Words and a table that explain why N ranks are not N times as fast as one: for terminal, page and Markdown.

They are made from the list `explained` in the JSON of `ringscope report --json`, which has an entry per model.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from ...ground import numbers
from ..palette import OWNERS as LOOKS
from .table import Cell, Json, Table, words

CAUSES: Final = {
    "input_wait": "waiting for input",
    "exchange": "exchange of gradients",
    "compute": "slower compute",
    "unknown": "not told apart",
    "idle": "idle: any cause",
}


def title(one: Json) -> str:
    """The heading, such as `mlp: a step on 2 ranks takes 5.353 ms, 3.599 ms more than on one`."""
    more = one["step_after_ns"] - one["step_before_ns"]
    than = f"{numbers.duration(abs(more))} {'more' if more >= 0 else 'less'} than on one"
    return f"{one['model']}: a step on {one['ranks']} ranks takes {numbers.duration(one['step_after_ns'])}, {than}"


def label(one: Json, cause: str) -> str:
    """The title of a cause of lost time; causes from recordings are owners in the ledger, with the owners' titles."""
    return LOOKS[cause].label if one["method"] == "recordings" and cause in LOOKS else CAUSES[cause]


def share(one: Json, ns: int | None) -> str:
    """Share of the extra time of a step; "" if the step takes less, or the part is unknown."""
    more = one["step_after_ns"] - one["step_before_ns"]
    return numbers.share(ns / more) if ns is not None and more > 0 else ""


def interval(loss: Json) -> str:
    if loss["low_ns"] is None:
        return ""
    return f"{numbers.change(loss['low_ns'])} to {numbers.change(loss['high_ns'])}"


def told_by(one: Json, directory: str = "DIR") -> str:
    """Words for the measurement behind an explanation; for recordings with the command that shows the recording."""
    if one["method"] == "recordings":
        see = f"ringscope timeline {directory}/{one['recording']} --html page.html"
        return f"Recorded by {one['profiler']}; to see it: {see}"
    if one["method"] == "without-exchange":
        counts, ranks = one["launches"], one["ranks"]
        text = f"Runs: {counts['one']} on one rank, {counts['many']} on {ranks}, "
        text += (
            f"{counts['without_exchange']} on {ranks} without the exchange; of several runs, the run with the median "
            "step is used."
        )
        intervals = any(loss["low_ns"] is not None for loss in one["losses"])
        return text + (" Intervals compare each run with each other run." if intervals else "")
    return "The reason is not known."


def silent(one: Json) -> str:
    """The reason why there is no finding; "" if there is one."""
    if one["finding"] or one["method"] is None:
        return ""
    if one["largest"] is None:
        return "No loss is larger than both the difference between launches and 3 % of the step."
    if one["largest"] in ("unknown", "idle_unknown"):
        return "The recordings do not show the cause of the largest loss."
    return f"No finding explains the largest loss, {label(one, one['largest'])}."


def losses(found: Sequence[Json]) -> Table:
    """For each model a row for the step, then a row for each cause."""
    rows = []
    for one in found:
        more = one["step_after_ns"] - one["step_before_ns"]
        step = words(f"step, 1 to {one['ranks']} ranks")
        rows.append(
            (words(one["model"]), step, Cell(numbers.change(more), more), Cell("100 %" if more > 0 else ""), Cell(""))
        )
        for loss in one["losses"]:
            rows.append(
                (
                    words(one["model"]),
                    words(label(one, loss["cause"])),
                    Cell(numbers.change(loss["ns"], loss["why"]), loss["ns"]),
                    Cell(share(one, loss["ns"])),
                    Cell(interval(loss)),
                )
            )
    about = " ".join(dict.fromkeys(told_by(one) for one in found))
    return Table(
        "losses",
        "Where the time goes that is lost with more ranks",
        f"How much longer each cause makes a step on more ranks; the causes add up exactly to the difference. {about}",
        ("model", "cause", "more per step", "share", "interval over launches"),
        tuple(rows),
    )
