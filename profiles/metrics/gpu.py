"""All measures of one GPU: its ledger, its steps and the numbers beside them (docs/reference/measures.md)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..gpus.operations import KERNELS, Gpu
from ..ground import intervals
from ..ground.intervals import Intervals
from ..ground.stats import nearest_rank, nearest_ranks
from ..ledger import ownership
from ..ledger.account import Account, exposed_inputs
from ..model.measures import OWNERS, GpuMeasures
from ..model.steps import Gaps, Percentiles, StepRow, Steps
from ..model.timeline import Timeline
from ..steps.found import FoundSteps
from . import (
    arithmetic,
    breaks,
    collectives,
    copies,
    framework,
    gpu_metrics,
    idle_gaps,
    kernels,
    operators,
    places,
    without_steps,
)
from .between_kernels import hand_over_ns
from .held_launches import held_launches
from .host import calling_threads, graph_updates, host_while_idle, launch_idle_by_host, launch_idle_waiting
from .host_waits import host_waits
from .message_sizes import Moved
from .waits_on import waits_on

Int64s = NDArray[np.int64]
# Measures of `idle_launch` that are lowered later by the part that proves to be waiting for other ranks.
MEANWHILE = ("startup_ns", "allocating_ns", "waited_ns", "outside_calls_ns")


def measure(
    timelines: Sequence[Timeline],
    shift_ns: Sequence[int],
    gpu: Gpu,
    steps: FoundSteps,
    books: Account,
    moved: Moved,
    window: str,
) -> tuple[GpuMeasures, dict[str, Intervals]]:
    """All measures of a GPU over the window of its ledger, and by measure the spans that may be waiting for other
    ranks.

    `window`: `steps` or `capture`, the kind of the window. Measures that need the recordings of other ranks are not yet
    there: in collectives they are None until `collectives.among_ranks` sets them, and idle time in which the GPU waited
    for other ranks still has another cause. The second result is needed to mend that cause: by the name of a measure,
    the spans in that measure that may be waiting for other ranks.
    """
    span_ns = books.window.span_ns
    this_step, later_step = exposed_inputs(books)
    rows = _step_rows(gpu, steps, books)
    feed_ns = books.ledger_ns["idle_feed"]
    counted = kernels.measure(gpu, steps, books.window, books.ownership)
    by_operator, by_layer, paths = operators.measure(timelines, gpu, books)
    for kernel in counted.top:
        kernel.operator = paths.get(kernel.name)
    host_idle, outside = host_while_idle(timelines, shift_ns, gpu, books.ownership)
    starting, allocating = launch_idle_by_host(timelines, shift_ns, gpu, books.ownership, steps=window == "steps")
    waited = launch_idle_waiting(timelines, shift_ns, gpu, books.ownership)
    named = {"startup_ns": starting, "allocating_ns": allocating.launch, "waited_ns": waited}
    if outside is not None:
        named["outside_calls_ns"] = outside.launch
    late = breaks.measure(timelines, shift_ns, gpu, steps, books)
    of_lines, movable = places.measure(timelines, shift_ns, gpu, books, late)
    found = GpuMeasures(
        recordings=sorted({index for index, _ in gpu.places}),
        rank=gpu.rank,
        device=gpu.device,
        uuid=gpu.uuid,
        bus_id=gpu.bus_id,
        name=gpu.name,
        window=window,
        window_ns=[books.window.start_ns, books.window.end_ns],
        span_ns=span_ns,
        ledger_ns=books.ledger_ns,
        busy_ns=books.busy_ns,
        kernels=counted,
        copies=copies.measure(timelines, gpu, steps, books),
        collectives=collectives.measure(gpu, steps, books, moved),
        steps=_steps(steps, rows),
        feed_gaps=_gaps([row.feed_gap_ns for row in rows]) if feed_ns is not None else None,
        batch_gaps=_gaps([row.batch_gap_ns for row in rows]),
        batch_gap_ledger_ns=_batch_gap_ledger(steps, books),
        input_copies=_input_copies(books, this_step, later_step),
        input_stall_share=(feed_ns + this_step.total + later_step.total) / span_ns
        if feed_ns is not None and span_ns
        else None,
        host_while_idle=host_idle,
        outside_calls_ns=None if outside is None else outside.launch.total,
        startup_ns=starting.total,
        allocating_ns=allocating.launch.total,
        waited_ns=waited.total,
        held_launches=held_launches(books, steps),
        hand_over_ns=hand_over_ns(books),
        calling_threads=calling_threads(timelines, gpu),
        waits_on=waits_on(timelines, gpu),
        framework=framework.of(timelines, gpu),
        exchange=framework.exchange(timelines, gpu),
        loader=framework.loader(timelines, gpu),
        operators=by_operator,
        layers=by_layer,
        arithmetic=arithmetic.measure(timelines, gpu, books, counted),
        gpu_metrics=gpu_metrics.measure(timelines, shift_ns, gpu, steps.count if window == "steps" else 0, books),
        host_waits=host_waits(timelines, shift_ns, gpu, books.ownership, outside, allocating),
        idle_gaps=idle_gaps.longest(timelines, shift_ns, gpu, steps, books.ownership),
        graph_updates=graph_updates(timelines, shift_ns, gpu, books.ownership, books.window),
        launches=gpu.launches,
        breaks=late,
        places=of_lines,
        pauses=list(steps.pauses),
        capture=_capture(books) if window == "steps" else None,
    )
    if window != "steps":
        found.rest = without_steps.measure(timelines, shift_ns, gpu, books, starting.total, found.framework)
    spans = books.waits.spans
    return found, {**{name: intervals.intersect(times, spans) for name, times in named.items()}, **movable}


def _capture(books: Account) -> dict[str, Any]:
    start, end = books.capture_ns
    return {"window_ns": [start, end], "span_ns": end - start, "ledger_ns": books.capture_ledger_ns}


def _steps(steps: FoundSteps, rows: list[StepRow]) -> Steps:
    period = steps.end_ns - steps.start_ns
    return Steps(
        source=steps.source,
        refused=steps.refused,
        count=steps.count,
        warm_up=steps.warm_up,
        partial=steps.partial,
        breaks=steps.breaks,
        period_ns=Percentiles(*nearest_ranks(period, 50, 95, 100)) if len(period) else None,
        rows=rows,
        unit=steps.unit,
        served=steps.served,
        decodes=steps.decodes,
        marked=steps.marked,
        repeats=asdict(steps.repeats) if steps.repeats else None,
    )


def _batch_gap_edges(steps: FoundSteps) -> tuple[Int64s, Int64s, NDArray[np.bool_]]:
    """Per measured step: start and end of its batch gap in ns, and True if they are known. Gaps between steps that
    overlap have 0 ns."""
    known = steps.prev_last_kernel_end_ns != -1
    end = steps.start_ns
    return np.where(known, np.minimum(steps.prev_last_kernel_end_ns, end), end), end, known


def _step_rows(gpu: Gpu, steps: FoundSteps, books: Account) -> list[StepRow]:
    split = ownership.per_bin(books.ownership, steps.start_ns, steps.end_ns)
    gap_start, gap_end, gap_known = _batch_gap_edges(steps)
    count = kernels.per_step(gpu.operations, np.flatnonzero(gpu.operations.table == KERNELS), steps)
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
    """Statistics over the steps whose gap is known, including gaps of 0 ns; None if no gap is known."""
    known = np.array([gap for gap in per_step if gap is not None], np.int64)
    if not len(known):
        return None
    return Gaps(
        count=int((known > 0).sum()),
        total_ns=int(known.sum()),
        p50_ns=nearest_rank(known, 50),
        p95_ns=nearest_rank(known, 95),
        max_ns=int(known.max()),
    )


def _batch_gap_ledger(steps: FoundSteps, books: Account) -> dict[str, int] | None:
    start, end, known = _batch_gap_edges(steps)
    if not known.any():
        return None
    inside = books.window.part(intervals.union(start, end))
    split = ownership.per_bin(books.ownership, inside.start, inside.end)
    return {name: int(values.sum()) for name, values in split.items() if books.ledger_ns[name] is not None}


def _input_copies(books: Account, this_step: Intervals, later_step: Intervals) -> dict[str, int | float | None] | None:
    """Input copies in the window, and the ns in which they owned the GPU. The split into copies for the running step
    and for later steps is None if it is uncertain."""
    if books.inputs is None:
        return None
    operations = books.operations.chosen(books.inputs.is_input)
    counted = books.window.starting(operations)
    covered = books.window.part(intervals.union(operations.start_ns, operations.end_ns)).total
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
