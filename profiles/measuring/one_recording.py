"""Measure a unit, which is one recording or several that share a GPU: gather, find steps, account and measure.

Recordings outside the unit change only three things in its measures: the first step after warm-up, the clock
shift, and the waits for other ranks. A unit keeps the data for these corrections beside its measures.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from ..doubts.recordings import ranks_in_one_file
from ..gpus import clock, gather, host_ranges
from ..gpus.clock import Ends
from ..gpus.merged import told_apart
from ..gpus.operations import Gpu, for_pictures
from ..ground.errors import RingscopeError
from ..ground.intervals import Intervals
from ..ground.threads import each, release_unused
from ..ledger import window
from ..ledger.account import account
from ..ledger.enqueued import BY_HOROVOD, HandedOver, handed_over
from ..ledger.negotiated import Negotiated, of_timeline
from ..ledger.peers import Waits
from ..ledger.window import Window
from ..metrics import collectives, doubts, message_sizes
from ..metrics.collectives import Own
from ..metrics.gpu import measure as measure_gpu
from ..metrics.message_sizes import Moved
from ..model import marks
from ..model.analysed import GpuAnalysis
from ..model.columns import made_once
from ..model.measures import GpuMeasures
from ..model.timeline import Doubt, Recording, Timeline
from ..runs import rank_records, records
from ..steps import find as steps
from ..steps.found import FoundSteps, first_of_all, starting_from, starting_with

Identity = tuple[str | int | None, ...]
FirstSteps = Mapping[str | None, int]  # source of steps -> number, see `steps.found.first_of_all`


@dataclass(frozen=True, slots=True)
class Asked:
    """Options for measuring. `window`: "steps", "capture", or None (steps if any are found, else capture).
    `operations`: keep all operations, for pictures. `from_step`: leave out the steps before that number."""

    window: str | None = None
    operations: bool = False
    from_step: int = 0


@dataclass(frozen=True, slots=True)
class Recorded:
    """Data of one recording that belong to none of its GPUs alone."""

    recording: Recording
    doubts: tuple[Doubt, ...]
    ends: Ends
    ranks: frozenset[marks.Rank]
    record: records.RunRecord | None  # the launch that was recorded
    only_phases: bool  # True if it holds phases of collectives (Horovod's timeline), and no GPU operations
    negotiated: Negotiated | None = None


@dataclass(frozen=True, slots=True)
class GpuHead:
    """Data of a GPU that are known before it is measured. `places`: pairs of (recording's index in the unit, device
    number). `steps_source`, `first_step`: from which source its steps were found, and the first measured step."""

    places: tuple[tuple[int, int], ...]
    identity: Identity
    rank: int | None
    collectives: Own
    steps_source: str | None
    first_step: int | None


@dataclass(frozen=True, slots=True)
class Measured:
    """A GPU as measured from one unit, before what other units say corrects it; GPUs and recordings are numbered
    within the unit.

    `exposed`: spans owned by collectives. `waits`: idle spans that other ranks may explain. `meanwhile`: idle spans
    by the field of the measures, or the place in the code, that counts them; the part in which the GPU waits for
    other ranks is subtracted later.
    """

    measures: GpuMeasures
    doubts: tuple[Doubt, ...]
    exposed: Intervals
    waits: Waits
    meanwhile: Mapping[str, Intervals]
    picture: GpuAnalysis | None


@dataclass(slots=True)
class _Gathered:
    """The data from which a unit is measured. A GPU's part is freed as soon as that GPU is measured."""

    timelines: list[Timeline]
    gpus: list[Gpu]
    found: list[FoundSteps]
    moved: list[Moved]
    handed: list[HandedOver]


@dataclass(slots=True)
class Unit:
    """Recordings that are measured together since they share a GPU.

    `members`: the recordings' indices among all. `shift_ns`: for each recording, ns to add for the clock of the
    first one. `measure` sets `measured` and `measured_from` (the first steps), and sets `gathered` to None.
    """

    members: tuple[int, ...]
    recordings: tuple[Recorded, ...]
    shift_ns: tuple[int, ...]
    gpus: tuple[GpuHead, ...]
    gathered: _Gathered | None
    measured: tuple[Measured, ...] = ()
    measured_from: FirstSteps = field(default_factory=dict)

    @property
    def first_steps(self) -> FirstSteps:
        """The numbers of the first measured steps, by source, if there is no other unit."""
        return first_of_all((gpu.steps_source, gpu.first_step) for gpu in self.gpus)


