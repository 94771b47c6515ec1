"""`ringscope timeline`: argument parsing and nothing else."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import click

HELP = """Measure recordings: where every nanosecond of every GPU went.

PATH is a recording of nsys, nvprof, TensorFlow's profiler, Kineto or Horovod, compressed or not; several of them, a
directory, or a pattern. What a file is, is told by its content.

\b
  ringscope timeline rank0.sqlite rank1.sqlite
  ringscope timeline runs/ --json measures.json --per-step
  ringscope timeline run.sqlite --window capture --json -
  ringscope timeline rank*.sqlite --html page.html --perfetto trace.json.gz
  ringscope timeline runs/ --info
  ringscope timeline run.nvvp --slice 12.5s:14s -o short.nvvp
  ringscope timeline run.sqlite --shrink --strip-private -o share.sqlite
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What the command line says."""

    paths: tuple[str, ...]
    json_to: str | None
    window: str | None
    per_step: bool
    html: Path | None
    perfetto: Path | None
    markdown: Path | None
    charts: Path | None
    parquet: Path | None
    info: bool
    within: str | None
    shrink: bool
    strip_private: bool
    output: Path | None
    max_size: int | None
    no_cache: bool
    strict: bool

    @property
    def reading(self) -> dict[str, Any]:
        """How recordings are read."""
        return {"max_bytes": self.max_size, "cache": not self.no_cache}


_FILE = click.Path(path_type=Path, dir_okay=False)
_FOLDER = click.Path(path_type=Path, file_okay=False)


@click.command(help=HELP)
@click.argument("paths", metavar="PATH...", nargs=-1, required=True)
@click.option("--json", "json_to", metavar="FILE", help="Write the measures as JSON; - writes them to the terminal.")
@click.option(
    "--window",
    type=click.Choice(["steps", "capture"]),
    help="From the first to the last whole step, or all that was recorded; left out, steps where they are found.",
)
@click.option("--per-step", is_flag=True, help="Show each step: where its time went, its gaps.")
@click.option("--html", metavar="FILE", type=_FILE, help="Write a page: one file that opens anywhere.")
@click.option("--perfetto", metavar="FILE", type=_FILE, help="Write a trace (.json.gz) for ui.perfetto.dev.")
@click.option("--markdown", metavar="FILE", type=_FILE, help="Write verdicts and tables as Markdown.")
@click.option("--charts", metavar="DIR", type=_FOLDER, help="Write each chart to DIR as SVG and PNG.")
@click.option("--parquet", metavar="FILE", type=_FILE, help="Write the per-step table.")
@click.option("--info", is_flag=True, help="What is in the recordings: tool, GPUs, ranks, counts, what is missing.")
@click.option("--slice", "within", metavar="A:B", help="Write the span from A to B (12.5s:14s, 300ms:) to a new file.")
@click.option("--shrink", is_flag=True, help="Write what the measures need to a new file.")
@click.option(
    "--strip-private", is_flag=True, help="Write no environment, host, process and path tables to a new file."
)
@click.option("-o", "--output", metavar="NEW", type=click.Path(path_type=Path), help="The new file; never an old one.")
@click.option("--max-size", metavar="BYTES", type=int, help="How far a compressed file may unfold (default 64 GiB).")
@click.option("--no-cache", is_flag=True, help="Keep no export of a .nsys-rep for the next time.")
@click.option("--strict", is_flag=True, help="One unreadable recording ends it: exit code 2.")
def command(**options: Any) -> None:
    given = Options(**options)
    if given.within or given.shrink or given.strip_private:
        _write(given)
    elif given.info:
        _info(given)
    else:
        _measure(given)


def _info(given: Options) -> None:
    """What is in the recordings, unmeasured."""
    from ..readers import read_all
    from ..views import recordings, waiting

    with waiting.progress("reading") as progress:
        timelines, doubts = read_all(given.paths, strict=given.strict, progress=progress, **given.reading)
    click.echo(recordings.text(timelines, doubts))


def _measure(given: Options) -> None:
    """Measure, write the files asked for, and show the numbers unless the JSON goes where they would."""
    from .. import measures_json, records
    from ..analysis import analyse
    from ..files import written_whole
    from ..views import recording_files, terminal, waiting

    files = recording_files.Files(**{kind: getattr(given, kind) for kind in recording_files.KINDS})
    with waiting.stages() as progress:
        analysis = analyse(
            given.paths,
            window=given.window,
            strict=given.strict,
            operations=files.pictures,
            progress=progress,
            **given.reading,
        )
        measures = analysis.measures
        recording_files.refuse_inputs(measures.recordings, files, Path(given.json_to) if given.json_to else None)
        written = recording_files.write(analysis, files, paths=given.paths, progress=partial(progress, "writing"))
    for path in written:
        click.echo(f"wrote {path}", err=True)
    if given.json_to == "-":
        click.echo(measures_json.dumps(measures, per_step=given.per_step), nl=False)
        return
    if given.json_to is not None:
        with written_whole(Path(given.json_to)) as path:
            path.write_text(measures_json.dumps(measures, per_step=given.per_step), encoding="utf-8")
    terminal.show(measures, terminal.console(), per_step=given.per_step)
    recording = Path(measures.recordings[0].path)
    if measures.findings and records.beside(recording):
        click.echo(f"\nprove one: ringscope bench --apply {measures.findings[0].code} --of {recording.parent}")


def _write(given: Options) -> None:
    """--slice, --shrink and --strip-private: one recording in, one new file out."""
    if len(given.paths) != 1:
        raise click.UsageError("--slice, --shrink and --strip-private take one recording")
    if given.output is None:
        raise click.UsageError("name the new file with -o NEW; a recording is never changed")
    from ..readers import cut
    from ..views import recordings, waiting

    with waiting.progress("writing") as progress:
        rows = cut.write(
            Path(given.paths[0]),
            given.output,
            within=cut.span(given.within) if given.within else None,
            shrink=given.shrink,
            strip_private=given.strip_private,
            progress=progress,
            **given.reading,
        )
    click.echo(recordings.written(given.output, rows))
