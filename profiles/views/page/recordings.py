"""Show recordings on a page: tiles, findings, a bar per GPU, charts of the steps."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ...ground import numbers
from ...many_gpus.ranks_summary import Summary
from ...model.analysed import Analysis
from ...model.findings import OF_RANKS
from ...model.measures import OWNERS
from ..charts import recording
from ..palette import OWNERS as LOOKS
from ..tables import ranks, report
from ..tables import table as tables
from ..tables.table import Cell, Document
from . import many, markup, picture

Json = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Tile:
    what: str
    cell: Cell
    where: str
    look: str = ""


def of_analysis(analysis: Analysis, summary: Summary | None) -> dict[str, Any]:
    """Values for the template. summary: the summary of many GPUs, of which the analysis holds only some; else None."""
    document = ranks.document_of(summary, analysis.measures) if summary else tables.document_of(analysis.measures)
    return {
        **(many.of_document(document) if summary else {"together": []}),
        "recorded": True,
        "document": document,
        "tables": {table.id: table for table in report.of_recordings(document)},
        "tiles": [Tile(*one) for one in many.tiles(document)] if summary else list(_tiles(document)),
        "findings": _findings(document),
        "breaks": [one["text"] for one in document.json.get("breaks", [])],
        "bars": list(_bars(document)),
        "legend": [
            name for name in OWNERS if any(_shown_first(gpu)["ledger_ns"][name] for gpu in document.json["gpus"])
        ],
        "step_charts": [
            markup.drawn(chart) for chart in recording.of_recordings(document) if chart.id != "ledger-by-gpu"
        ],
        "clock": report.clock(document),
        "straggler": report.straggler(document),
        "json": markup.script(document.json),
        "picture": picture.pack(analysis) if analysis.gpus else "",
    }


def nothing() -> dict[str, Any]:
    """Values for the template of a page without recordings: all keys of `of_analysis`, empty."""
    nothing: dict[str, Any] = {
        key: [] for key in ("together", "tiles", "findings", "breaks", "bars", "legend", "step_charts")
    }
    return nothing | {
        "recorded": False,
        "document": None,
        "tables": {},
        "clock": "",
        "straggler": "",
        "json": "",
        "picture": "",
    }


def lead(document: Document) -> str:
    """A sentence with the number and names of the GPUs, and the number of steps."""
    gpus = document.json["gpus"]
    counts = sorted({gpu["steps"]["count"] for gpu in gpus})
    steps = counts[-1] if counts else 0
    fewest = f"{counts[0]} to " if counts and counts[0] < steps else ""
    name = ", ".join(sorted({gpu["name"] for gpu in gpus if gpu["name"]}))
    what = f"{numbers.counted(len(gpus), 'GPU')}{f' ({name})' if name else ''}, "
    what += (
        f"{fewest}{numbers.counted(steps, 'step')} measured."
        if steps
        else "no steps found: the whole capture is measured."
    )
    return what


def _tiles(document: Document) -> Any:
    """The tiles at the top of the page: the most important numbers, each from the GPU where it is worst."""
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
        where = "on every GPU" if len(found) > 1 and all(one[0] == value for one in found) else where
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
                "longest": _longest(finding),
            }
        )
    return found


def _longest(finding: Json) -> tuple[int, int, int, str] | None:
    """The longest idle span at a finding's place in the code: GPU, start and end in ns, length in words."""
    told = finding["evidence"]
    start, gpu = told.get("longest_start_ns"), finding["gpu"] if finding["gpu"] is not None else told.get("gpu")
    if start is None or gpu is None:
        return None
    return gpu, start, start + told["longest_ns"], numbers.duration(told["longest_ns"])


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
    """True if the whole capture is shown before the steps, as in GpuMeasures.leads_with_capture."""
    return gpu.get("capture") is not None and 2 * int(gpu["span_ns"]) < int(gpu["capture"]["span_ns"])


def _shown_first(gpu: Json) -> Json:
    """The span and the ledger to show first: the capture's if the steps are a small part of it."""
    lead: Json = gpu["capture"] if _leads(gpu) else gpu
    return lead


def _lead_note(gpu: Json) -> str:
    if not _leads(gpu):
        return ""
    whole = gpu["capture"]["span_ns"]
    return (
        f"The bar shows all {numbers.duration(whole)} of the recording. The steps take "
        f"{numbers.duration(gpu['span_ns'])}, {numbers.share_of(gpu['span_ns'], whole)} of it; the tables describe "
        "the steps only (with --window capture all of it)."
    )


def machine(document: Document | None) -> list[tuple[str, str]]:
    """GPU names and ids from the recordings, as (title, text)."""
    if document is None:
        return []
    return [
        (title, ", ".join(str(gpu[key]) for key in ("name", "uuid", "bus_id") if gpu[key]))
        for gpu, title in zip(document.json["gpus"], document.titles, strict=True)
        if any(gpu[key] for key in ("name", "uuid", "bus_id"))
    ]
