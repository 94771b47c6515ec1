"""One HTML file that shows a report: no network, no other file, readable by keyboard, screen reader and on a phone.

Every number carries the place in the JSON that it shows (`data-at`, divided by `data-of`), and the JSON is in the page.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, version
from importlib.resources import files
from pathlib import Path
from typing import Any

from ... import numbers
from ...analysed import Analysis
from ...files import written_whole
from ...judging.ranks_summary import Summary
from ...measures import OF_RANKS, OWNERS
from ..charts import recording
from ..charts import sweep as sweep_charts
from ..charts.chart import PAGE, Chart
from ..charts.palette import HOST as HOST_LOOKS
from ..charts.palette import OWNERS as LOOKS
from ..tables import explained as losses
from ..tables import ranks, report
from ..tables import table as tables
from ..tables.table import Cell, Document, Table
from . import many, picture

Json = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Sweep:
    """What a page shows of a sweep: the rows of summary.csv, what to look at first, its doubts, what is explained."""

    cells: Sequence[Json]
    looks: Sequence[Json] = ()  # text, next
    doubts: Sequence[Json] = ()
    explained: Sequence[Json] = ()  # why N ranks are not N times one, a model each


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
    """What a page shows of anything else that was measured. json: what the tables' numbers point into."""

    lead: str
    parts: Sequence[Part]
    json: Json
    doubts: Table | None = None


@dataclass(frozen=True, slots=True)
class Tile:
    what: str
    cell: Cell
    where: str
    look: str = ""


def write(
    path: Path,
    *,
    title: str,
    command: str,
    analysis: Analysis | None = None,
    summary: Summary | None = None,
    sweep: Sweep | None = None,
    measured: Measured | None = None,
    machine: Sequence[tuple[str, str]] = (),
) -> None:
    """Write the page of an analysis, of a sweep, or of both; or of anything else that was measured.

    `summary`: of many GPUs, of which `analysis` has some. `command` makes the page again; `machine` is pairs of words
    about what ran. Raises RingscopeError where `path` may not be written.
    """
    text = render(
        title=title,
        command=command,
        analysis=analysis,
        summary=summary,
        sweep=sweep,
        measured=measured,
        machine=machine,
    )
    with written_whole(path) as beside:
        beside.write_text(text, encoding="utf-8")


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
    """The page as text. See `write`."""
    import jinja2

    folder = files(__package__)
    environment = jinja2.Environment(autoescape=True, trim_blocks=True, undefined=jinja2.StrictUndefined)
    environment.filters["coded"] = _coded
    template = environment.from_string(folder.joinpath("page.html.j2").read_text("utf-8"))
    shown = _recorded(analysis, summary) if analysis else _nothing_recorded()
    shown |= _swept(sweep, shown["tables"]) if sweep else {"scaling_charts": [], "looks_first": [], "explained": []}
    shown |= _of_measured(measured)
    return template.render(
        shown,
        title=title,
        lead=measured.lead if measured else _lead(shown),
        command=command,
        machine=machine or _machine(shown["document"]),
        version=_version(),
        sections=list(_sections(shown)),
        looks=LOOKS,
        looks_json=_script({name: asdict(look) for name, look in (LOOKS | HOST_LOOKS).items()}),
        css=_raw(folder.joinpath("page.css").read_text("utf-8")),
        js=_raw(folder.joinpath("page.js").read_text("utf-8")),
        bins=f"{picture.BINS:,}",
    )


def _recorded(analysis: Analysis, summary: Summary | None) -> dict[str, Any]:
    document = ranks.document_of(summary, analysis.measures) if summary else tables.document_of(analysis.measures)
    return {
        **(many.of_document(document) if summary else {"together": []}),
        "recorded": True,
        "document": document,
        "tables": {table.id: table for table in report.of_recordings(document)},
        "tiles": [Tile(*one) for one in many.tiles(document)] if summary else list(_tiles(document)),
        "findings": _findings(document),
        "bars": list(_bars(document)),
        "legend": [
            name for name in OWNERS if any(_shown_first(gpu)["ledger_ns"][name] for gpu in document.json["gpus"])
        ],
        "step_charts": [_drawn(chart) for chart in recording.of_recordings(document) if chart.id != "ledger-by-gpu"],
        "clock": report.clock(document),
        "straggler": report.straggler(document),
        "json": _script(document.json),
        "picture": picture.pack(analysis) if analysis.gpus else "",
    }


