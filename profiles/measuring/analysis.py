"""Analyse recordings: measure units (`one_recording`), join them (`together`), and find what to change (`verdicts`)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, nullcontext
from functools import partial
from itertools import count, islice
from os import PathLike
from pathlib import Path
from typing import TypeAlias

from .. import readers, verdicts
from ..ground.errors import RingscopeError
from ..model.analysed import Analysis
from ..model.measures import Measures
from ..model.timeline import Doubt, Timeline
from ..verdicts import Context, whatif
from . import partial_file
from . import processes as workers
from .mpi import Job
from .one_recording import Asked, Unit, gather_unit
from .partial_file import Held
from .processes import Here, Measurer, Reading, Source
from .together import join, settle

# One or several recordings, each a timeline in memory or a path (a file, a directory, a pattern).
Recordings: TypeAlias = "str | PathLike[str] | Timeline | Iterable[str | PathLike[str] | Timeline]"
# Called with the phase ("reading" or "measuring"), the number of recordings done, the total, and the current one.
Progress: TypeAlias = Callable[[str, float, float, Path], None]


def measure(recordings: Recordings, *, window: str | None = None, context: Context | None = None) -> Measures:
    """Measure the GPUs of some recordings, as `analyse` does, and return the measures alone."""
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
    partial_to: Path | None = None,
    accept: Callable[[Analysis], None] | None = None,
    progress: Progress | None = None,
) -> Analysis:
    """Measure every GPU of some recordings: from files to numbers, findings and doubts.

    `recordings`: a path (a file, a directory, or a pattern such as "run/rank*.sqlite"), a Timeline from `read`, or
    several of these, which are measured together on one clock. `window`: "steps", from the first to the last measured
    step, or "capture", all that was recorded. Default: steps if any are found, else capture. `context`: facts about the
    run, for the findings. Default: the facts in the run's record beside the first path, if there is one. `strict`: a
    recording that cannot be read is an error, not a doubt. `max_bytes`, `cache`: as in `read`. `operations`: keep every
    operation in the result, for pictures (page, Perfetto). `from_step`: leave out the steps before that number, as
    warm-up. `processes`: the number of processes that measure files in parallel (None: as cores and memory allow). A
    script that asks for more than one needs `if __name__ == "__main__":`, as with multiprocessing. `partial_to`: also
    write a partial file there, which a later call takes in place of these recordings. `accept` is called with the
    result before the partial file gets its name; if it raises, no partial file is left. `progress` is called with
    ("reading" or "measuring", number done, total, the current recording). Raises UnreadableRecording if nothing could
    be read, RingscopeError if no GPU did anything.
    """
    given = [recordings] if isinstance(recordings, (str, PathLike, Timeline)) else list(recordings)
    paths = [Path(one) for one in given if not isinstance(one, Timeline)]
    own = [one for one in given if isinstance(one, Timeline)]
    del given, recordings
    if not paths and not own:
        raise RingscopeError("no recording given; name at least one")
    asked, how = Asked(window, operations, from_step), Reading(max_bytes, cache)
    with ExitStack() as opened:
        files = opened.enter_context(readers.listed(paths, max_bytes)) if paths else []
        files = [file for file in files if partial_to is None or not _is_earlier(file.path, partial_to)]
        several = workers.count(files) if processes is None else processes
        by: Measurer = opened.enter_context(workers.pool(several, asked, how)) if several > 1 else Here(asked, how)
        return _analysed(by, files, own, asked, context, strict, progress, partial_to, accept)


def _is_earlier(path: Path, partial_to: Path) -> bool:
    """True if `path` is the partial file that an earlier call wrote to `partial_to`."""
    try:
        return path.samefile(partial_to) and partial_file.detects(path)
    except OSError:
        return False


def analyse_over_mpi(
    job: Job,
    *,
    strict: bool = False,
    partial_to: Path | None = None,
    accept: Callable[[Analysis], None] | None = None,
    progress: Progress | None = None,
) -> Analysis:
    """Analyse recordings in an MPI job, all processes of which measure. Called in the job's first process."""
    try:
        return _analysed(job, job.files, [], job.asked, None, strict, progress, partial_to, accept)
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
    partial_to: Path | None,
    accept: Callable[[Analysis], None] | None,
) -> Analysis:
    """Analyse files, then the timelines `own`; these are removed from the list to free memory."""
    told = partial(progress, "reading" if isinstance(by, Here) else "measuring") if progress else None
    sources: list[Source] = []
    units: list[Unit] = []
    unread: list[Doubt] = []
    if files:
        made, unread = readers.sorted_out(files, by.each(files, told), strict=strict)
        for file, some in made:
            units += some
            sources += _sources(file, some)
        _refuse_twice(units, sources)
        context = context or _beside(units[0])
    while own:
        sources.append(own[0])
        units.append(gather_unit([own.pop(0)], (), (0,), asked))
    place = count()
    for unit in units:
        unit.members = tuple(islice(place, len(unit.recordings)))
    again = partial(by.again, sources)
    settled = settle(units, again, asked, partial(progress, "measuring") if progress else None)
    with partial_file.written(partial_to, settled.units, unread, asked) if partial_to else nullcontext():
        analysis = join(settled, unread)
        for one in analysis.measures.gpus:
            one.what_if = whatif.each(one)
        verdicts.judge(analysis.measures, context)
        if accept:
            accept(analysis)
    return analysis


def _sources(file: readers.File, units: Sequence[Unit]) -> Iterator[Source]:
    """For each recording in a file, where it can be read again: the file, or the entry of a partial file."""
    held = partial_file.detects(file.path)
    for one in (one for unit in units for one in unit.recordings):
        yield Held(file.path, one.recording.path) if held else file


def _refuse_twice(units: Sequence[Unit], sources: Sequence[Source]) -> None:
    """Raises RingscopeError if a recording is given twice, at least once in a partial file."""
    seen: dict[tuple[object, ...], Source] = {}
    recorded = (one for unit in units for one in unit.recordings)
    for one, source in zip(recorded, sources, strict=True):
        about = one.recording
        key = (Path(about.path).name, about.host, about.rank, about.origin_utc_ns, one.ends.end_ns.tobytes())
        other = seen.setdefault(key, source)
        held = next((each for each in (source, other) if isinstance(each, Held)), None)
        if other is not source and held:
            raise RingscopeError(f"{about.path} is given twice, once in {held.path}; leave one of the two out")


def _beside(unit: Unit) -> Context | None:
    """The facts for findings from the record of the launch that was recorded; None without a record."""
    record = unit.recordings[0].record
    return Context(cell=record.cell, machine=record.machine) if record else None
