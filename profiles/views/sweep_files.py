"""A sweep's report as files: the page, Markdown, charts."""

from __future__ import annotations

import shlex
from dataclasses import asdict
from pathlib import Path

from ..scaling import Scaling
from . import charts as drawing
from . import markdown as text
from . import page


def write(
    scaling: Scaling,
    directory: Path,
    *,
    html: Path | None = None,
    markdown: Path | None = None,
    charts: Path | None = None,
) -> None:
    """Write those that are named. `directory` is the run directory, which the page names in the command for itself."""
    title = directory.resolve().name
    command = ["ringscope", "report", str(directory)]
    cells = [asdict(row) for row in scaling.cells]
    looks = [asdict(look) for look in scaling.looks]
    doubts = [asdict(doubt) for doubt in scaling.doubts]
    if html:
        again = shlex.join([*command, "--html", str(html)])
        page.write(html, title=title, command=again, sweep=page.Sweep(cells, looks, doubts))
    if markdown:
        again = shlex.join([*command, "--markdown", str(markdown)])
        text.write(markdown, text.of_sweep(cells, title=title, command=again, looks=looks, doubts=doubts))
    if charts:
        drawing.write(drawing.of_sweep(cells), charts)
