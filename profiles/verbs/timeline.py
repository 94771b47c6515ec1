"""`ringscope timeline`: argument parsing and nothing else."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from ..timeline import Doubt, Timeline
    from ..views.recording_files import Files

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
def command(
    paths: tuple[str, ...],
    json_to: str | None,
    window: str | None,
    per_step: bool,
    html: Path | None,
    perfetto: Path | None,
    markdown: Path | None,
    charts: Path | None,
    parquet: Path | None,
    info: bool,
    within: str | None,
    shrink: bool,
    strip_private: bool,
    output: Path | None,
    max_size: int | None,
    no_cache: bool,
    strict: bool,
) -> None:
    if within or shrink or strip_private:
        _write(paths, within, shrink, strip_private, output, max_size, no_cache)
        return
    from ..readers import read_all
    from ..views import recordings, waiting
    from ..views.recording_files import Files

    with waiting.progress("reading") as progress:
        timelines, doubts = read_all(paths, max_bytes=max_size, cache=not no_cache, strict=strict, progress=progress)
    if info:
        click.echo(recordings.text(timelines, doubts))
        return
    files = Files(html=html, perfetto=perfetto, markdown=markdown, charts=charts, parquet=parquet)
    _measure(paths, timelines, doubts, files, json_to, window, per_step)


def _measure(
    paths: tuple[str, ...],
    timelines: list[Timeline],
    doubts: list[Doubt],
    files: Files,
    json_to: str | None,
    window: str | None,
    per_step: bool,
) -> None:
    """Measure, write the files asked for, and show the numbers unless the JSON goes where they would."""
    from .. import measures_json
    from ..analysis import analyse
    from ..files import written_whole
    from ..judging.subject import context, near
    from ..views import recording_files, terminal, waiting

    recording_files.refuse_inputs(timelines, files, Path(json_to) if json_to else None)
    with waiting.progress("measuring") as progress:
        known = context(near(Path(timelines[0].recording.path)))
        pictures = files.html is not None or files.perfetto is not None
        analysis = analyse(timelines, window=window, context=known, progress=progress, consume=not pictures)
    measures = analysis.measures
    measures.doubts[:0] = doubts
    with waiting.progress("writing") as progress:
        written = recording_files.write(analysis, timelines, files, paths=paths, progress=progress)
    for path in written:
        click.echo(f"wrote {path}", err=True)
    if json_to == "-":
        click.echo(measures_json.dumps(measures, per_step=per_step), nl=False)
        return
    if json_to is not None:
        with written_whole(Path(json_to)) as path:
            path.write_text(measures_json.dumps(measures, per_step=per_step), encoding="utf-8")
    terminal.show(measures, terminal.console(), per_step=per_step)
    if known is not None and measures.findings:
        launch = Path(timelines[0].recording.path).parent
        click.echo(f"\nprove one: ringscope bench --apply {measures.findings[0].code} --of {launch}")


def _write(
    paths: tuple[str, ...],
    within: str | None,
    shrink: bool,
    strip_private: bool,
    output: Path | None,
    max_size: int | None,
    no_cache: bool,
) -> None:
    """--slice, --shrink and --strip-private: one recording in, one new file out."""
    if len(paths) != 1:
        raise click.UsageError("--slice, --shrink and --strip-private take one recording")
    if output is None:
        raise click.UsageError("name the new file with -o NEW; a recording is never changed")
    from ..readers import cut
    from ..views import recordings, waiting

    with waiting.progress("writing") as progress:
        rows = cut.write(
            Path(paths[0]),
            output,
            within=cut.span(within) if within else None,
            shrink=shrink,
            strip_private=strip_private,
            max_bytes=max_size,
            cache=not no_cache,
            progress=progress,
        )
    click.echo(recordings.written(output, rows))
