"""One table of a report on a terminal, by its name: what `timeline --show NAME` prints."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final

from rich.console import Console, Group, RenderableType
from rich.text import Text

from ...model.measures import Measures
from ..palette import OWNERS as LOOKS
from ..tables import report
from ..tables.table import Table, document_of
from . import recording as terminal
from .columns import BUSY, KERNELS, side_by_side
from .widths import Column, Fitted, Prose

# Tables that only the terminal has. If all views have a table of that name, too, it is printed below.
_SECTIONS: Final = {"busy": BUSY, "kernels": KERNELS}
_TEXTS: Final = ("findings", "breaks", "doubts", "recordings")
NAMES: Final = tuple(dict.fromkeys((*report.MAKERS, *_SECTIONS, *_TEXTS)))


def listed() -> str:
    """A sentence with all names that --show takes."""
    return f"--show takes one of: {', '.join(NAMES)}"


def show(measures: Measures, name: str, to: Console, *, only: Sequence[int] = ()) -> None:
    """Print the table `name` of all GPUs, or of the GPUs with the indices `only`, or a line if it has no rows."""
    parts = list(_text(measures, name) if name in _TEXTS else _tables(measures, name, only))
    to.print(Group(*parts) if parts else f"{name}: these recordings have no data for this table")


def _text(measures: Measures, name: str) -> Iterator[RenderableType]:
    if name == "recordings":
        yield terminal.recordings(measures)
    elif name == "doubts":
        yield from terminal.doubts(measures.doubts)
    else:
        yield from {"findings": terminal.findings, "breaks": terminal.breaks}[name](measures)


def _tables(measures: Measures, name: str, only: Sequence[int]) -> Iterator[RenderableType]:
    shown = only or range(len(measures.gpus))
    titles = measures.titles
    gpus = [measures.gpus[place] for place in shown]
    if name in _SECTIONS:
        yield from (side_by_side(gpus, [titles[place] for place in shown], _SECTIONS[name]), Text())
    if name in report.MAKERS:
        table = report.MAKERS[name](document_of(replace(measures, gpus=gpus)))
        if table.rows:
            yield from (Text(table.title, style="bold"), Prose(table.caption, "dim"), _fitted(table))


def _fitted(table: Table) -> Fitted:
    columns = [Column(title, right=table.numeric(place)) for place, title in enumerate(table.columns)]
    rows = [[Text(cell.text, style=LOOKS[cell.look].colour if cell.look else "") for cell in row] for row in table.rows]
    return Fitted(columns, rows, keys=table.keys)
