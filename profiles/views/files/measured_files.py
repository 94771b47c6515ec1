"""Write the pages of `infer`, of `rules` and of logs of NCCL from their JSON; for the logs Markdown as
well."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ...ground.files import write_named
from ..page import page
from ..tables import logged, measured, report
from ..tables.table import Document, Table
from ..terminal import inference
from . import markdown


def write_inference(path: Path, found: dict[str, Any], *, title: str, command: Sequence[str]) -> None:
    """Write the page of `infer`. found: the content of `inference.json`. command: makes the page again."""
    document = Document(found)
    charts = inference.charts(found)
    parts = [
        page.Part("calls", "CPU and GPU", *_of(found, "crossovers", measured.calls(document)), _named(charts, "calls")),
        page.Part("together", "Replicas", [], [measured.together(document)]),
        page.Part("served", "Serving", *_of(found, "best", measured.served(document)), _named(charts, "latency")),
        page.Part("failures", "What failed", [], [measured.failures(document)]),
    ]
    lead = "The cost of a model's inference on this machine, and the best way to serve it."
    _write(path, document, parts, title=title, lead=lead, command=command)


def write_rules(path: Path, found: dict[str, Any], *, title: str, command: Sequence[str]) -> None:
    """Write the page of `rules`. found: the content of `rules.json`. command: makes the page again."""
    document = Document(found)
    parts = [page.Part("rules", "Rules of thumb", [], [measured.rules(document)])]
    lead = (
        "Rules of thumb, measured on this machine: does each advice hold here, and how much faster is training with it?"
    )
    _write(path, document, parts, title=title, lead=lead, command=command)


def write_logged(
    html: Path | None, text: Path | None, found: dict[str, Any], *, title: str, given: Sequence[str]
) -> None:
    """Write the page and the Markdown (None: not asked for) of logs of NCCL's Inspector or profiler plugin.

    found: the JSON of `model.logged`. given: the user's arguments, for the command that makes each file again."""
    document, again = Document(found), ["ringscope", "timeline", *given]
    tables = [logged.kinds(document), logged.ranks(document), logged.processes(document)]
    if html:
        parts = [page.Part(f"{one.id}-part", one.title, [], [one]) for one in tables]
        lead = "Collectives that NCCL logged: how fast each kind is, and which ranks wait."
        hosts = ", ".join(dict.fromkeys(one["host"] for one in found["processes"] if one["host"]))
        command = [*again, "--html", str(html)]
        _write(
            html, document, parts, title=title, lead=lead, command=command, machine=[("hosts", hosts)] if hosts else ()
        )
    if text:
        doubted = [report.doubts(document)] if found["doubts"] else []
        command = [*again, "--markdown", str(text)]
        write_named(text, markdown.of_tables([*tables, *doubted], title=title, command=shlex.join(command)))


def _of(found: dict[str, Any], key: str, table: Table) -> tuple[list[str], list[Table]]:
    return [one["text"] for one in found[key]], [table]


def _named(charts: Sequence[Any], begin: str) -> list[Any]:
    return [chart for chart in charts if chart.id.startswith(begin)]


def _write(
    path: Path,
    document: Document,
    parts: Sequence[page.Part],
    *,
    title: str,
    lead: str,
    command: Sequence[str],
    machine: Sequence[tuple[str, str]] = (),
) -> None:
    shown = [part for part in parts if any(table.rows for table in part.tables)]
    doubts = report.doubts(document) if document.json.get("doubts") else None
    text = page.render(
        title=title,
        command=shlex.join(command),
        measured=page.Measured(lead, shown, document.json, doubts),
        machine=machine or report.machine(document.json.get("machine") or {}),
    )
    write_named(path, text)
