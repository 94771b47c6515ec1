"""The tables of a report, which page and Markdown have too, on a terminal."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from rich.console import RenderableType
from rich.text import Text

from ...model.measures import Measures
from ..palette import OWNERS as LOOKS
from ..tables import report
from ..tables.table import Table, document_of
from .widths import Column, Fitted, Prose


def of_gpus(measures: Measures, shown: Sequence[int], names: Iterable[str]) -> Iterator[RenderableType]:
    """The tables `names` (of report.MAKERS) of the GPUs with the indices `shown`, without tables that have no rows."""
    document = document_of(replace(measures, gpus=[measures.gpus[place] for place in shown]))
    for name in names:
        yield from titled(report.MAKERS[name](document))


def titled(table: Table) -> Iterator[RenderableType]:
    """The table below its title and caption; nothing if it has no rows."""
    if table.rows:
        yield from (Text(f"\n{table.title}", style="bold"), Prose(table.caption, "dim"), fitted(table))


def fitted(table: Table, style: str = "") -> Fitted:
    """The table without its title and caption. style: of the columns' titles."""
    columns = [Column(title, right=table.numeric(place)) for place, title in enumerate(table.columns)]
    rows = [[Text(cell.text, style=LOOKS[cell.look].colour if cell.look else "") for cell in row] for row in table.rows]
    return Fitted(columns, rows, keys=table.keys, style=style)
