"""A report as GitHub's Markdown: findings and breaks, then the tables that the page has, with the same numbers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ...ground import numbers
from ...ground.terminals import plain
from ...model.findings import OF_RANKS
from ...model.measures import Trust
from ..tables import explained as losses
from ..tables import report, sweep_cells
from ..tables.markdown import in_text
from ..tables.table import Cell, Document, Json, Table

LONGEST_NAME = 90


def of_recordings(document: Document, *, title: str, command: str) -> str:
    """The report of measured recordings. command: the command that makes the report again."""
    return "\n".join(
        [
            f"# {in_text(title)}",
            "",
            *_trusted(document),
            *_findings(document),
            *_breaks(document),
            *_tables(report.of_recordings(document)),
            *_again(command),
        ]
    )


def of_sweep(
    cells: Sequence[Json],
    *,
    title: str,
    command: str,
    looks: Sequence[Json] = (),
    doubts: Sequence[Json] = (),
    explained: Sequence[Json] = (),
) -> str:
    """The report of a sweep: explained losses, what to look at first (`text`, `next`), cells (rows of summary.csv),
    doubts."""
    first = [f"- {in_text(look['text'])} **Next:** {in_text(look['next'])}" for look in looks]
    doubted = report.doubts(Document({"doubts": list(doubts)}))
    shown = [table for table in (sweep_cells.learning(cells), sweep_cells.cells(cells), doubted) if table.rows]
    parts = [*_explained(explained), *first, *([""] if first else []), *_tables(shown), *_again(command)]
    return "\n".join([f"# {in_text(title)}", "", *parts])


def of_tables(tables: Sequence[Table], *, title: str, command: str) -> str:
    """A report of tables alone. command: the command that makes the report again."""
    return "\n".join([f"# {in_text(title)}", "", *_tables([one for one in tables if one.rows]), *_again(command)])


def _explained(found: Sequence[Json]) -> Iterator[str]:
    for one in found:
        yield f"- {in_text(losses.title(one))}"
        if finding := one["finding"]:
            gain = numbers.gain(finding["at_most_gain"])
            yield f"  - **{finding['code']}**: {in_text(finding['text'])}, worth at most {gain}"
            yield f"  - change: {in_text(finding['change'])}"
        elif silent := losses.silent(one):
            yield f"  - {in_text(silent)}"
    if found:
        yield from ("", *_tables([losses.losses(found)]))


def table(of: Table) -> str:
    """A table without its title and caption. Numbers are aligned right."""
    right = [of.numeric(place) for place in range(len(of.columns))]
    lines = [
        "| " + " | ".join(in_text(column) for column in of.columns) + " |",
        "|" + "|".join("---:" if one else "---" for one in right) + "|",
        *("| " + " | ".join(_cell(cell) for cell in row) + " |" for row in of.rows),
    ]
    return "\n".join(lines)


def _tables(shown: Sequence[Table]) -> Iterator[str]:
    for one in shown:
        yield from (f"## {one.title}", "", table(one), "", in_text(one.caption), "")


def _trusted(document: Document) -> Iterator[str]:
    if found := document[f"{document.told_at}/trust"]:
        yield from (report.trusted(Trust(**found)).capitalize() + ".", "")


def _findings(document: Document) -> Iterator[str]:
    found = document[f"{document.told_at}/findings"]
    if not found:
        return
    yield from ("## What to change", "")
    for place, finding in enumerate(found):
        at = f"{document.told_at}/findings/{place}"
        gain = document.number(f"{at}/at_most_gain", numbers.gain).text
        cost = document.number(f"{at}/cost_ns_per_step", numbers.duration).text
        gpu = finding["gpu"]
        where = "" if gpu is None or finding["code"] in OF_RANKS else f" ({document.whose(gpu)})"
        evidence = "; ".join(f"{key} {value}" for key, value in report.evidence(finding))
        yield f"{place + 1}. **{in_text(finding['code'])}**{where}: {in_text(finding['text'])}"
        yield f"   - worth at most {gain} ({cost} per step)"
        yield f"   - change: {in_text(finding['change'])}"
        yield from (f"   - and {in_text(one['text'])}" for one in finding.get("consequences", []))
        yield f"   - evidence: {in_text(evidence)}"
        yield f"   - refuted by: {in_text(finding['refuted_by'])}"
    yield ""


def _breaks(document: Document) -> Iterator[str]:
    if found := document.json.get("breaks"):
        yield from ("## Breaks between the steps", "", *(f"- {in_text(one['text'])}" for one in found), "")


def _again(command: str) -> Iterator[str]:
    yield from ("Make this report again:", "", "```", plain(command), "```", "")


def _cell(cell: Cell) -> str:
    text = cell.text if not cell.code or len(cell.text) <= LONGEST_NAME else cell.text[: LONGEST_NAME - 1] + "…"
    if cell.code:
        return "`" + plain(text).replace("|", "\\|").replace("`", "'").replace("\n", " ") + "`"
    return in_text(text)
