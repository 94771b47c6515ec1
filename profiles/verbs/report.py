"""`ringscope report DIR`: print the report of a run directory again."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import click

from ..ground import terminals
from .options import STDOUT, Named, Output, Verb, write_json


@dataclass(frozen=True, slots=True)
class Options:
    """Options of the command line; None if an option was not given."""

    directory: Path | None
    as_json: Path | None
    html: Path | None
    markdown: Path | None
    charts: Path | None

    @property
    def pictures(self) -> dict[str, Path | None]:
        """Paths of the pages and charts to write, by kind."""
        return {"html": self.html, "markdown": self.markdown, "charts": self.charts}


@click.command(
    cls=Verb,
    epilog="""\b
Examples:
  ringscope report                               # the newest sweep in runs/
  ringscope report /data/runs                    # the newest in /data/runs
  ringscope report runs/20261120-101500-node1    # this one
  ringscope report --html scaling.html           # as a page
""",
)
@click.argument("directory", type=Named(), required=False)
@click.option("--json", "as_json", type=Output(stdout=True), help="Write JSON; - is stdout.")
@click.option("--html", type=Output(), help="Write a page: one file.")
@click.option("--markdown", type=Output(), help="Write Markdown.")
@click.option("--charts", type=Output(folder=True), help="Write the charts as SVG and PNG.")
def command(**chosen: Path | None) -> None:
    """Print the report of a run directory again, and rewrite its results.csv and summary.csv.

    Exit code 0: every cell is ok; 1: some are not; 2: there is no sweep to report.
    """
    import json
    import sys

    from ..explaining import explained
    from ..runs.records import read_runs
    from ..scaling.run_directory import machine, newest, read, write

    options = Options(**chosen)
    path = options.directory or newest()
    if not (path / "sweep.json").exists() and any(path.glob("*/sweep.json")):
        path = newest(path)
    runs = read_runs(path)
    scaling = read(path, runs)
    try:
        write(path, scaling)
    except OSError as error:  # the run directory is another user's, or the disk is full or read-only
        click.echo(
            f"ringscope: results.csv and summary.csv could not be rewritten: {error.strerror or error}", err=True
        )
    scaling, found = explained.told(scaling, runs, path)
    if any(options.pictures.values()):
        from ..views.files import sweep_files

        sweep_files.write(scaling, path, **options.pictures, machine=machine(runs), explained=found)
    if options.as_json:
        write_json(json.dumps(explained.to_json(scaling, found), indent=1) + "\n", options.as_json)
    if options.as_json != STDOUT:
        from ..views.terminal import sweep

        sweep.show(scaling, str(path), terminals.console(), found)
    sys.exit(0 if all(row.status == "ok" for row in scaling.cells) else 1)
