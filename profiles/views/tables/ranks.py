"""Tables of many GPUs together: outliers, the spread of each owner's time, hosts. Numbers point into the summary."""

from __future__ import annotations

from collections.abc import Sequence

from ...ground import numbers
from ...many_gpus.ranks_summary import Summary
from ...model.measures import Measures
from ...model.measures_json import plain, to_json
from ..palette import OWNERS as LOOKS
from .table import Cell, Document, Field, Json, Table, titles, words

NAMES = {"step": "the whole step", "waiting": "waiting for ranks"}
# Number of metrics that are shown per outlier, for up to MANY_OUTLIERS outliers and for more; the summary's JSON has
# all.
MOST_OF_ONE, MOST_OF_EACH, MANY_OUTLIERS = 3, 1, 5
MOST_OF_HOSTS = 6  # number of columns of times in the table of hosts


def document_of(summary: Summary, some: Measures | None = None) -> Document:
    """A document with the summary at `/summary` and, if given, the measures of some of the GPUs beside it."""
    return Document({**(to_json(some) if some else {}), "summary": plain(summary)})


def name_of(metric: str) -> str:
    """A metric's title in a table."""
    return NAMES.get(metric) or LOOKS[metric].label


def _sigmas(value: float | None) -> str:
    return numbers.unknown("alike") if value is None else f"{value:,.0f}"


DIFFERENCE: tuple[Field, ...] = (
    ("time", "ns", numbers.duration),
    ("median of all", "median_ns", numbers.duration),
    ("difference", "difference_ns", numbers.change),
    ("sigmas", "sigmas", _sigmas),
)


def outliers(document: Document) -> Table:
    rows = []
    summary = document["/summary"]
    most = MOST_OF_ONE if len(summary["outliers"]) <= MANY_OUTLIERS else MOST_OF_EACH
    for place, outlier in enumerate(summary["outliers"]):
        who = f"host {outlier['name']}" if outlier["what"] == "host" else outlier["name"]
        for nth, difference in enumerate(outlier["differences"][:most]):
            at = f"/summary/outliers/{place}/differences/{nth}"
            more, metric = difference["difference_ns"], difference["metric"]
            rows.append(
                (
                    words(who),
                    Cell(_members(summary, outlier["gpus"]) if outlier["what"] == "host" else outlier["host"] or ""),
                    Cell(name_of(metric), metric, look=metric if metric in LOOKS else ""),
                    *document.numbers(at, DIFFERENCE),
                    Cell(numbers.share_of(more, _step_ns(summary)), more / _step_ns(summary)),
                )
            )
    return Table(
        "outliers",
        "Who differs",
        "GPUs and whole hosts that differ from the median by more than 5 sigma (1.4826 x the median distance from the "
        f"median) and by more than 1 % of the {summary['per']}. A GPU that computes longer than other GPUs also waits "
        "less for them.",
        ("who", "where", f"what, per {summary['per']}", *titles(DIFFERENCE), "of the step"),
        tuple(rows),
        keys=3,
    )


def spreads(document: Document) -> Table:
    """A row per metric (ledger owners, the whole step, waiting): least, median and most over all GPUs."""
    summary = document["/summary"]
    rows = []
    for place, spread in enumerate(summary["spreads"]):
        at, metric = f"/summary/spreads/{place}", spread["metric"]
        alike = spread["min_ns"] == spread["max_ns"]
        rows.append(
            (
                Cell(name_of(metric), metric, look=metric if metric in LOOKS else ""),
                document.number(f"{at}/min_ns", numbers.duration),
                document.number(f"{at}/median_ns", numbers.duration),
                document.number(f"{at}/max_ns", numbers.duration),
                Cell(numbers.share_of(spread["median_ns"], _step_ns(summary)), spread["median_ns"]),
                Cell("all alike" if alike else summary["titles"][spread["min_gpu"]]),
                Cell("" if alike else summary["titles"][spread["max_gpu"]]),
                Cell(numbers.count(spread["unknown"]) if spread["unknown"] else "", spread["unknown"]),
            )
        )
    per = f"per {summary['per']}"
    return Table(
        "spreads",
        "Over all GPUs",
        "The ledger over all GPUs. Each median is the value of some GPU, so medians need not add up to the whole.",
        (per, "least", "median", "most", "median's share", "least on", "most on", "do not tell"),
        tuple(rows),
    )


def hosts(document: Document) -> Table:
    """The table with a row per host, the most deviating first: medians, over the host's GPUs, of the times that differ
    most between GPUs."""
    summary = document["/summary"]
    shown = _most_spread(summary["spreads"])
    rows = []
    for place, host in enumerate(summary["hosts"]):
        at = f"/summary/hosts/{place}/median_ns"
        medians = [
            document.number(f"{at}/{metric}", numbers.duration) if metric in host["median_ns"] else words(None)
            for metric in shown
        ]
        rows.append((words(host["host"]), words(_members(summary, host["gpus"])), *medians))
    return Table(
        "hosts",
        "Hosts",
        f"Times per {summary['per']} that differ most between GPUs, as medians over the GPUs of each host. The host "
        "that differs most from the others comes first.",
        ("host", "GPUs", *(name_of(metric) for metric in shown)),
        tuple(rows),
    )


def doubts(document: Document) -> Table:
    """The table of doubts, each once, with the number of values in the JSON that it affects."""
    rows = [
        (
            words(one["code"], code=True),
            words(one["text"]),
            words(one["next"]),
            document.number(
                f"/summary/doubts/{place}/places", lambda places: numbers.count(places) if places else "all"
            ),
        )
        for place, one in enumerate(document["/summary/doubts"])
    ]
    return Table(
        "doubts",
        "Doubts",
        "Reasons why these numbers are less than certain, and what to do. Each reason is shown once, with the number "
        "of values of --json that it affects.",
        ("code", "doubt", "do", "touches"),
        tuple(rows),
    )


def of_summary(document: Document) -> list[Table]:
    """The tables of a summary; empty tables are left out."""
    return [table for table in (outliers(document), spreads(document), hosts(document)) if table.rows]


def _members(summary: Json, gpus: Sequence[int]) -> str:
    """Words for these GPUs: their ranks or, if a rank is unknown, the number of GPUs."""
    ranks = [summary["ranks"][gpu] for gpu in gpus]
    known = [rank for rank in ranks if rank is not None]
    return f"ranks {numbers.ranges(known)}" if len(known) == len(ranks) else f"{len(gpus)} GPUs"


def _most_spread(spreads: Sequence[Json]) -> list[str]:
    """The metrics with the largest spread between GPUs, and the step, in the summary's order."""
    differing = [one for one in spreads if one["metric"] == "step" or one["max_ns"] > one["min_ns"]]
    ordered = sorted(differing, key=lambda one: (one["metric"] != "step", one["min_ns"] - one["max_ns"]))
    return [one["metric"] for one in spreads if one in ordered[:MOST_OF_HOSTS]]


def _step_ns(summary: Json) -> int:
    return int(next(one["median_ns"] for one in summary["spreads"] if one["metric"] == "step"))