def gather_unit(timelines: Sequence[Timeline], members: Sequence[int], shift_ns: Sequence[int], asked: Asked) -> Unit:
    """Gather the operations of recordings into a unit, which is not measured yet."""
    timelines = [made_once(_told_apart(_with_host(timeline))) for timeline in timelines]
    recordings = tuple(map(_recorded, timelines))
    rows = sum(len(one.kernels) + len(one.api) for one in timelines)
    taken = gather.take(timelines)
    own = [made_once(gather.without_kernels(one)) for one in timelines]
    del timelines
    release_unused(rows)
    gpus = gather.made_of(taken, own, shift_ns)
    moved = [message_sizes.moved(own, shift_ns, gpu, collectives.of(gpu)) for gpu in gpus]
    handed = [handed_over(own, shift_ns, gpu, collectives.of(gpu)) for gpu in gpus]
    largest = max((len(gpu.operations) for gpu in gpus), default=0)
    found = list(each(partial(steps.find, timelines=own, shift_ns=shift_ns), gpus, largest))
    found = [_from_step(one, asked.from_step, own[0]) for one in found]
    release_unused(rows)
    heads = tuple(
        GpuHead(
            gpu.places,
            gather.identity(own[gpu.places[0][0]], gpu.places[0][1]),
            gpu.rank,
            collectives.own(gpu, sizes, there),
            one.source,
            one.first,
        )
        for gpu, sizes, there, one in zip(gpus, moved, handed, found, strict=True)
    )
    return Unit(tuple(members), recordings, tuple(shift_ns), heads, _Gathered(own, gpus, found, moved, handed))


def _from_step(found: FoundSteps, number: int, timeline: Timeline) -> FoundSteps:
    """The steps from step `number` on. Raises RingscopeError if all whole steps lie before it."""
    kept = starting_from(found, {found.source: number})
    if found.count and not kept.count:
        last = f"{timeline.recording.path} has no whole step from there on, its last is step {found.step_number[-1]}"
        raise RingscopeError(f"--from-step {number}: {last}; give a smaller number")
    return kept


def _told_apart(timeline: Timeline) -> Timeline:
    """Give each rank its own GPUs, with a doubt, if several ranks' recordings were merged into one file."""
    apart = told_apart(timeline)
    called, gpus = (one.kernels["device"].nunique() for one in (timeline, apart))
    return replace(apart, doubts=(*apart.doubts, ranks_in_one_file(called, gpus))) if gpus > called else apart


def _with_host(timeline: Timeline) -> Timeline:
    """The timeline with its host: the one in the rank's record beside the recording, else the one in the recording."""
    host = rank_records.host_beside(Path(timeline.recording.path)) or timeline.recording.host
    return replace(timeline, recording=replace(timeline.recording, host=host))


def _recorded(timeline: Timeline) -> Recorded:
    return Recorded(
        recording=timeline.recording,
        doubts=timeline.doubts,
        ends=clock.ends(timeline),
        ranks=frozenset(marks.ranks(timeline).values()),
        record=records.beside(Path(timeline.recording.path)),
        only_phases=len(timeline.phases) > 0,
        negotiated=of_timeline(timeline),
    )


def measure(unit: Unit, first: FirstSteps, asked: Asked) -> None:
    """Measure the GPUs of a unit from the steps `first` on, and free the gathered data. Raises ValueError if the unit
    is measured already."""
    parts = unit.gathered
    if parts is None:
        raise ValueError("measured already")
    unit.gathered, unit.measured_from = None, dict(first)
    found = [starting_with(one, first) for one in parts.found]
    largest = max((len(gpu.operations) for gpu in parts.gpus), default=0)
    # `pop` leaves no reference here, so that a GPU's millions of operations are freed as soon as it is measured.
    each_gpu = (
        (number, parts.gpus.pop(0), found[number], parts.moved[number], parts.handed[number])
        for number in range(len(found))
    )
    host = host_ranges.OfGpus(parts.timelines, unit.shift_ns)
    unit.measured = tuple(each(partial(_measured, parts.timelines, unit.shift_ns, asked, host), each_gpu, largest))


def _measured(
    timelines: Sequence[Timeline],
    shift_ns: Sequence[int],
    asked: Asked,
    host: host_ranges.OfGpus,
    of: tuple[int, Gpu, FoundSteps, Moved, HandedOver],
) -> Measured:
    number, gpu, found, moved, handed = of
    # Steps that consist of operations of length 0 give no window.
    some = found.count and found.start_ns[0] < found.end_ns[-1]
    kind = "steps" if some and asked.window != "capture" else "capture"
    books = account(timelines, shift_ns, gpu, found, _window(gpu, found, kind), handed)
    measured, meanwhile = measure_gpu(timelines, shift_ns, gpu, found, books, moved, kind)
    raised = tuple(doubts.of_gpu(timelines, gpu, found, books, measured, f"/gpus/{number}"))
    operations = for_pictures(gpu) if asked.operations else None
    did = host.of(gpu) if asked.operations else None
    if (handed.source == BY_HOROVOD).any() and measured.ledger_ns["idle_launch"] is not None:
        measured.collectives.negotiation_ns = 0  # replaced when all ranks are joined
    exposed = collectives.exposed(books)
    picture = GpuAnalysis(number, books.owned, found.start_ns, found.end_ns, operations, did)
    release_unused(len(gpu.operations))
    return Measured(measured, raised, exposed, books.waits, meanwhile, picture)


def _window(gpu: Gpu, found: FoundSteps, kind: str) -> Window:
    if kind == "steps":
        return window.of_steps(found)
    return Window(int(gpu.operations.start_ns.min()), int(gpu.operations.end_ns.max()))
