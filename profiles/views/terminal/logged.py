"""Collectives that NCCL logged, on a terminal: by communicator and kind, by rank, then by process."""

from __future__ import annotations

from dataclasses import asdict, replace

from rich.console import Console, Group, RenderableType

from ...ground.numbers import counted
from ...model.logged import Logged
from ..tables import logged as made
from ..tables.table import Document
from . import recording, tables
from .widths import Prose

MOST_ROWS = 20


def show(logged: Logged, to: Console) -> None:
    """Print the tables, of each the first MOST_ROWS rows."""
    files, processes = counted(len(logged.files), "log"), counted(len(logged.processes), "process")
    parts: list[RenderableType] = [Prose(f"{files} of NCCL, {processes}", "bold")]
    document = Document(asdict(logged))
    for table in (made.kinds(document), made.ranks(document), made.processes(document)):
        parts += tables.titled(replace(table, rows=table.rows[:MOST_ROWS]))
        if more := len(table.rows[MOST_ROWS:]):
            parts.append(Prose(f"... and {more:,} more rows (--json FILE has all)", "dim"))
    to.print(Group(*parts, *recording.doubts(logged.doubts)))
