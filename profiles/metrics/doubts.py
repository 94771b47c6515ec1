"""Decide which doubts about the measures of a GPU to raise. profiles/doubts holds their texts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

import numpy as np

from ..doubts import gpu_metrics as say_of_metrics
from ..doubts import measures as say
from ..doubts import ranks as say_of_ranks
from ..doubts import steps as say_of_steps
from ..doubts.recordings import at_once, before_their_calls
from ..gpus.clock import AGREE_NS, Clock
from ..gpus.collective_kernels import sounds_like_one
from ..gpus.operations import COMPUTE, KERNELS, Gpu
from ..ground import intervals
from ..ground.groups import by_value
from ..ground.stats import all_along
from ..ledger.account import Account
from ..ledger.window import Window
from ..model.measures import GpuMeasures
from ..model.timeline import Doubt, Timeline
from ..steps.found import FoundSteps
from . import copies
from .collectives import Calls

PLAIN = ("cuda", "hip")  # values of `framework` for programs without a framework, which know no batches
# A window with a one-off gap and fewer kernels than this is an example or one operator, no training. A program in plain
# CUDA may have fewer, longer kernels.
LEAST_KERNELS, LEAST_OF_PLAIN = 20, 12
# A window without steps whose compute takes less than this part of the time of its collectives is no training.
LEAST_COMPUTE = 0.1
# A program with this number of similar gaps runs in rounds; gaps are similar if at least 1 / ROUNDS of the longest.
ROUNDS = 3
# A window may be no training only if time without compute takes at least this share of it.
LOST = 0.1
# Say that a process starts up inside the window if that takes at least this share of it.
STARTUP_SHARE = 0.03
# Say that launch idle may be waiting for other ranks if that takes at least this share of the window.
UNTOLD_SHARE = 0.01
# Call GPU metrics coarse if samples that hold other time as well cover at least this share of compute.
MIXED_SHARE = 0.25
# With fewer different power readings than this, one reading is on average over a tenth of the energy.
FEW_READINGS = 10
# Kernels of one stream overlap where the second is launched ahead of the first one's end: in 1 264 real recordings
# their summed time is at most 1.03 times that of the stream, but for two recordings of three kernels (1.06).
ONE_AFTER_THE_OTHER = 1.2
# Say that CUDA graphs hide operators if that concerns at least this share of the window.
HIDDEN_SHARE = 0.05


def of_clock(clock: Clock, calls: Sequence[Calls]) -> Iterator[Doubt]:
    """Doubts about the common clock of several recordings."""
    if len(clock.shift_ns) < 2:
        return
    where = ("/clock", *(f"/gpus/{gpu}/collectives/skew_ns" for gpu, own in enumerate(calls) if len(own.start_ns)))
    if clock.residual_ns is None:
        yield say_of_ranks.clocks_unchecked(where)
    elif clock.residual_ns > AGREE_NS:
        yield say_of_ranks.clocks_apart(clock.residual_ns, where)
    elif clock.method == "collectives":
        yield say_of_ranks.clocks_shifted(clock.residual_ns, where)


def of_names(ranks: Sequence[int | None], recordings: Sequence[frozenset[int]]) -> Iterator[Doubt]:
    """Doubts about GPUs of different recordings that have the same rank. ranks, recordings: of each GPU."""
    for rank in sorted({rank for rank in ranks if rank is not None}):
        named = [gpu for gpu, own in enumerate(ranks) if own == rank]
        if any(recordings[named[0]].isdisjoint(recordings[gpu]) for gpu in named[1:]):
            yield say_of_ranks.rank_twice(rank, named)


def of_ranks(seen: int, size: int, calls: Sequence[Calls], counts: Sequence[int]) -> Iterator[Doubt]:
    """Doubts about ranks of a run that have no recording.

    seen: number of ranks that the harness's marks name; size: number of ranks of the run; both 0 without marks. counts:
    number of each GPU's collectives, matched or not."""
    shared = [gpu for gpu, own in enumerate(calls) if len(own.start_ns)]
    alone = [gpu for gpu, count in enumerate(counts) if count and gpu not in shared]
    apart = seen >= size and len(counts) > 1
    those = f"recordings of {seen} of {size} ranks" if seen < size else "no recording of another rank"
    if apart:
        those = "no other GPU's collectives end at the same times (these recordings are of different times or runs)"
    if seen < size and shared:
        yield say_of_ranks.other_ranks_missing(those, shared)
    if alone:
        yield say_of_ranks.no_other_rank(those, alone, apart=apart)


