"""From recordings to measures: units of recordings, made here or elsewhere (partials), joined, and what to change."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from functools import partial
from os import PathLike
from pathlib import Path
from typing import TypeAlias

from . import readers, verdicts
from .errors import RingscopeError, UnreadableRecording
from .measures import Analysis, Measures
from .partials import processes as workers
from .partials.join import join
from .partials.mpi import Job
from .partials.processes import Here, Made, Measurer, Reading, Source
from .partials.unit import Asked, Unit, gather_unit
from .timeline import Doubt, Timeline
from .verdicts import Context, whatif

# What is measured: a recording that was read, or a path (a file, a directory, a pattern), or several of either.
Recordings: TypeAlias = "str | PathLike[str] | Timeline | Iterable[str | PathLike[str] | Timeline]"
# Called with what is being done ("reading" or "measuring"), how much is done, of how much, and the recording at hand.
Progress: TypeAlias = Callable[[str, float, float, Path], None]


def measure(recordings: Recordings, *, window: str | None = None, context: Context | None = None) -> Measures:
    """The numbers of `analyse` alone."""
    return analyse(recordings, window=window, context=context).measures


def analyse(
    recordings: Recordings,
    *,
    window: str | None = None,
    context: Context | None = None,
    strict: bool = False,
    max_bytes: int | None = None,
    cache: bool = True,
    operations: bool = False,
    from_step: int = 0,
    processes: int | None = 1,
    progress: Progress | None = None,
) -> Analysis:
    """Measure every GPU of some recordings: from files to numbers, findings and doubts.

    `recordings`: a path (a file, a directory, or a pattern such as "run/rank*.sqlite"), a Timeline that `read` gave, or
    several of either, which are measured together, on one clock.
    `window`: "steps", from the first to the last measured step, or "capture", all that was recorded. Default: steps if
    any are found, else capture.
    `context`: what is known of the run, for the findings. Default: what the record of the run beside the first path
    says, where there is one.
    `strict`: one recording that cannot be read is an error, not a doubt.
    `max_bytes`, `cache`: as in `read`.
    `operations`: keep every operation in the result, for pictures (page, Perfetto).
    `from_step`: leave out the steps before that number, as warm-up.
    `processes`: so many measure files side by side (None: as many as there are cores and memory for). A script that
    asks for more than one needs `if __name__ == "__main__":`, as with multiprocessing.
    `progress` is called with ("reading" or "measuring", done, in all, the recording at hand).
    Raises UnreadableRecording where nothing could be read, RingscopeError where no GPU did anything.
    """
    given = [recordings] if isinstance(recordings, (str, PathLike, Timeline)) else list(recordings)
    paths = [Path(one) for one in given if not isinstance(one, Timeline)]
    own = [one for one in given if isinstance(one, Timeline)]
    del given, recordings
    if not paths and not own:
        raise RingscopeError("no recording given: name at least one")
    asked, how = Asked(window, operations, from_step), Reading(max_bytes, cache)
    with ExitStack() as opened:
        files = opened.enter_context(readers.listed(paths, max_bytes)) if paths else []
        several = workers.count(files) if processes is None else processes
        by: Measurer = opened.enter_context(workers.pool(several, asked, how)) if several > 1 else Here(asked, how)
        return _analysed(by, files, own, asked, context, strict, progress)


def analyse_over_mpi(job: Job, *, strict: bool = False, progress: Progress | None = None) -> Analysis:
    """The same in the first process of an MPI job, with what all of its processes measure (`partials.mpi`)."""
    try:
        return _analysed(job, job.files, [], job.asked, None, strict, progress)
    finally:
        job.end()


def _analysed(
    by: Measurer,
    files: Sequence[readers.File],
    own: list[Timeline],
    asked: Asked,
    context: Context | None,
    strict: bool,
    progress: Progress | None,
) -> Analysis:
    """Files first, then recordings that were read, which are used up."""
    told = partial(progress, "reading" if isinstance(by, Here) else "measuring") if progress else None
    sources: list[Source] = []
    units: list[Unit] = []
    unread: list[Doubt] = []
    if files:
        units, unread = readers.sorted_out(files, _noted(by.each(files, told), files, sources), strict=strict)
        context = context or _beside(units[0])
    while own:
        sources.append(own[0])
        units.append(gather_unit([own.pop(0)], (), (0,), asked))
    for place, unit in enumerate(units):
        unit.members = (place,)
    again = partial(by.again, sources)
    analysis = join(units, again, asked, unread, partial(progress, "measuring") if progress else None)
    for one in analysis.measures.gpus:
        one.what_if = whatif.each(one)
    analysis.measures.findings = verdicts.find(analysis.measures, context)
    return analysis


def _noted(
    made: Iterable[Made], files: Iterable[readers.File], sources: list[Source]
) -> Iterator[Unit | None | UnreadableRecording]:
    """What was made of each file; `sources` grows by those that a unit was made of."""
    for file, one in zip(files, made, strict=True):
        if isinstance(one, Unit):
            sources.append(file)
        yield one


def _beside(unit: Unit) -> Context | None:
    """What the record of the launch that a recording belongs to tells the findings."""
    record = unit.recordings[0].record
    return Context(cell=record.cell, machine=record.machine) if record else None
