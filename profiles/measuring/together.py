"""Join measured units (recordings that share a GPU) into one analysis.

All GPUs get one clock and the same first step, and collectives are matched across ranks.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TypeAlias

import numpy as np

from ..doubts import trust
from ..doubts.measures import merged
from ..gpus.clock import Clock, aligned
from ..ground import intervals
from ..ground.errors import RingscopeError
from ..ground.intervals import Intervals
from ..ledger import ownership, peers
from ..ledger.enqueued import FOREVER
from ..ledger.negotiated import Negotiated
from ..ledger.peers import Waits
from ..ledger.window import Window
from ..metrics import buckets, collectives, doubts
from ..metrics.buckets import Int64s
from ..metrics.collectives import Calls
from ..model import marks
from ..model.analysed import Analysis, GpuAnalysis, Ownership
from ..model.measures import GpuMeasures, Measures
from ..model.steps import StepRow
from ..model.timeline import Doubt
from ..steps.found import first_of_all
from .one_recording import Asked, FirstSteps, GpuHead, Identity, Measured, Recorded, Unit, measure
from .waiting import with_peers

_IN_UNIT = re.compile(r"^/gpus/\d+")


@dataclass(frozen=True, slots=True)
class Again:
    """A request to gather and measure recordings again, as a unit with these clock shifts and first measured steps."""

    members: tuple[int, ...]
    shift_ns: tuple[int, ...]
    first: FirstSteps


Remake: TypeAlias = Callable[[Sequence[Again]], list[Unit]]
Told: TypeAlias = Callable[[float, float, Path], None]


@dataclass(frozen=True, slots=True)
class Settled:
    """Measured units that need no correction any more, in order of their recordings, and their common clock."""

    units: list[Unit]
    clock: Clock


def settle(units: Sequence[Unit], remake: Remake, asked: Asked, told: Told | None = None) -> Settled:
    """Measure all units with the clock and first steps that all of them agree on. `remake` gathers and measures units
    again: those that share a GPU, and those whose clock shift or first step another unit changes."""
    while True:
        units = sorted(units, key=lambda unit: unit.members)
        clock = aligned([one.ends for one in _in_order(units)])
        first = first_of_all((gpu.steps_source, gpu.first_step) for unit in units for gpu in unit.gpus)
        of = {unit.members: unit for unit in units}
        again = []
        for members in _sharing(units):
            shift_ns = tuple(clock.shift_ns[place] - clock.shift_ns[members[0]] for place in members)
            unit = of.get(members)
            if unit is None or unit.shift_ns != shift_ns or not _steps_hold(unit, first):
                again.append(Again(members, shift_ns, first))
        if not again:
            _measure(units, first, asked, told)
            return Settled(units, clock)
        anew = {place for one in again for place in one.members}
        units = [*(unit for unit in units if not anew & set(unit.members)), *remake(again)]


def join(settled: Settled, unread: Sequence[Doubt] = ()) -> Analysis:
    """Join the units into the measures and doubts of all GPUs, without findings. Raises RingscopeError if no GPU did
    anything."""
    units, clock = settled.units, settled.clock
    recorded = _in_order(units)
    gpus = sorted((_Gpu(unit, number) for unit in units for number in range(len(unit.gpus))), key=lambda gpu: gpu.order)
    if not gpus:
        raise RingscopeError(f"{recorded[0].recording.path}: {_nothing(recorded[0])}")
    marked = marks.ranks_seen({rank for one in recorded for rank in one.ranks})
    seen, size = marked if any(marked) else marks.ranks_seen(_by_format(recorded))
    shift_ns = [clock.shift_ns[gpu.places[0][0]] for gpu in gpus]
    own = [gpu.head.collectives for gpu in gpus]
    # Horovod's ranks, which the marks name, take part in all collectives; PyTorch's may have groups of their own.
    matched = collectives.Matched(own, shift_ns, clock.residual_ns, max(marked[1] - marked[0], 0))
    others_ns = matched.others_handed_ns()
    negotiated = next((one.negotiated for one in recorded if one.negotiated is not None), None)
    gpus = [
        gpu.settled(peers.settle(gpu.waits, there, seen >= size, gpu.told(negotiated, recorded)))
        for gpu, there in zip(gpus, others_ns, strict=True)
    ]
    calls = matched.calls([gpu.before_ns for gpu in gpus])
    raised = [*unread, *(doubt for one in recorded for doubt in one.doubts)]
    raised += [*doubts.of_clock(clock, calls), *doubts.of_ranks(seen, size, calls, [len(one.bytes) for one in own])]
    raised += doubts.of_names([gpu.head.rank for gpu in gpus], [frozenset(at for at, _ in gpu.places) for gpu in gpus])
    raised += [doubt for place, gpu in enumerate(gpus) for doubt in gpu.doubts(place)]
    rows, waited = [gpu.rows for gpu in gpus], [gpu.waited_ns(among) for gpu, among in zip(gpus, calls, strict=True)]
    paces, turns_ns = buckets.pace(rows, waited), buckets.by_turns(rows, waited)
    measures = Measures(
        recordings=[one.recording for one in recorded],
        gpus=[gpu.measures(among, pace, turns_ns) for gpu, among, pace in zip(gpus, calls, paces, strict=True)],
        doubts=merged(raised),
        clock=clock.to_json() if len(recorded) > 1 else None,
        straggler=collectives.straggler([gpu.head.rank for gpu in gpus], calls),
    )
    measures.trust = trust.judged(measures)
    pictures = tuple(one for place, gpu in enumerate(gpus) if (one := gpu.picture(place)) is not None)
    # Units from other processes or hosts have pictures only if the caller asks for them.
    return Analysis(measures, pictures if len(pictures) == len(gpus) else (), clock.shift_ns)


def _in_order(units: Sequence[Unit]) -> list[Recorded]:
    each = ((place, one) for unit in units for place, one in zip(unit.members, unit.recordings, strict=True))
    return [one for _, one in sorted(each, key=lambda pair: pair[0])]


def _by_format(recorded: Sequence[Recorded]) -> set[marks.Rank]:
    """The ranks of recordings whose format says both the rank and the number of ranks."""
    told = ((one.recording.rank, one.recording.ranks) for one in recorded)
    return {marks.Rank(rank, ranks) for rank, ranks in told if rank is not None and ranks is not None}


def _sharing(units: Sequence[Unit]) -> list[tuple[int, ...]]:
    """Group the recordings that must be measured together because they share a GPU; each group as the recordings'
    indices."""
    leader = list(range(len(units)))

    def led_by(unit: int) -> int:
        while leader[unit] != unit:
            unit = leader[unit]
        return unit

    whose: dict[Identity, int] = {}
    for number, unit in enumerate(units):
        for gpu in unit.gpus:
            first, second = sorted((led_by(number), led_by(whose.setdefault(gpu.identity, number))))
            leader[second] = first
    sets: dict[int, list[int]] = {}
    for number, unit in enumerate(units):
        sets.setdefault(led_by(number), []).extend(unit.members)
    return [tuple(sorted(members)) for members in sets.values()]


def _steps_hold(unit: Unit, first: FirstSteps) -> bool:
    """True if the unit's measures would be the same when measured from these first steps on."""
    if unit.gathered is not None:
        return True  # not measured yet
    for gpu in unit.gpus:
        was, now = (one.get(gpu.steps_source, 0) for one in (unit.measured_from, first))
        if gpu.first_step is not None and was != now and max(was, now) > gpu.first_step:
            return False
    return True