def of_gpu(
    timelines: Sequence[Timeline], gpu: Gpu, steps: FoundSteps, books: Account, measured: GpuMeasures, where: str
) -> Iterator[Doubt]:
    """Doubts about the numbers of one GPU; `where` is its place in the JSON."""
    recorded = timelines[gpu.places[0][0]].recording.format
    if measured.launches is not None and measured.launches.only_captures:
        yield say.only_captures(measured.launches, where)
    elif measured.launches is not None and measured.launches.thinned:
        yield say.thinned(measured.launches, where)
    elif measured.launches is not None and measured.launches.lost:
        yield say.launches_lost(measured.launches, where, recorded)
    elif len(gpu.lacking):
        yield say.untimed(len(gpu.lacking), where, recorded)
    for table in books.unrecorded:
        yield say.class_not_recorded(table, where, recorded)
    if measured.kernels.graph_launches:
        yield say.graph_level_recording(measured.kernels.graph_launches, where)
    for direction, (moved, took_ns) in copies.impossible(gpu.operations).items():
        yield say.copy_too_fast(direction, moved, took_ns, where, recorded)
    undirected = copies.undirected(timelines, gpu, books.window)
    if len(undirected):
        yield say.copy_direction_unknown(len(undirected), int(undirected.sum()), where)
    if gpu.too_early:
        yield before_their_calls(gpu.too_early, where)
    yield from _at_once(gpu, where)
    for number in gpu.off_clock:
        yield say.off_clock(gpu.processes[number][1], where, recorded)
    launched = int(gpu.operations.launched.sum())
    left_out = any("clocks-apart in api" in timelines[index].left_out for index, _ in gpu.places)
    if not launched and not gpu.off_clock and not left_out:
        yield say.no_api_rows(
            sum(len(timelines[index].api) for index in {index for index, _ in gpu.processes}), where, recorded
        )
    elif 0 < launched < len(gpu.operations):
        alone, managed = len(gpu.operations) - launched, _managed(timelines, gpu)
        yield say.calls_missing(alone, len(gpu.operations), managed, where, recorded)
    unmarked = [timelines[index].known for index, _ in gpu.places if "marks" not in timelines[index].known]
    if unmarked:
        yield say.no_marks(where, recorded, operators=all("operators" in known for known in unmarked))
    if measured.collectives.count and measured.collectives.bytes_per_step is None:
        yield say.collective_bytes_unknown(where, recorded)
    if (hidden := measured.operators) is not None and hidden.in_graphs_ns >= HIDDEN_SHARE * measured.span_ns > 0:
        yield say.operators_in_graphs(hidden.in_graphs_ns / measured.span_ns, where)
    if measured.arithmetic is not None and not measured.arithmetic.all_told:
        yield say.flops_partly_told(measured.arithmetic, where, recorded)
    if measured.arithmetic is not None and measured.arithmetic.mfu is None:
        yield say.no_peak(measured.arithmetic, where)
    yield from _sampled(timelines, gpu, measured, where)
    yield from _unknown_exchanges(gpu, books.window, where)
    if len(gpu.processes) > 1:
        recordings = len({index for index, _ in gpu.processes})
        yield say.several_processes(len(gpu.processes), recordings, where, by_turns=_by_turns(gpu))
    yield from _step_doubts(steps, books, measured, where, recorded)


def _by_turns(gpu: Gpu) -> bool:
    """True if the GPU is in several recordings, and no two of them overlap in time."""
    each = [gpu.operations.place == place for place in range(len(gpu.places))]
    spans = sorted((gpu.operations.start_ns[one].min(), gpu.operations.end_ns[one].max()) for one in each if one.any())
    return len(spans) > 1 and all(end <= start for (_, end), (start, _) in pairwise(spans))


def _sampled(timelines: Sequence[Timeline], gpu: Gpu, measured: GpuMeasures, where: str) -> Iterator[Doubt]:
    found = measured.gpu_metrics
    if found is None:
        return
    step = measured.steps.period_ns
    if found.bound_ns is not None and found.period_ns:
        shorter = step.p50 if step is not None and step.p50 < found.period_ns else None
        mixed = found.mixed_ns / max(measured.ledger_ns["compute"] or 0, 1)
        if shorter is not None or mixed >= MIXED_SHARE:
            yield say_of_metrics.coarse(found.period_ns, shorter, mixed, where)
    if found.off_by and found.period_ns:
        yield say_of_metrics.off_clock(found.off_by, found.period_ns, where)
    if found.energy is not None and found.energy.readings < FEW_READINGS:
        read = {device for index, _ in gpu.places for device in timelines[index].power["device"].tolist()}
        yield say_of_metrics.power_coarse(found.energy.readings, len(read) > 1, where)


def _at_once(gpu: Gpu, where: str) -> Iterator[Doubt]:
    """A doubt if kernels of one stream run at the same time. Nodes of CUDA graphs may: they run on streams of their
    own, but are recorded on the stream of the graph."""
    operations = gpu.operations
    which = (operations.table == KERNELS) & (operations.nodes(slice(None)) == 0)
    start, end = operations.start_ns[which], operations.end_ns[which]
    summed = int((end - start).sum())
    if summed <= ONE_AFTER_THE_OTHER * intervals.union(start, end).total:
        return
    streams = by_value(operations.stream[which])
    alone = sum(intervals.union(start[rows], end[rows]).total for _, rows in streams)
    if summed > ONE_AFTER_THE_OTHER * alone:
        yield at_once(summed - alone, summed, where)


