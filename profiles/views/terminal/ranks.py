"""Many GPUs on a terminal: findings, outliers, a row per owner and per host, then doubts.

For any number of GPUs these are at most 60 lines of 80 or more columns; entries that do not fit are counted."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.text import Text

from ...ground import numbers
from ...many_gpus.ranks_summary import CountedDoubt, Summary
from ...model.findings import OF_RANKS, Finding
from ...model.measures import Measures
from ..palette import OWNERS as LOOKS
from ..tables import ranks
from ..tables.table import Table
from . import recording as terminal
from .widths import Column, Fitted, Prose, indented

MOST_LINES = 60


@dataclass(frozen=True, slots=True)
class _Room:
    """The largest number of entries to show, by kind. named: True if the table of all GPUs has the columns `least on`
    and `most on`."""

    findings: int
    doubts: int
    outliers: int
    hosts: int
    named: bool

    def rows(self, table: Table) -> int:
        return {"hosts": self.hosts, "outliers": self.outliers}.get(table.id, len(table.rows))


# The first of these that fits in MOST_LINES is used: a narrow terminal breaks text into more lines, so it shows fewer
# entries.
_ROOMS = (
    _Room(4, 3, 8, 4, named=True),
    _Room(4, 2, 6, 3, named=False),
    _Room(3, 2, 5, 3, named=False),
    _Room(2, 1, 4, 2, named=False),
    _Room(1, 1, 3, 1, named=False),
)
_NAMED = ("least on", "most on")


def show(
    measures: Measures,
    summary: Summary,
    to: Console,
    *,
    in_full: Sequence[int] = (),
    per_step: bool = False,
) -> None:
    """Print the summary, then the GPUs with the indices `in_full` in full."""
    for room in _ROOMS:
        page = Group(*_page(measures, summary, room))
        if len(to.render_lines(page, pad=False)) <= MOST_LINES:
            break
    to.print(page)
    if in_full:
        to.print(Group(Text(), *terminal.one_by_one(measures, in_full, width=to.width, per_step=per_step)))


def _page(measures: Measures, summary: Summary, room: _Room) -> Iterator[RenderableType]:
    yield Prose(_of_what(measures, summary))
    yield from terminal.trusted(measures)
    yield from _findings(summary, room.findings)
    yield from terminal.breaks(measures)
    document = ranks.document_of(summary)
    for table in ranks.of_summary(document):
        yield from _table(table, room)
    if not summary.outliers:
        yield Prose("\nno GPU differs from the others by more than 5 sigma and 1 % of the " + summary.per)
    yield from _doubts(summary.doubts, room.doubts)
    last = len(summary.titles) - 1
    some = [str(rank) for rank in (summary.ranks[0], summary.ranks[last]) if rank is not None]
    which = f"--ranks {','.join(some)}: shows these ranks in full; " if some else ""
    yield Prose(
        f"\n{which}--full: shows all {len(summary.titles)} GPUs; --json-summary FILE: writes these numbers", "dim"
    )


def _of_what(measures: Measures, summary: Summary) -> Text:
    first, last = measures.recordings[0], measures.recordings[-1]
    step = summary.told("step")
    unit = f"{summary.count} {summary.per}{'es' if summary.per == 'batch' else 's'}" if summary.per != "window" else ""
    hosts = f" on {len(summary.hosts)} hosts" if len(summary.hosts) > 1 else ""
    told = f", {unit} each, {numbers.duration(step.median_ns)} a {summary.per}" if step and unit else ""
    text = Text(f"{len(summary.titles)} GPUs{hosts}{told}", style="bold")
    text.append(f"\n{first.path} to {last.path}, {summary.recordings} recordings", style="dim not bold")
    return text


def _findings(summary: Summary, most: int) -> Iterator[RenderableType]:
    if not summary.findings:
        return
    yield Text("\nwhat to change", style="bold")
    for finding in summary.findings[:most]:
        text = f"{_whose(finding, summary)}{finding.text}{terminal.worth(finding)}"
        yield indented(terminal.point(finding.code, f"{text}\n  → {finding.change}{terminal.consequences(finding)}"))
    left = summary.findings[most:]
    if left:
        yield indented("also: " + ", ".join(f"{one.code}{terminal.worth(one)}" for one in left))


def _whose(finding: Finding, summary: Summary) -> str:
    """The title of a finding's GPU, and the number of further GPUs; "" if the finding has no GPU, or its text names the
    GPU (OF_RANKS)."""
    if finding.gpu is None or finding.code in OF_RANKS:
        return ""
    gpus = finding.evidence.get("gpus", [])
    others = (gpus["count"] if isinstance(gpus, dict) else len(gpus)) - 1
    return f"{summary.titles[finding.gpu]}{f' and {others} more' if others > 0 else ''}: "


def _table(table: Table, room: _Room) -> Iterator[RenderableType]:
    """The first rows of a table. An outlier's name is only in its first row."""
    yield Text(f"\n{table.title.lower()}", style="bold")
    most = room.rows(table)
    rows = table.rows[:most]
    # Empty columns are left out.
    columns = [
        place
        for place, name in enumerate(table.columns)
        if any(row[place].text for row in rows) and (room.named or name not in _NAMED)
    ]
    titles = [Column(table.columns[place], right=table.numeric(place)) for place in columns]
    shown: list[list[Text]] = []
    before = ""
    for row in rows:
        again = table.id == "outliers" and row[0].text == before
        before = row[0].text
        cells = [
            Text(row[place].text, style=LOOKS[row[place].look].colour if row[place].look else "") for place in columns
        ]
        shown.append([Text() if again and place < 2 else cell for place, cell in zip(columns, cells, strict=True)])
    yield Padding(Fitted(titles, shown, keys=sum(place < table.keys for place in columns)), (0, 0, 0, 2))
    if len(table.rows) > most:
        yield Text(f"  and {len(table.rows) - most} more rows, which the JSON has", style="dim")


def _doubts(doubts: Sequence[CountedDoubt], most: int) -> Iterator[RenderableType]:
    if not doubts:
        return
    yield Text("\nwhat to doubt", style="bold")
    for doubt in doubts[:most]:
        places = f" ({doubt.places} places)" if doubt.places > 1 else ""
        yield indented(terminal.point(doubt.code, f"{doubt.text}{places}\n  → {doubt.next}"))
    if len(doubts) > most:
        yield indented("also: " + ", ".join(doubt.code for doubt in doubts[most:]))
