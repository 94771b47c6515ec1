"""From recordings to measures: the recipe, whose steps are the rooms gpus, steps, ledger, metrics and verdicts."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from os import PathLike
from pathlib import Path
from typing import TypeAlias

from . import marks, readers, records, verdicts
from .doubts.measures import merged
from .errors import RingscopeError
from .gpus import gather, host_ranges
from .gpus.clock import align
from .gpus.operations import Gpu, for_pictures
from .ledger.account import account
from .measures import Analysis, GpuAnalysis, GpuMeasures, Measures
from .metrics import collectives, doubts, message_sizes
from .metrics.collectives import Calls
from .metrics.gpu import measure as measure_gpu
from .metrics.message_sizes import Moved
from .steps.find import FoundSteps, find, same_steps
from .threads import each, release_unused
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
    `progress` is called with ("reading" or "measuring", done, in all, the recording at hand).
    Raises UnreadableRecording where nothing could be read, RingscopeError where no GPU did anything.
    """
    given = [recordings] if isinstance(recordings, (str, PathLike, Timeline)) else list(recordings)
    own: list[Timeline] = []
    unread: list[Doubt] = []
    paths = [Path(one) for one in given if not isinstance(one, Timeline)]
    if paths:
        told = partial(progress, "reading") if progress else None
        own, unread = readers.read_all(paths, max_bytes=max_bytes, cache=cache, strict=strict, progress=told)
        context = context or _beside(Path(own[0].recording.path))
    own += [one for one in given if isinstance(one, Timeline)]
    if not own:
        raise RingscopeError("no recording given: name at least one")
    told = partial(progress, "measuring") if progress else None
    return _analyse(own, unread, window, context, operations, told)


def _beside(path: Path) -> Context | None:
    """What the record of the launch that a recording belongs to tells the findings."""
    record = records.beside(path)
    return Context(cell=record.cell, machine=record.machine) if record else None


def _analyse(
    own: list[Timeline],
    unread: list[Doubt],
    window: str | None,
    context: Context | None,
    operations: bool,
    told: Callable[[float, float, Path], None] | None,
) -> Analysis:
    """The recipe. `own` is used up: it loses its kernels, most of the memory, as soon as these are taken."""
    clock = align(own)
    shift_ns = clock.shift_ns
    taken = gather.take(own)
    own[:] = [gather.without_kernels(one) for one in own]
    release_unused()
    gpus = gather.made_of(taken, own, shift_ns)
    if not gpus:
        raise RingscopeError(f"{own[0].recording.path}: {_nothing(own[0])}")
    moved = [message_sizes.moved(own, shift_ns, gpu, collectives.of(gpu)) for gpu in gpus]
    seen, size = marks.ranks_seen(own)
    calls = collectives.match(gpus, shift_ns, clock.residual_ns, moved, max(size - seen, 0))
    straggler = collectives.straggler(gpus, calls)
    found = same_steps(list(each(partial(find, timelines=own, shift_ns=shift_ns), gpus)))
    release_unused()
    measured: list[GpuMeasures] = []
    analysed: list[GpuAnalysis] = []
    raised = unread + [doubt for timeline in own for doubt in timeline.doubts]
    raised += [*doubts.of_clock(clock, calls), *doubts.of_ranks(own, calls, [len(one.bytes) for one in moved])]
    paths = [Path(own[gpu.places[0][0]].recording.path) for gpu in gpus]
    # A GPU's millions of operations go as soon as it is measured: nothing here may hold them.
    each_gpu = ((number, gpus.pop(0), found[number], calls[number], moved[number]) for number in range(len(found)))
    done = each(partial(_measured, own, shift_ns, window, operations), each_gpu)
    for path, (gpu_measures, gpu_analysis, gpu_doubts) in zip(paths, done, strict=True):
        measured.append(gpu_measures)
        analysed.append(gpu_analysis)
        raised += gpu_doubts
        if told:
            told(len(measured), len(found), path)
    measures = Measures(
        recordings=[timeline.recording for timeline in own],
        gpus=measured,
        doubts=merged(raised),
        clock=clock.to_json() if len(own) > 1 else None,
        straggler=straggler,
    )
    for one in measures.gpus:
        one.what_if = whatif.each(one)
    measures.findings = verdicts.find(measures, context)
    return Analysis(measures, tuple(analysed), shift_ns)


def _nothing(timeline: Timeline) -> str:
    if len(timeline.phases):
        return "only phases of collectives, no GPU operations; `--info` shows them, `ringscope record` records GPUs"
    return "no GPU did anything in it; record while the training runs"


def _measured(
    timelines: Sequence[Timeline],
    shift_ns: Sequence[int],
    window: str | None,
    operations: bool,
    of: tuple[int, Gpu, FoundSteps, Calls, Moved],
) -> tuple[GpuMeasures, GpuAnalysis, list[Doubt]]:
    """All of one GPU: its number, what it did, its steps, its collectives and what these moved."""
    number, gpu, steps, calls, moved = of
    kind = "steps" if steps.count and window != "capture" else "capture"
    books = account(timelines, shift_ns, gpu, steps, _span(gpu, steps, kind))
    measured = measure_gpu(timelines, shift_ns, gpu, steps, books, calls, moved, kind)
    raised = list(doubts.of_gpu(timelines, gpu, steps, books, measured, f"/gpus/{number}"))
    kept = for_pictures(gpu) if operations else None
    host = host_ranges.of(timelines, shift_ns, gpu) if operations else None
    return measured, GpuAnalysis(number, books.ownership, steps.start_ns, steps.end_ns, kept, host), raised


def _span(gpu: Gpu, steps: FoundSteps, kind: str) -> tuple[int, int]:
    if kind == "steps":
        return int(steps.start_ns[0]), int(steps.end_ns[-1])
    return int(gpu.operations.start_ns.min()), int(gpu.operations.end_ns.max())
