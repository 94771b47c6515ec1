"""A sweep's report as files: the page, Markdown, charts."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from ...explaining.explained import Explained
from ...ground.files import write_named
from ...scaling.measure import Scaling
from ...scaling.rows import columns
from ..charts import chart as drawing
from ..charts import sweep as sweep_charts
from ..page import page
from ..tables import report
from . import markdown as text


def write(
    scaling: Scaling,
    directory: Path,
    *,
    html: Path | None = None,
    markdown: Path | None = None,
    charts: Path | None = None,
    machine: Mapping[str, Any] | None = None,
    explained: Sequence[Explained] = (),
) -> None:
    """Write the files whose paths are given; page and Markdown begin with the explanation.

    directory: the run directory, for the title and for the command that makes the file again. machine: the description
    of the machine in a launch's record."""
    title = directory.resolve().name
    command = ["ringscope", "report", str(directory)]
    cells = list(map(columns, scaling.cells))
    looks = [asdict(look) for look in scaling.looks]
    doubts = [asdict(doubt) for doubt in scaling.doubts]
    why = [one.to_json() for one in explained]
    if html:
        again = shlex.join([*command, "--html", str(html)])
        sweep = page.Sweep(cells, looks, doubts, why)
        ran_on = report.machine(machine or {})
        write_named(html, page.render(title=title, command=again, sweep=sweep, machine=ran_on))
    if markdown:
        again = shlex.join([*command, "--markdown", str(markdown)])
        shown = text.of_sweep(cells, title=title, command=again, looks=looks, doubts=doubts, explained=why)
        write_named(markdown, shown)
    if charts:
        drawing.write(sweep_charts.of_sweep(cells), charts)
