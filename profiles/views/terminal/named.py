"""One table of a report on a terminal, by its name: what `timeline --show NAME` prints."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from rich.console import Console, Group, RenderableType

from ...model.measures import Measures
from ..tables import report
from . import recording as terminal
from . import tables

_TEXTS: Final = ("findings", "breaks", "doubts", "recordings")
NAMES: Final = tuple(dict.fromkeys((*report.MAKERS, *_TEXTS)))


def listed() -> str:
    """A sentence with all names that --show takes."""
    return f"--show takes one of: {', '.join(NAMES)}"


def show(measures: Measures, name: str, to: Console, *, only: Sequence[int] = ()) -> None:
    """Print the table `name` of all GPUs, or of the GPUs with the indices `only`, or a line if it has no rows."""
    shown = only or range(len(measures.gpus))
    parts = list(_text(measures, name) if name in _TEXTS else tables.of_gpus(measures, shown, [name]))
    to.print(Group(*parts) if parts else f"{name}: these recordings have no data for this table")


def _text(measures: Measures, name: str) -> Iterator[RenderableType]:
    if name == "recordings":
        yield terminal.recordings(measures)
    elif name == "doubts":
        yield from terminal.doubts(measures.doubts)
    else:
        yield from {"findings": terminal.findings, "breaks": terminal.breaks}[name](measures)
