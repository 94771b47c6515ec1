"""Write the files that `ringscope timeline` can make: HTML page, Perfetto, Markdown, charts, Parquet."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path

from ...ground.errors import RingscopeError
from ...ground.files import write_named
from ...many_gpus import part
from ...many_gpus.ranks_summary import Summary
from ...model.analysed import Analysis
from ..terminal.progress_bar import Progress


@dataclass(frozen=True, slots=True)
class Files:
    """Paths of the files to write (None: do not write). `charts` is a folder."""

    html: Path | None = None
    perfetto: Path | None = None
    markdown: Path | None = None
    charts: Path | None = None
    parquet: Path | None = None

    @property
    def pictures(self) -> bool:
        """True if any of these files draws every operation, so that `analyse` must be called with operations=True."""
        return self.html is not None or self.perfetto is not None


KINDS = tuple(one.name for one in fields(Files))


def refuse(analysis: Analysis, files: Files, more: Sequence[Path | None]) -> None:
    """Raise RingscopeError if a file to write (of `files` or `more`) is one of the recordings that were read, or if a
    picture cannot be drawn."""
    from ..charts import chart

    read = [recording.path for recording in analysis.measures.recordings]
    refuse_read(read, (files.html, files.perfetto, files.markdown, files.parquet, *more))
    if files.perfetto and not analysis.gpus:
        raise RingscopeError("--perfetto: a partial file holds no operations to draw; name the recordings")
    if files.html or files.charts:
        chart.renderer()


def refuse_read(read: Sequence[str], written: Sequence[Path | None]) -> None:
    """Raise RingscopeError if a file to write is one of the files that were read."""
    known = {Path(one).resolve() for one in read}
    for path in written:
        if path and path.resolve() in known:
            raise RingscopeError(
                f"{path}: this command reads that recording and does not overwrite it; name another file"
            )


def write(
    analysis: Analysis,
    files: Files,
    *,
    given: Sequence[str],
    summary: Summary | None = None,
    shown: Sequence[int] = (),
    progress: Progress | None = None,
) -> list[Path]:
    """Write the files asked for, and return their paths.

    given: the user's arguments, for the command that makes each file again. shown: indices of GPUs. With a summary, the
    page and the Markdown hold the summary and the GPUs `shown`, and the charts show these GPUs; Perfetto and Parquet
    always hold all GPUs. Raises RingscopeError if a file may not be written."""
    asked = [kind for kind in KINDS if getattr(files, kind)]
    if not asked:
        return []
    from ..charts import chart, recording
    from ..page import page
    from ..tables import ranks, table
    from . import markdown, parquet, perfetto

    told = part.of(analysis, shown) if summary else analysis
    title = title_of([recording.path for recording in analysis.measures.recordings])
    written = []
    for done, kind in enumerate(asked):
        path: Path = getattr(files, kind)
        if progress:
            progress(done, len(asked), path)
        again = shlex.join(["ringscope", "timeline", *given, f"--{kind}", str(path)])
        if kind == "html":
            write_named(path, page.render(title=title, command=again, analysis=told, summary=summary))
        elif kind == "perfetto":
            perfetto.write(analysis, path, progress=progress)
        elif kind == "markdown":
            document = ranks.document_of(summary, told.measures) if summary else table.document_of(told.measures)
            write_named(path, markdown.of_recordings(document, title=title, command=again))
        elif kind == "parquet":
            parquet.write(analysis.measures, path)
        elif kind == "charts":
            chart.write(recording.of_recordings(table.document_of(told.measures)), path)
        written.append(path)
    return written


def title_of(paths: Sequence[str]) -> str:
    """The recordings' common name without the rank (for recordings of a launch: the cell), else the first name and a
    count."""
    stems = {_stem(Path(path)) for path in paths}
    if len(stems) == 1:
        return stems.pop()
    return f"{Path(paths[0]).name} and {len(paths) - 1} more"


def _stem(path: Path) -> str:
    if re.fullmatch(r"rank\d+\..*", path.name):  # recordings of a launch lie in <cell>/<launch>/
        return next((part for part in reversed(path.parts[:-1]) if not part.isdigit()), path.stem)
    return path.name.split(".rank")[0] if ".rank" in path.name else path.stem
