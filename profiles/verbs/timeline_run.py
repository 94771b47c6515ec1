"""Hand the options of `ringscope timeline` over to measuring and views. Imports wait until a function needs them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..ground import numbers, terminals
from ..ground.errors import RingscopeError
from ..model.measures import Measures
from .options import STDOUT, write_json

if TYPE_CHECKING:
    from ..many_gpus.ranks_summary import Summary
    from ..measuring.analysis import Progress
    from ..model.analysed import Analysis
    from ..views.files.recording_files import Files


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """Options of the command line."""

    paths: tuple[str, ...]
    json_to: Path | None
    json_summary: Path | None
    window: str | None
    per_step: bool
    ranks: tuple[int, ...]
    full: bool
    table: str | None
    html: Path | None
    perfetto: Path | None
    markdown: Path | None
    charts: Path | None
    parquet: Path | None
    info: bool
    max_size: int | None
    no_cache: bool
    strict: bool
    processes: int | None
    from_step: int
    partial: Path | None

    @property
    def again(self) -> list[str]:
        """The arguments of a command that measures the same: the paths, and the options that choose steps and GPUs."""
        chosen = ["--ranks", ",".join(map(str, self.ranks))] if self.ranks else []
        return [*self.paths, *chosen, *(["--full"] if self.full else [])]

    @property
    def reading(self) -> dict[str, Any]:
        """Keyword arguments for reading recordings."""
        return {"max_bytes": self.max_size, "cache": not self.no_cache}


def info(given: Options) -> None:
    """Show the contents of the recordings."""
    from ..readers import read_all
    from ..views.terminal import info as recordings
    from ..views.terminal import progress_bar
    from ..views.terminal import recording as terminal

    with progress_bar.progress("reading") as progress:
        timelines, doubts = read_all(given.paths, strict=given.strict, progress=progress, **given.reading)
    terminal.say(recordings.text(timelines, doubts))


def measure(given: Options) -> None:
    """Measure, write the files asked for, and show the numbers unless JSON goes to stdout. The numbers are shown even
    if a file cannot be written."""
    from ..many_gpus import ranks_summary
    from ..views.files import recording_files
    from ..views.terminal import progress_bar

    files = recording_files.Files(**{kind: getattr(given, kind) for kind in recording_files.KINDS})
    with progress_bar.stages() as progress:
        analysis = _analysis(given, files, progress)
        if analysis is None:
            return
        summary, asked = ranks_summary.summarise(analysis.measures), _asked(analysis.measures, given.ranks)
    try:
        with progress_bar.progress("writing") as written_so_far:
            written = recording_files.write(
                analysis,
                files,
                given=given.again,
                summary=summary if analysis.measures.many and not given.full else None,
                shown=ranks_summary.shown_one_by_one(summary, asked),
                progress=written_so_far,
            )
        for path in written:
            terminals.echo(f"wrote {path}", err=True)
        _write_json(given, analysis.measures, summary)
    finally:
        if STDOUT not in (given.json_to, given.json_summary):
            _show(given, analysis.measures, summary, asked)


def _write_json(given: Options, measures: Measures, summary: Summary) -> None:
    from ..many_gpus import ranks_summary
    from ..model import measures_json

    if given.json_to is not None:
        write_json(measures_json.dumps(measures, per_step=given.per_step), given.json_to)
    if given.json_summary is not None:
        write_json(ranks_summary.dumps(summary), given.json_summary)


def _show(given: Options, measures: Measures, summary: Summary, asked: list[int]) -> None:
    from ..runs import records
    from ..views.terminal import named, ranks, screen
    from ..views.terminal import recording as terminal

    to = terminal.console()
    if given.table is not None:
        named.show(measures, given.table, to, only=asked)
        return
    if given.full:
        terminal.show(measures, to, per_step=given.per_step, only=asked or None)
    elif measures.many:
        ranks.show(measures, summary, to, in_full=asked, per_step=given.per_step)
    else:
        screen.show(measures, to, per_step=given.per_step, only=asked)
    recording = Path(measures.recordings[0].path)
    if measures.findings and records.beside(recording):
        terminals.echo(f"\nprove one: ringscope bench --apply {measures.findings[0].code} --of {recording.parent}")


def logged(given: Options) -> None:
    """Write the collectives that NCCL logged, and show them unless JSON goes to stdout."""
    from dataclasses import asdict

    from ..measuring import logged as logs
    from ..model.logged import dumps
    from ..views.files import measured_files, recording_files
    from ..views.terminal import logged as view
    from ..views.terminal import recording as terminal

    found = logs.measure(given.paths, strict=given.strict, max_bytes=given.max_size)
    recording_files.refuse_read(found.files, (given.html, given.markdown, given.json_to))
    title = recording_files.title_of(found.files)
    measured_files.write_logged(given.html, given.markdown, asdict(found), title=title, given=given.paths)
    for path in filter(None, (given.html, given.markdown)):
        terminals.echo(f"wrote {path}", err=True)
    if given.json_to is not None:
        write_json(dumps(found), given.json_to)
    if given.json_to != STDOUT:
        view.show(found, terminal.console())


def _analysis(given: Options, files: Files, progress: Progress) -> Analysis | None:
    """Measure; with MPI if a launcher started several processes, in which case only the first returns an analysis."""
    from ..measuring.analysis import analyse, analyse_over_mpi
    from ..measuring.mpi import Job, started
    from ..measuring.one_recording import Asked
    from ..measuring.processes import Reading

    accept = partial(_accept, given, files)
    if given.processes is None and started() > 1:
        job = Job(given.paths, Asked(given.window, files.pictures, given.from_step), Reading(**given.reading))
        if not job.first:
            job.follow()
            return None
        return analyse_over_mpi(job, strict=given.strict, partial_to=given.partial, accept=accept, progress=progress)
    return analyse(
        given.paths,
        window=given.window,
        strict=given.strict,
        operations=files.pictures,
        from_step=given.from_step,
        processes=given.processes,
        partial_to=given.partial,
        accept=accept,
        progress=progress,
        **given.reading,
    )


def _accept(given: Options, files: Files, analysis: Analysis) -> None:
    """Raises RingscopeError, before any file is written, for a rank that has no GPU or a file that cannot be made."""
    from ..views.files import recording_files

    _asked(analysis.measures, given.ranks)
    recording_files.refuse(analysis, files, (given.json_to, given.json_summary, given.partial))


def _asked(measures: Measures, wanted: tuple[int, ...]) -> list[int]:
    """Indices in `measures.gpus` of the GPUs of these ranks. Raises RingscopeError for a rank without a GPU."""
    known = {gpu.rank for gpu in measures.gpus if gpu.rank is not None}
    missing = [rank for rank in wanted if rank not in known]
    if missing:
        found = (
            f"recordings of {'rank' if len(known) == 1 else 'ranks'} {numbers.ranges(known)}"
            if known
            else "no recording says its rank"
        )
        raise RingscopeError(f"--ranks: no GPU of rank {missing[0]}; there are {found}")
    return [place for place, gpu in enumerate(measures.gpus) if gpu.rank in wanted]