def _unknown_exchanges(gpu: Gpu, window: Window, where: str) -> Iterator[Doubt]:
    """A doubt if kernels counted as compute have names that sound like an exchange with other GPUs."""
    places = np.flatnonzero(sounds_like_one(gpu.names))
    if not len(places):
        return
    inside = window.starting(gpu.operations)
    found = inside.chosen((inside.kind == COMPUTE) & (inside.table == KERNELS) & np.isin(inside.name, places))
    if len(found):
        spent = window.part(intervals.union(found.start_ns, found.end_ns)).total
        lasted = np.bincount(found.name, weights=found.end_ns - found.start_ns)
        yield say.exchange_unknown(len(found), spent / window.span_ns, str(gpu.names[lasted.argmax()]), where)


def _step_doubts(
    steps: FoundSteps, books: Account, measured: GpuMeasures, where: str, recorded: str
) -> Iterator[Doubt]:
    if steps.refused is not None:
        yield say_of_steps.steps_refused(measured.steps, where, recorded)
    lost = (measured.ledger_ns["compute"] or 0) < (1 - LOST) * measured.span_ns
    if measured.told and lost and not shows_training(measured):
        yield say_of_steps.mostly_no_training(measured, recorded, where)
    if (measured.startup_ns or 0) >= STARTUP_SHARE * measured.span_ns > 0:
        yield say_of_steps.starts_inside(measured, where)
    if steps.source == "period":
        yield say_of_steps.steps_by_period(measured.steps, where, recorded)
    if steps.steps_each > 1:
        yield say_of_steps.several_steps_each(steps.steps_each, where)
    if measured.leads_with_capture and measured.capture:
        yield say_of_steps.steps_cover_little(measured, where)
    if measured.window == "capture" and steps.warm_up + steps.partial:
        yield say_of_steps.warm_up_inside(measured.steps, where)
    if not measured.holds_steps_alone and steps.breaks:
        yield say_of_steps.breaks_inside(steps.breaks, where, recorded)
    if books.inputs is not None and not books.inputs.certain and books.ledger_ns["idle_feed"] is None:
        yield say_of_steps.copy_order_unknown(where, recorded)
    if books.ledger_ns["idle_feed"] and not books.input_marks:
        yield say_of_steps.feed_or_host(where, measured.framework)
    if (measured.batch_gap_ledger_ns or {}).get("idle_sync"):
        yield say_of_steps.sync_upper_bound(where)


def of_waits(measured: GpuMeasures, where: str) -> Iterator[Doubt]:
    """A doubt if enough launch idle may have been waiting for other ranks and the recordings cannot tell."""
    untold = measured.collectives.peers_or_launch_ns
    if untold >= UNTOLD_SHARE * measured.span_ns > 0:
        yield say_of_ranks.peers_or_launch(untold / measured.span_ns, where)


def _managed(timelines: Sequence[Timeline], gpu: Gpu) -> int:
    """The number of copies of managed memory that the driver made on its own, in all recordings of the GPU."""
    tables = [timelines[index].copies for index in {index for index, _ in gpu.places}]
    ends = [(one["src_kind"] == "managed") | (one["dst_kind"] == "managed") for one in tables]
    return sum(int((one & (table["correlation"] <= 0)).sum()) for one, table in zip(ends, tables, strict=True))


def shows_training(gpu: GpuMeasures) -> bool:
    """True if the window without its one-off gaps looks like a training loop.

    A window without steps may instead hold a benchmark of NCCL, or the start of a program, whose kernels lie in only a
    part of the window."""
    compute, collective = (gpu.busy_ns[name] or 0 for name in ("compute", "collective"))
    beside, kernels = gpu.steadily, gpu.kernels
    # Measures of an older version have no `in_tenths`: their kernels are taken to lie in all parts of the window.
    spread = not kernels.in_tenths or all_along(beside.kernels.in_tenths) or in_rounds(beside)
    # The part before a long gap may be a program's start, in which most kernels run once, or a short example.
    least = LEAST_OF_PLAIN if gpu.framework in PLAIN else LEAST_KERNELS
    again = gpu.rest is None or kernels.count >= max(2 * kernels.distinct, least)
    return gpu.window == "steps" or (spread and again and compute > LEAST_COMPUTE * collective)


def in_rounds(gpu: GpuMeasures) -> bool:
    """True if similar gaps before the same operation come again and again and make up half of the idle time.

    Such a program is a loop of a few long rounds, although its kernels lie in a few tenths of the recording."""
    idle_ns = sum(ns or 0 for owner, ns in gpu.ledger_ns.items() if owner.startswith("idle_"))
    alike: dict[tuple[object, ...], list[int]] = {}
    for gap in gpu.idle_gaps:  # sorted by length, the longest first
        if gap.ended_by is not None:
            alike.setdefault((gap.ended_by, gap.name, gap.bytes), []).append(gap.ns)
    rounds = [[ns for ns in each if ROUNDS * ns >= each[0]] for each in alike.values()]
    return any(len(each) >= ROUNDS and 2 * sum(each) >= idle_ns for each in rounds)
