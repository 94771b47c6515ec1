"""Convert units to the JSON values of a partial file and back. Values that contradict each other raise ValueError."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..gpus.clock import Ends
from ..ground.intervals import Intervals
from ..ledger import peers
from ..ledger.enqueued import FOREVER, SOURCES
from ..ledger.negotiated import Negotiated
from ..ledger.peers import Waits
from ..metrics.collectives import Own
from ..metrics.gpu import MEANWHILE
from ..metrics.places import is_movable
from ..model.marks import Rank
from ..model.measures import OWNERS, GpuMeasures
from ..model.measures_json import check, plain
from ..model.possible import LIMIT_NS
from ..model.timeline import Doubt, Recording
from ..runs.records import RunRecord
from .one_recording import GpuHead, Measured, Recorded, Unit

Int64s = NDArray[np.int64]


def plain_unit(unit: Unit) -> dict[str, Any]:
    return {
        "shift_ns": list(unit.shift_ns),
        "recordings": [_recorded(one) for one in unit.recordings],
        "gpus": [_head(one) | _measured(of) for one, of in zip(unit.gpus, unit.measured, strict=True)],
        "measured_from": [[source, number] for source, number in unit.measured_from.items()],
    }


def _recorded(one: Recorded) -> dict[str, Any]:
    names = list(dict.fromkeys(one.ends.name.tolist()))
    code = {name: number for number, name in enumerate(names)}
    return {
        "recording": plain(one.recording),
        "doubts": plain(one.doubts),
        "ends": {
            "origin_utc_ns": one.ends.origin_utc_ns,
            "end_ns": one.ends.end_ns.tolist(),
            "name": [code[name] for name in one.ends.name.tolist()],
            "steps": one.ends.steps,
            "names": names,
        },
        "ranks": sorted([rank.number, rank.size] for rank in one.ranks),
        "record": one.record.to_json() if one.record else None,
        "only_phases": one.only_phases,
        "negotiated": one.negotiated
        and {name: getattr(one.negotiated, name).tolist() for name in Negotiated.__slots__},
    }


def _head(gpu: GpuHead) -> dict[str, Any]:
    return {
        "places": [list(place) for place in gpu.places],
        "identity": list(gpu.identity),
        "rank": gpu.rank,
        "collectives": {
            **{name: getattr(gpu.collectives, name).tolist() for name in Own.__slots__},
            "handed_ns": [None if one == FOREVER else one for one in gpu.collectives.handed_ns.tolist()],
        },
        "steps_source": gpu.steps_source,
        "first_step": gpu.first_step,
    }


def _measured(gpu: Measured) -> dict[str, Any]:
    return {
        "measures": plain(gpu.measures),
        "doubts": plain(gpu.doubts),
        "exposed": _spans(gpu.exposed),
        "waits": {one.name: getattr(gpu.waits, one.name).tolist() for one in fields(gpu.waits)},
        "meanwhile": {name: _spans(times) for name, times in gpu.meanwhile.items()},
    }


def _spans(times: Intervals) -> tuple[list[int], list[int]]:
    return times.start.tolist(), times.end.tolist()


@dataclass(frozen=True, slots=True)
class _Ends:
    origin_utc_ns: int | None
    end_ns: list[int]
    name: list[int]
    names: list[str]
    steps: tuple[int, int] | None = None  # None in files of earlier versions


@dataclass(frozen=True, slots=True)
class _Negotiated:
    start_ns: list[int]
    end_ns: list[int]
    of: list[int]
    rank: list[int]
    ready_ns: list[int]

    def made(self) -> Negotiated:
        of = _places(self.of, len(self.start_ns))
        found = Negotiated(_times(self.start_ns), _times(self.end_ns), of, _times(self.rank), _times(self.ready_ns))
        if found.shorter():
            raise ValueError("the columns of negotiations have different lengths")
        return found


@dataclass(frozen=True, slots=True)
class _Recorded:
    recording: Recording
    doubts: list[Doubt]
    ends: _Ends
    ranks: list[tuple[int, int]]
    record: dict[str, Any] | None
    only_phases: bool
    negotiated: _Negotiated | None = None

    def made(self) -> Recorded:
        ends = self.ends
        names = np.array(ends.names, dtype=object)
        of_row = names[_places(ends.name, len(names))]
        return Recorded(
            recording=self.recording,
            doubts=tuple(self.doubts),
            ends=Ends(ends.origin_utc_ns, _times(ends.end_ns), of_row, ends.steps),
            ranks=frozenset(Rank(number, size) for number, size in self.ranks),
            record=RunRecord.from_json(self.record) if self.record else None,
            only_phases=self.only_phases,
            negotiated=self.negotiated.made() if self.negotiated else None,
        )


@dataclass(frozen=True, slots=True)
class _Collectives:
    start_ns: list[int]
    end_ns: list[int]
    bytes: list[int]
    all_reduce: list[bool]
    handed_ns: list[int | None] | None = None  # None in files of versions that did not record it


@dataclass(frozen=True, slots=True)
class _Waits:
    start_ns: list[int]
    end_ns: list[int]
    called_ns: list[int]
    collective: list[int]
    source: list[int]
    owner: list[int]

    def made(self, collectives: int) -> Waits:
        start, end = _times(self.start_ns), _times(self.end_ns)
        found = Waits(
            start,
            end,
            _times(self.called_ns),
            _places(self.collective, collectives),
            _places(self.source, SOURCES).astype(np.int8),
            _places(self.owner, len(OWNERS)).astype(np.int8),
        )
        if len({len(getattr(found, one.name)) for one in fields(found)}) > 1 or not _apart(start, end):
            raise ValueError("the waits are not spans in order of time")
        return found


@dataclass(frozen=True, slots=True)
class _Gpu:
    places: list[tuple[int, int]]
    identity: list[str | int | None]
    rank: int | None
    collectives: _Collectives
    steps_source: str | None
    first_step: int | None
    measures: GpuMeasures
    doubts: list[Doubt]
    exposed: tuple[list[int], list[int]]
    waits: _Waits | None = None
    meanwhile: dict[str, tuple[list[int], list[int]]] = field(default_factory=dict)

    def head(self, recordings: int) -> GpuHead:
        own = self.collectives
        _places([place for place, _ in self.places] or [-1], recordings)
        handed = own.handed_ns or [None] * len(own.start_ns)
        columns = (
            _times(own.start_ns),
            _times(own.end_ns),
            _times(own.bytes),
            np.array(own.all_reduce, bool),
            np.array([FOREVER if one is None else one for one in handed], np.int64),
        )
        if len({len(column) for column in columns}) > 1 or (columns[0] > columns[1]).any():
            raise ValueError("the columns of collectives have different lengths")
        return GpuHead(
            places=tuple(self.places),
            identity=tuple(self.identity),
            rank=self.rank,
            collectives=Own(*columns),
            steps_source=self.steps_source,
            first_step=self.first_step,
        )

    def measured(self, recordings: int) -> Measured:
        check(self.measures, recordings)
        if unknown := {name for name in self.meanwhile if name not in MEANWHILE and not is_movable(name)}:
            raise ValueError(f"no measure has the name {min(unknown)}")
        if unknown := {
            name for name in self.meanwhile if not is_movable(name) and getattr(self.measures, name) is None
        }:
            raise ValueError(f"{min(unknown)} has times, but no count")
        return Measured(
            measures=self.measures,
            doubts=tuple(self.doubts),
            exposed=_made_spans(self.exposed),
            waits=self.waits.made(len(self.collectives.start_ns)) if self.waits else peers.none(),
            meanwhile={name: _made_spans(times) for name, times in self.meanwhile.items()},
            picture=None,
        )


@dataclass(frozen=True, slots=True)
class Written:
    shift_ns: list[int]
    recordings: list[_Recorded]
    gpus: list[_Gpu]
    measured_from: list[tuple[str | None, int]]

    def made(self) -> Unit:
        count = len(self.recordings)
        if not count or len(self.shift_ns) != count:
            raise ValueError(f"there are {count} recordings, but {len(self.shift_ns)} clock shifts")
        return Unit(
            members=(),
            recordings=tuple(one.made() for one in self.recordings),
            shift_ns=tuple(_times(self.shift_ns).tolist()),
            gpus=tuple(one.head(count) for one in self.gpus),
            gathered=None,
            measured=tuple(one.measured(count) for one in self.gpus),
            measured_from=dict(self.measured_from),
        )


def _times(values: Sequence[int]) -> Int64s:
    found = np.array(values, dtype=np.int64)
    if len(found) and not -LIMIT_NS < found.min() <= found.max() < LIMIT_NS:
        raise ValueError(f"{int(np.abs(found).max())} ns is too large for a time")
    return found


def _made_spans(told: tuple[list[int], list[int]]) -> Intervals:
    start, end = map(_times, told)
    if not _apart(start, end):
        raise ValueError("the times are not spans in order")
    return Intervals(start, end)


def _apart(start: Int64s, end: Int64s) -> bool:
    """True if these are disjoint ascending spans, none of them empty."""
    return len(start) == len(end) and not (start >= end).any() and not (end[:-1] > start[1:]).any()


def _places(values: Sequence[int], count: int) -> Int64s:
    found = _times(values)
    if len(found) and not 0 <= found.min() <= found.max() < count:
        raise ValueError(f"an index is beyond the {count} entries")
    return found
