"""From timelines to measures: every GPU of a set of recordings, on one clock."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from . import marks, verdicts
from .errors import RingscopeError
from .gpus.clock import align
from .gpus.gather import gather
from .gpus.operations import Gpu
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


def measure(
    timelines: Timeline | Sequence[Timeline], *, window: str | None = None, context: Context | None = None
) -> Measures:
    """The measures of a recording, or of a set of them. See `analyse`."""
    several = [timelines] if isinstance(timelines, Timeline) else timelines
    return analyse(several, window=window, context=context).measures


def analyse(
    timelines: Sequence[Timeline],
    *,
    window: str | None = None,
    context: Context | None = None,
    progress: Callable[[int, int, Path], None] | None = None,
    consume: bool = False,
) -> Analysis:
    """Measure every GPU of the recordings.

    `window`: `capture`, the first start to the last end of a GPU's operations, or `steps`, the first to the last
    measured step; left out, steps where they are found.
    `context`: what the harness knows of the run, for the verdicts.
    `progress` is called with (GPUs done, GPUs in all, the recording of the last).
    `consume`: the list `timelines` loses its kernels, most of the memory, as soon as they are not needed here.
    Raises RingscopeError where no GPU did anything.
    """
    if not timelines:
        raise RingscopeError("no recording given: name at least one")
    clock = align(timelines)
    shift_ns = clock.shift_ns
    gpus = gather(timelines, shift_ns, consume=consume)
    if not gpus:
        why = "no GPU did anything in it; record while the training runs"
        if len(timelines[0].phases):
            why = "only phases of collectives, no GPU operations; `--info` shows them, `ringscope record` records GPUs"
        raise RingscopeError(f"{timelines[0].recording.path}: {why}")
    moved = [message_sizes.moved(timelines, shift_ns, gpu, collectives.of(gpu)) for gpu in gpus]
    seen, size = marks.ranks_seen(timelines)
    calls = collectives.match(gpus, shift_ns, clock.residual_ns, moved, max(size - seen, 0))
    straggler = collectives.straggler(gpus, calls)
    found = same_steps(list(each(partial(find, timelines=timelines, shift_ns=shift_ns), gpus)))
    release_unused()
    measured: list[GpuMeasures] = []
    analysed: list[GpuAnalysis] = []
    raised = [doubt for timeline in timelines for doubt in timeline.doubts]
    raised += [*doubts.of_clock(clock, calls), *doubts.of_ranks(timelines, calls, [len(one.bytes) for one in moved])]
    paths = [Path(timelines[gpu.places[0][0]].recording.path) for gpu in gpus]
    # A GPU's millions of operations go as soon as it is measured: nothing here may hold them.
    each_gpu = ((number, gpus.pop(0), found[number], calls[number], moved[number]) for number in range(len(found)))
    done = each(partial(_measured, timelines, shift_ns, window), each_gpu)
    for path, (gpu_measures, gpu_analysis, gpu_doubts) in zip(paths, done, strict=True):
        measured.append(gpu_measures)
        analysed.append(gpu_analysis)
        raised += gpu_doubts
        if progress:
            progress(len(measured), len(found), path)
    measures = Measures(
        recordings=[timeline.recording for timeline in timelines],
        gpus=measured,
        doubts=doubts.merged(raised),
        clock=clock.to_json() if len(timelines) > 1 else None,
        straggler=straggler,
    )
    for one in measures.gpus:
        one.what_if = whatif.each(one)
    measures.findings = verdicts.find(measures, context)
    return Analysis(measures, tuple(analysed), shift_ns)


def _measured(
    timelines: Sequence[Timeline],
    shift_ns: Sequence[int],
    window: str | None,
    of: tuple[int, Gpu, FoundSteps, Calls, Moved],
) -> tuple[GpuMeasures, GpuAnalysis, list[Doubt]]:
    """All of one GPU: its number, what it did, its steps, its collectives and what these moved."""
    number, gpu, steps, calls, moved = of
    kind = "steps" if steps.count and window != "capture" else "capture"
    books = account(timelines, shift_ns, gpu, steps, _span(gpu, steps, kind))
    measured = measure_gpu(timelines, shift_ns, gpu, steps, books, calls, moved, kind)
    raised = list(doubts.of_gpu(timelines, gpu, steps, books, measured, f"/gpus/{number}"))
    return measured, GpuAnalysis(number, books.ownership, steps.start_ns, steps.end_ns), raised


def _span(gpu: Gpu, steps: FoundSteps, kind: str) -> tuple[int, int]:
    if kind == "steps":
        return int(steps.start_ns[0]), int(steps.end_ns[-1])
    return int(gpu.operations.start_ns.min()), int(gpu.operations.end_ns.max())