def _nothing(recorded: Recorded) -> str:
    if recorded.only_phases:
        return "only phases of collectives, no GPU operations; `--info` shows them, `ringscope record` records GPUs"
    return "no GPU did anything in it; record while the training runs, on a machine with a GPU"


def _measure(units: Sequence[Unit], first: FirstSteps, asked: Asked, told: Told | None) -> None:
    left = [unit for unit in units if unit.gathered is not None]
    total, done = sum(len(unit.gpus) for unit in left), 0
    for unit in left:
        measure(unit, first, asked)
        done += len(unit.gpus)
        if told and unit.gpus:
            told(done, total, Path(unit.recordings[0].recording.path))


def _reach(owned: Ownership) -> tuple[int, int]:
    return int(owned.start_ns[0]), int(owned.end_ns[-1])


def _window(own: GpuMeasures) -> Window:
    breaks = np.array([(one.start_ns, one.end_ns) for one in own.breaks if own.window == "steps"], np.int64)
    between = intervals.union(*breaks.reshape(-1, 2).T)
    return Window(own.window_ns[0], own.window_ns[1], intervals.clip(between, *own.window_ns))


@dataclass(frozen=True, slots=True)
class _Gpu:
    """A GPU of a unit. The unit numbers its recordings and GPUs from 0; this class gives their numbers among all."""

    unit: Unit
    number: int
    own: GpuMeasures | None = None  # measures after the waits are divided between other ranks and the host
    waiting: Intervals = field(default_factory=lambda: intervals.EMPTY)
    # For each collective of the GPU, the wait for other ranks before it.
    before_ns: Int64s = field(default_factory=lambda: np.empty(0, np.int64))

    def settled(self, found: peers.Settled) -> _Gpu:
        own = with_peers(self._measured, found, _window(self._measured.measures))
        return replace(self, own=own, waiting=found.peers, before_ns=found.before_ns)

    @property
    def waits(self) -> Waits:
        return self._measured.waits

    def told(self, negotiated: Negotiated | None, recorded: Sequence[Recorded]) -> tuple[Int64s, Int64s] | None:
        """For each wait, when this rank's last tensor was ready and when the slowest other rank's was, by Horovod's
        timeline. In ns on the GPU's clock. None without a timeline, the recording's start in UTC, or a rank."""
        utc = recorded[self.places[0][0]].recording.origin_utc_ns
        if negotiated is None or utc is None or self.head.rank is None:
            return None
        own, others = negotiated.told(self.waits.called_ns + utc, self.head.rank)
        return np.where(own == FOREVER, FOREVER, own - utc), np.where(others == FOREVER, FOREVER, others - utc)

    @property
    def head(self) -> GpuHead:
        return self.unit.gpus[self.number]

    @property
    def places(self) -> tuple[tuple[int, int], ...]:
        return tuple((self.unit.members[place], device) for place, device in self.head.places)

    @property
    def order(self) -> tuple[object, ...]:
        """A key that sorts GPUs by rank, those without a rank last, then by recording."""
        rank = self.head.rank
        return rank is None, rank or 0, self.places

    @property
    def _measured(self) -> Measured:
        return self.unit.measured[self.number]

    def waited_ns(self, among: Calls) -> Int64s:
        """For each step, the ns in which the GPU waits for other ranks: before collectives are launched, and exposed
        within them."""
        before = (row.ledger_ns["idle_peers"] or 0 for row in self.rows)
        return buckets.waited(among, self._measured.exposed, self.rows) + np.fromiter(before, np.int64)

    @property
    def rows(self) -> list[StepRow]:
        return self.measured.steps.rows

    @property
    def measured(self) -> GpuMeasures:
        return self.own or self._measured.measures

    def measures(self, among: Calls, pace: tuple[int, int] | None, turns_ns: int | None) -> GpuMeasures:
        own, exposed = self.measured, self._measured.exposed
        window = _window(own)
        behind_ns, varies_ns = pace or (None, None)
        found = collectives.among_ranks(own.collectives, among, window, exposed)
        return replace(
            own,
            recordings=sorted(self.unit.members[place] for place in own.recordings),
            collectives=replace(
                found,
                one_step=buckets.one_step(among, exposed, self.rows),
                behind_ns=behind_ns,
                varies_ns=varies_ns,
                by_turns_ns=None if found.waiting_ns is None else turns_ns,
            ),
        )

    def doubts(self, place: int) -> list[Doubt]:
        there = f"/gpus/{place}"  # replaces the number within the unit, which a damaged partial file may have wrong
        found = [
            replace(doubt, where=tuple(_IN_UNIT.sub(there, where) for where in doubt.where))
            for doubt in self._measured.doubts
        ]
        return found + list(doubts.of_waits(self.measured, there))

    def picture(self, place: int) -> GpuAnalysis | None:
        own = self._measured.picture
        if own is None:
            return None
        members = self.unit.members
        operations, host = own.operations, own.host
        if operations is not None:
            streams = tuple(one._replace(recording=members[one.recording]) for one in operations.streams)
            operations = replace(operations, streams=streams)
        if host is not None:
            host = replace(host, threads=tuple(one._replace(recording=members[one.recording]) for one in host.threads))
        owned = ownership.ownership(
            np.append(own.ownership.start_ns, own.ownership.end_ns[-1:]),
            own.ownership.owner.copy(),
            {"idle_peers": intervals.clip(self.waiting, *_reach(own.ownership))},
            _reach(own.ownership),
        )
        return replace(own, gpu=place, ownership=owned, operations=operations, host=host)
