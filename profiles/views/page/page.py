"""One HTML file that shows a report: it needs no network and no other file, and works with a keyboard, a screen reader
and on a phone.

The page contains the JSON of the report, and every number carries the JSON pointer of its value (`data-at`) and of its
divisor (`data-of`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, version
from importlib.resources import files
from typing import Any

from ...ground import numbers
from ...many_gpus.ranks_summary import Summary
from ...model.analysed import Analysis
from ...model.measures import Trust
from ..charts import sweep as sweep_charts
from ..charts.chart import Chart
from ..palette import HOST as HOST_LOOKS
from ..palette import OWNERS as LOOKS
from ..tables import explained as losses
from ..tables import report, sweep_cells
from ..tables.table import Cell, Document, Table
from . import many, markup, picture, recordings

Json = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Sweep:
    """A sweep as a page shows it: the rows of summary.csv, what to look at first, doubts, explained losses."""

    cells: Sequence[Json]
    looks: Sequence[Json] = ()  # keys: text, next
    doubts: Sequence[Json] = ()
    explained: Sequence[Json] = ()  # one per model, which explains why N ranks are not N times as fast as one


@dataclass(frozen=True, slots=True)
class Part:
    """A section of a page: sentences, then charts and tables."""

    id: str
    title: str
    points: Sequence[str]
    tables: Sequence[Table]
    charts: Sequence[Chart] = ()


@dataclass(frozen=True, slots=True)
class Measured:
    """A measurement of `infer`, `rules` or NCCL's Inspector as a page shows it. json: the document that the tables'
    JSON pointers refer to."""

    lead: str
    parts: Sequence[Part]
    json: Json
    doubts: Table | None = None


def render(
    *,
    title: str,
    command: str,
    analysis: Analysis | None = None,
    summary: Summary | None = None,
    sweep: Sweep | None = None,
    measured: Measured | None = None,
    machine: Sequence[tuple[str, str]] = (),
) -> str:
    """The HTML page of an analysis, of a sweep, of both, or of another measurement.

    summary: the summary of many GPUs, of which `analysis` holds only some. command: the command that makes the page
    again. machine: facts of the machine on which it was measured, as (title, text)."""
    import jinja2

    folder = files(__package__)
    environment = jinja2.Environment(autoescape=True, trim_blocks=True, undefined=jinja2.StrictUndefined)
    environment.filters["coded"] = markup.coded
    template = environment.from_string(folder.joinpath("page.html.j2").read_text("utf-8"))
    shown = recordings.of_analysis(analysis, summary) if analysis else recordings.nothing()
    shown |= _swept(sweep, shown["tables"]) if sweep else {"scaling_charts": [], "looks_first": [], "explained": []}
    shown |= _of_measured(measured)
    return template.render(
        shown,
        title=title,
        lead=measured.lead if measured else _lead(shown),
        command=command,
        machine=machine or recordings.machine(shown["document"]),
        version=_version(),
        sections=list(_sections(shown)),
        looks=LOOKS,
        looks_json=markup.script({name: asdict(look) for name, look in (LOOKS | HOST_LOOKS).items()}),
        css=markup.raw(folder.joinpath("page.css").read_text("utf-8")),
        js=markup.raw(folder.joinpath("page.js").read_text("utf-8")),
        bins=f"{picture.BINS:,}",
    )


def _of_measured(measured: Measured | None) -> dict[str, Any]:
    if measured is None:
        return {"parts": []}
    parts = [
        {
            "id": part.id,
            "title": part.title,
            "points": part.points,
            "tables": [table for table in part.tables if table.rows],
            "charts": [markup.drawn(chart) for chart in part.charts],
        }
        for part in measured.parts
    ]
    tables = {"doubts": measured.doubts} if measured.doubts else {}
    return {"parts": parts, "json": markup.script(measured.json), "tables": tables}


def _swept(sweep: Sweep, recorded: dict[str, Table]) -> dict[str, Any]:
    own = [sweep_cells.cells(sweep.cells), report.doubts(Document({"doubts": list(sweep.doubts)}))]
    own += [sweep_cells.learning(sweep.cells), *([losses.losses(sweep.explained)] if sweep.explained else [])]
    merged = recorded | {table.id: table for table in own if table.rows}
    if "doubts" in recorded and own[1].rows:
        merged["doubts"] = Table(
            "doubts", own[1].title, own[1].caption, own[1].columns, recorded["doubts"].rows + own[1].rows
        )
    return {
        "tables": merged,
        "scaling_charts": [markup.drawn(chart) for chart in sweep_charts.of_sweep(sweep.cells)],
        "looks_first": list(sweep.looks),
        "explained": [_explained(one) for one in sweep.explained],
    }


def _explained(one: Json) -> dict[str, Any]:
    finding = one["finding"]
    shown = finding and {
        **finding,
        "gain": Cell(numbers.gain(finding["at_most_gain"]), finding["at_most_gain"]),
        "cost": Cell(numbers.duration(finding["cost_ns_per_step"]), finding["cost_ns_per_step"]),
        "gpu": None,
        "evidence": report.evidence(finding),
    }
    return {"title": losses.title(one), "finding": shown, "silent": losses.silent(one)}


def _lead(shown: Json) -> str:
    document = shown["document"]
    if document is None:
        largest = [one["title"] for one in shown["explained"]]
        return ". ".join(["How training scales over ranks, measured over whole launches", *largest]) + "."
    lead = many.lead(document) if document.told_at else recordings.lead(document)
    return f"{lead}{_first_change(shown)}{_trusted(document)}"


def _trusted(document: Document) -> str:
    """The verdict of `ringscope check`, for the template."""
    found = document[f"{document.told_at}/trust"]
    return f" {report.trusted(Trust(**found)).capitalize()}." if found else ""


def _first_change(shown: Json) -> str:
    return f" First to change: {shown['findings'][0]['text'].rstrip('.')}." if shown["findings"] else ""


def _sections(shown: Json) -> Any:
    if shown["explained"]:
        yield "losses", "Losses"
    if shown["findings"] or shown["looks_first"] or shown["recorded"]:
        yield "verdicts", "Verdicts"
    yield from ((part["id"], part["title"]) for part in shown["parts"])
    if shown["together"]:
        yield "together", "All GPUs"
    if shown["bars"]:
        yield from (("time", "Time"), ("timeline", "Timeline"))
    if shown["step_charts"]:
        yield "steps", "Steps"
    if shown["scaling_charts"] or "cells" in shown["tables"]:
        yield "scaling", "Scaling"
    if "places" in shown["tables"]:
        yield "places", "Lines"
    if "bound-by" in shown["tables"]:
        yield "gpu-metrics", "GPU metrics"
    if "feed" in shown["tables"] or "host" in shown["tables"]:
        yield "feed", "Feed"
    for name in ("kernels", "copies", "collectives"):
        if name in shown["tables"]:
            yield name, name.capitalize()
    yield from (("doubts", "Doubts"), ("machine", "Machine"))


def _version() -> str:
    try:
        return version("ringscope")
    except PackageNotFoundError:
        return "from its source"