def _nothing_recorded() -> dict[str, Any]:
    nothing: dict[str, Any] = {key: [] for key in ("together", "tiles", "findings", "bars", "legend", "step_charts")}
    return nothing | {
        "recorded": False,
        "document": None,
        "tables": {},
        "clock": "",
        "straggler": "",
        "json": "",
        "picture": "",
    }


def _of_measured(measured: Measured | None) -> dict[str, Any]:
    if measured is None:
        return {"parts": []}
    parts = [
        {
            "id": part.id,
            "title": part.title,
            "points": part.points,
            "tables": [table for table in part.tables if table.rows],
            "charts": [_drawn(chart) for chart in part.charts],
        }
        for part in measured.parts
    ]
    tables = {"doubts": measured.doubts} if measured.doubts else {}
    return {"parts": parts, "json": _script(measured.json), "tables": tables}


def _swept(sweep: Sweep, recorded: dict[str, Table]) -> dict[str, Any]:
    own = [report.cells(sweep.cells), report.doubts(Document({"doubts": list(sweep.doubts)}))]
    own += [report.learning(sweep.cells), *([losses.losses(sweep.explained)] if sweep.explained else [])]
    merged = recorded | {table.id: table for table in own if table.rows}
    if "doubts" in recorded and own[1].rows:
        merged["doubts"] = Table(
            "doubts", own[1].title, own[1].caption, own[1].columns, recorded["doubts"].rows + own[1].rows
        )
    return {
        "tables": merged,
        "scaling_charts": [_drawn(chart) for chart in sweep_charts.of_sweep(sweep.cells)],
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
    if document.told_at:
        return many.lead(document) + _first_change(shown)
    gpus = document.json["gpus"]
    steps = max((gpu["steps"]["count"] for gpu in gpus), default=0)
    name = ", ".join(sorted({gpu["name"] for gpu in gpus if gpu["name"]}))
    what = f"{len(gpus)} GPU{'s' * (len(gpus) != 1)}{f' ({name})' if name else ''}, "
    what += f"{steps} steps measured." if steps else "no steps found: the whole capture is measured."
    return what + _first_change(shown)


def _first_change(shown: Json) -> str:
    return f" First to change: {shown['findings'][0]['text']}" if shown["findings"] else ""


def _tiles(document: Document) -> Any:
    """The few numbers to know, each of the GPU where it is worst."""
    gpus = [(at, gpu) for at, gpu, _ in tables.each_gpu(document)]

    def worst(
        what: str, form: tables.Format, at: str, of: str = "", *, least: bool = False, look: str = ""
    ) -> Tile | None:
        found = []
        for (gpu_at, gpu), title in zip(gpus, document.titles, strict=True):
            lead = "/capture" if at.startswith("/ledger_ns") and _leads(gpu) else ""
            cell = document.number(gpu_at + lead + at, form, of=gpu_at + lead + of if of else "")
            if cell.value is not None:
                found.append((cell.value, cell, title))
        if not found:
            return None
        value, cell, where = (min if least else max)(found, key=lambda one: one[0])
        where = "on every GPU" if len(found) > 1 and all(one[0] == value for one in found) else f"{where}"
        return Tile(what, cell, where, look)

    losses = {
        owner: sum((_shown_first(gpu)["ledger_ns"][owner] or 0) / _shown_first(gpu)["span_ns"] for _, gpu in gpus)
        for owner in OWNERS
        if owner not in ("compute", "idle_feed", "h2d")
    }
    loss = max(losses, key=lambda owner: losses[owner])
    tiles = (
        worst("step, median", numbers.duration, "/steps/period_ns/p50"),
        worst("computing", numbers.share, "/ledger_ns/compute", "/span_ns", least=True, look="compute"),
        worst("input stall", numbers.share, "/input_stall_share", look="idle_feed"),
        worst("exposed copies", numbers.share, "/ledger_ns/h2d", "/span_ns", look="h2d"),
        worst(LOOKS[loss].label, numbers.share, f"/ledger_ns/{loss}", "/span_ns", look=loss),
        worst("kernels per step", numbers.count, "/kernels/per_step"),
    )
    return (tile for tile in tiles if tile)


def _findings(document: Document) -> list[dict[str, Any]]:
    found = []
    for index, finding in enumerate(document[f"{document.told_at}/findings"]):
        at = f"{document.told_at}/findings/{index}"
        gpu, unsaid = finding["gpu"], len(document.json["gpus"]) == 1 or finding["code"] in OF_RANKS
        found.append(
            {
                **finding,
                "gain": document.number(f"{at}/at_most_gain", numbers.gain),
                "cost": document.number(f"{at}/cost_ns_per_step", numbers.duration),
                "gpu": None if gpu is None or unsaid else document.whose(gpu),
                "evidence": report.evidence(finding),
            }
        )
    return found


def _bars(document: Document) -> Any:
    for gpu, title in zip(document.json["gpus"], document.titles, strict=True):
        lead = _shown_first(gpu)
        parts = [
            {
                "owner": owner,
                "grow": ns / lead["span_ns"],
                "share": numbers.share_of(ns, lead["span_ns"]),
                "tip": f"{LOOKS[owner].label}: {numbers.share_of(ns, lead['span_ns'])}, {numbers.duration(ns)}\n"
                f"{LOOKS[owner].meaning}",
            }
            for owner in OWNERS
            if (ns := lead["ledger_ns"][owner])
        ]
        yield {"name": title, "parts": parts, "note": _lead_note(gpu)}


def _leads(gpu: Json) -> bool:
    """As GpuMeasures.leads_with_capture."""
    return gpu.get("capture") is not None and 2 * int(gpu["span_ns"]) < int(gpu["capture"]["span_ns"])


def _shown_first(gpu: Json) -> Json:
    """The span and the ledger that come first: those of the capture where the steps are a small part of it."""
    lead: Json = gpu["capture"] if _leads(gpu) else gpu
    return lead


def _lead_note(gpu: Json) -> str:
    if not _leads(gpu):
        return ""
    whole = gpu["capture"]["span_ns"]
    return (
        f"All {numbers.duration(whole)} of the recording. The steps take {numbers.duration(gpu['span_ns'])}, "
        f"{numbers.share_of(gpu['span_ns'], whole)} of it; the tables are of the steps (--window capture: of all)."
    )


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
    if "feed" in shown["tables"] or "host" in shown["tables"]:
        yield "feed", "Feed"
    for name in ("kernels", "copies", "collectives"):
        if name in shown["tables"]:
            yield name, name.capitalize()
    yield from (("doubts", "Doubts"), ("machine", "Machine"))


def _machine(document: Document | None) -> list[tuple[str, str]]:
    """What the recordings themselves tell of the machine."""
    if document is None:
        return []
    return [
        (title, ", ".join(str(gpu[key]) for key in ("name", "uuid", "bus_id") if gpu[key]))
        for gpu, title in zip(document.json["gpus"], document.titles, strict=True)
        if any(gpu[key] for key in ("name", "uuid", "bus_id"))
    ]


def _drawn(chart: Chart) -> dict[str, Any]:
    """A chart as SVG that fills its place, with a name for screen readers."""
    svg = chart.svg(PAGE, legend=not chart.id.startswith("ledger"))
    size = re.compile(r'width="(\d+)" height="\d+"')
    width = int(size.search(svg).group(1))  # type: ignore[union-attr]
    # On a phone the drawing is moved sideways rather than shrunk until its words cannot be read.
    # That of the steps has the whole width: it has a bar each.
    most = "" if chart.id == "ledger-by-step" else f"max-width:{width}px;"
    svg = size.sub(f'style="{most}min-width:{width * 3 // 4}px" role="img"', svg, count=1)
    return {"id": chart.id, "title": chart.title, "text": chart.text, "svg": _raw(svg)}


def _script(value: Any) -> Any:
    """JSON that can stand in a script element: nothing in it can end the element."""
    text = json.dumps(value, separators=(",", ":"), ensure_ascii=False)
    return _raw(text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029"))


def _coded(text: str) -> Any:
    """Words with what stands in `backticks` as code."""
    from markupsafe import Markup, escape

    parts = [escape(part) for part in text.split("`")]
    if len(parts) % 2 == 0:
        return escape(text)
    return Markup("").join(Markup("<code>{}</code>").format(p) if i % 2 else p for i, p in enumerate(parts))


def _raw(text: str) -> Any:
    from markupsafe import Markup

    return Markup(text)  # what this program wrote itself


def _version() -> str:
    try:
        return version("ringscope")
    except PackageNotFoundError:
        return "from its source"
