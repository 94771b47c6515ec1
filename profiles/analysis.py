"""From timelines to measures: every GPU of a set of recordings, on one clock."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from . import intervals, ranks, verdicts
from .errors import RingscopeError
from .gpus.clock import align
from .gpus.gather import gather
from .gpus.operations import Gpu
from .intervals import Intervals
from .ledger import ownership
from .ledger.account import Account, account, exposed_inputs
from .measures import (
    OWNERS,
    Analysis,
    Collectives,
    Gaps,
    GpuAnalysis,
    GpuMeasures,
    Measures,
    Percentiles,
    StepRow,
    Steps,
)
from .metrics import collectives, copies, doubts, kernels, message_sizes
from .metrics.collectives import Calls
from .metrics.hand_over import hand_over_ns
from .metrics.held_launches import held_launches
from .metrics.host import calling_threads, host_while_idle
from .metrics.message_sizes import Moved
from .metrics.negotiation import negotiation_ns
from .steps.find import FoundSteps, find, same_steps
from .threads import each, release_unused
from .timeline import Doubt, Timeline
from .verdicts import Context, whatif
from .verdicts.case import shows_training

Int64s = NDArray[np.int64]


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
    seen, size = ranks.seen_of(timelines)
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
    exchanged = replace(
        collectives.measure(gpu, steps, books, calls, moved),
        negotiation_ns=negotiation_ns(timelines, shift_ns, gpu, books),
    )
    measured = _gpu_measures(timelines, shift_ns, gpu, steps, books, exchanged, kind)
    raised = list(_doubts(timelines, gpu, steps, books, measured, f"/gpus/{number}"))
    return measured, GpuAnalysis(number, books.ownership, steps.start_ns, steps.end_ns), raised


def _span(gpu: Gpu, steps: FoundSteps, kind: str) -> tuple[int, int]:
    if kind == "steps":
        return int(steps.start_ns[0]), int(steps.end_ns[-1])
    return int(gpu.operations.start_ns.min()), int(gpu.operations.end_ns.max())


def _gpu_measures(
    timelines: Sequence[Timeline],
    shift_ns: Sequence[int],
    gpu: Gpu,
    steps: FoundSteps,
    books: Account,
    exchanged: Collectives,
    kind: str,
) -> GpuMeasures:
    window = books.window
    span_ns = window[1] - window[0]
    this_step, later_step = exposed_inputs(books)
    feed_known = books.ledger_ns["idle_feed"] is not None
    rows = _step_rows(gpu, steps, books)
    feed_ns = books.ledger_ns["idle_feed"]
    return GpuMeasures(
        recordings=sorted({index for index, _ in gpu.places}),
        rank=gpu.rank,
        device=gpu.device,
        uuid=gpu.uuid,
        bus_id=gpu.bus_id,
        name=gpu.name,
        window=kind,
        window_ns=list(window),
        span_ns=span_ns,
        ledger_ns=books.ledger_ns,
        busy_ns=books.busy_ns,
        kernels=kernels.measure(gpu, steps, window),
        copies=copies.measure(timelines, gpu, books.busy_ns, books.ledger_ns, window),
        collectives=exchanged,
        steps=_steps(steps, rows),
        feed_gaps=_gaps([row.feed_gap_ns for row in rows]) if feed_known else None,
        batch_gaps=_gaps([row.batch_gap_ns for row in rows]),
        batch_gap_ledger_ns=_batch_gap_ledger(steps, books),
        input_copies=_input_copies(books, this_step, later_step),
        input_stall_share=(feed_ns + this_step.total + later_step.total) / span_ns
        if feed_ns is not None and span_ns
        else None,
        host_while_idle=host_while_idle(timelines, shift_ns, gpu, books.ownership),
        held_launches=held_launches(books, steps),
        hand_over_ns=hand_over_ns(books),
        calling_threads=calling_threads(timelines, gpu),
    )


def _steps(steps: FoundSteps, rows: list[StepRow]) -> Steps:
    period = steps.end_ns - steps.start_ns
    return Steps(
        source=steps.source,
        refused=steps.refused,
        count=steps.count,
        warm_up=steps.warm_up,
        partial=steps.partial,
        breaks=steps.breaks,
        period_ns=Percentiles(
            kernels.nearest_rank(period, 50), kernels.nearest_rank(period, 95), kernels.nearest_rank(period, 100)
        )
        if len(period)
        else None,
        rows=rows,
    )


def _batch_gap_edges(steps: FoundSteps) -> tuple[Int64s, Int64s, NDArray[np.bool_]]:
    """Per measured step where its batch gap starts and ends, and whether that is known; an overlap is a gap of 0."""
    known = steps.prev_last_kernel_end_ns != -1
    end = steps.start_ns
    return np.where(known, np.minimum(steps.prev_last_kernel_end_ns, end), end), end, known


def _step_rows(gpu: Gpu, steps: FoundSteps, books: Account) -> list[StepRow]:
    split = ownership.per_bin(books.ownership, steps.start_ns, steps.end_ns)
    gap_start, gap_end, gap_known = _batch_gap_edges(steps)
    count = kernels.per_step(gpu.operations.start_ns[gpu.operations.table == kernels.KERNELS], steps)
    per_step = {name: values.tolist() for name, values in split.items()}
    feed_known = books.ledger_ns["idle_feed"] is not None
    return [
        StepRow(
            step=int(steps.step_number[at]),
            start_ns=int(steps.start_ns[at]),
            end_ns=int(steps.end_ns[at]),
            ledger_ns={name: None if books.ledger_ns[name] is None else per_step[name][at] for name in OWNERS},
            batch_gap_ns=int(gap_end[at] - gap_start[at]) if gap_known[at] else None,
            feed_gap_ns=per_step["idle_feed"][at] if feed_known else None,
            kernels=int(count[at]),
        )
        for at in range(steps.count)
    ]


def _gaps(per_step: list[int | None]) -> Gaps | None:
    """Over all steps where it is known, zeros included; None where it nowhere is."""
    known = np.array([gap for gap in per_step if gap is not None], np.int64)
    if not len(known):
        return None
    return Gaps(
        count=int((known > 0).sum()),
        total_ns=int(known.sum()),
        p50_ns=kernels.nearest_rank(known, 50),
        p95_ns=kernels.nearest_rank(known, 95),
        max_ns=int(known.max()),
    )


def _batch_gap_ledger(steps: FoundSteps, books: Account) -> dict[str, int] | None:
    """ns per owner in the batch gaps of the measured steps."""
    start, end, known = _batch_gap_edges(steps)
    if not known.any():
        return None
    inside = intervals.clip(intervals.union(start, end), *books.window)
    split = ownership.per_bin(books.ownership, inside.start, inside.end)
    return {name: int(values.sum()) for name, values in split.items() if books.ledger_ns[name] is not None}


def _input_copies(books: Account, this_step: Intervals, later_step: Intervals) -> dict[str, int | float | None] | None:
    """Input copies in the window, and when they owned the GPU. Which step they feed is null where it is not certain."""
    if books.inputs is None:
        return None
    operations = books.operations.chosen(books.inputs.is_input)
    counted = operations.starting_in(books.window)
    covered = intervals.clip(intervals.union(operations.start_ns, operations.end_ns), *books.window).total
    exposed = this_step.total + later_step.total
    certain = books.inputs.certain
    called = counted.chosen(counted.launched)
    marked = books.batch is not None and (books.batch[books.inputs.is_input] >= 0).sum()
    return {
        "count": len(counted),
        "bytes": int(counted.bytes.sum()),
        "busy_ns": covered,
        "exposed_ns": exposed,
        "exposed_this_step_ns": this_step.total if certain else None,
        "exposed_later_step_ns": later_step.total if certain else None,
        "overlap": 1 - exposed / covered if covered else None,
        "call_ns": int((called.call_end_ns - called.call_start_ns).sum()) if len(called) else None,
        "marked": int(marked),
    }


def _doubts(
    timelines: Sequence[Timeline], gpu: Gpu, steps: FoundSteps, books: Account, measured: GpuMeasures, where: str
) -> Iterator[Doubt]:
    for table in books.unrecorded:
        yield doubts.class_not_recorded(table, where)
    if measured.kernels.graph_launches:
        yield doubts.graph_level_recording(measured.kernels.graph_launches, where)
    for direction, (moved, took_ns) in copies.impossible(gpu.operations).items():
        yield doubts.copy_too_fast(direction, moved, took_ns, where)
    for number in gpu.off_clock:
        yield doubts.off_clock(gpu.processes[number][1], where)
    launched = int(gpu.operations.launched.sum())
    if not launched and not gpu.off_clock:
        yield doubts.no_api_rows(where)
    elif 0 < launched < len(gpu.operations):
        yield doubts.calls_missing(len(gpu.operations) - launched, len(gpu.operations), where)
    if any("marks" not in timelines[index].known for index, _ in gpu.places):
        yield doubts.no_marks(where)
    if measured.collectives.count and measured.collectives.bytes_per_step is None:
        yield doubts.collective_bytes_unknown(where)
    if len(gpu.processes) > 1:
        yield doubts.several_processes(len(gpu.processes), where)
    yield from _step_doubts(steps, books, measured, where)


def _step_doubts(steps: FoundSteps, books: Account, measured: GpuMeasures, where: str) -> Iterator[Doubt]:
    if steps.refused is not None:
        yield doubts.steps_refused(steps.refused, where)
    if not shows_training(measured):
        yield doubts.mostly_no_training((measured.busy_ns["compute"] or 0) / measured.span_ns, where)
    if steps.source == "period":
        yield doubts.steps_by_period(where)
    if measured.window == "capture" and steps.warm_up + steps.partial:
        yield doubts.warm_up_inside(steps.warm_up + steps.partial, where)
    if steps.breaks:
        yield doubts.breaks_inside(steps.breaks, where)
    if books.inputs is not None and not books.inputs.certain:
        yield doubts.copy_order_unknown(where)
    if books.ledger_ns["idle_feed"] and not books.input_marks:
        yield doubts.feed_or_host(where)
    if (measured.batch_gap_ledger_ns or {}).get("idle_sync"):
        yield doubts.sync_upper_bound(where)
