"""Units as a small file: what one host measured of its own recordings, to be put together with what others did.

gzipped JSON, schema ringscope.partial/1 (docs/reference/files.md). It holds measures, and what other ranks' may change
of them; no operations. Times are as in the recordings.
"""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ..gpus.clock import Ends
from ..ground import typed
from ..ground.errors import RingscopeError, UnreadableRecording
from ..ground.files import MOST_BYTES, gzipped, written_whole
from ..ground.intervals import Intervals
from ..ground.version import VERSION
from ..ledger import peers
from ..ledger.handed_over import FOREVER, SOURCES
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
from ..readers import opening
from ..runs.records import RunRecord
from .one_recording import Asked, GpuHead, Measured, Recorded, Unit

Int64s = NDArray[np.int64]
SCHEMA: Final = "ringscope.partial/1"
_BEGINS: Final = b'{"schema": "ringscope.partial/'
_GZIP: Final = b"\x1f\x8b"


@dataclass(frozen=True, slots=True)
class Held:
    """A recording that is not at hand: the partial file that holds what it told."""

    path: Path
    recording: str

    def refusal(self, from_step: int, of: Sequence[str]) -> RingscopeError:
        """The reason to make it again, and how. `of`: the recordings that must be measured together."""
        if len(of) > 1:
            problem = f"{', '.join(of)} belong together (one GPU, one clock), and {self.path} holds some of them"
            return RingscopeError(f"{problem}; make one partial file of all of them")
        problem = f"{self.path}: it counts steps from too early: other ranks are warmed up only at step {from_step}"
        return RingscopeError(f"{problem}; make it again with --from-step {from_step}")


@contextmanager
def written(path: Path, units: Sequence[Unit], doubts: Sequence[Doubt], asked: Asked) -> Iterator[None]:
    """Write measured units, and doubts about what could not be read; the file takes its place if the block ends well.

    Raises RingscopeError where the file may not be written.
    """
    data = {
        "schema": SCHEMA,
        "version": VERSION,
        "window": asked.window,
        "doubts": plain(doubts),
        "units": [_unit(unit) for unit in units],
    }
    with written_whole(path) as beside:
        with gzipped(beside, 6, errors="replace") as out:
            json.dump(data, out, allow_nan=False, ensure_ascii=False)  # of names that are no UTF-8 no lone surrogates
        yield


def detects(path: Path) -> bool:
    """True if this is a partial file. Never raises, and waits for no pipe."""
    try:
        if not path.is_file():
            return False
        with path.open("rb") as file:
            if file.read(2) != _GZIP:
                return False
        with gzip.open(path) as content:
            return content.read(len(_BEGINS)) == _BEGINS
    except (OSError, EOFError, zlib.error):
        return False


def read(path: Path, asked: Asked, max_bytes: int | None = None) -> list[Unit]:
    """The units again. max_bytes: how far it may unfold (default MOST_BYTES).

    Raises UnreadableRecording for one that is damaged, of another version or of another window.
    """
    again = "make it again: ringscope timeline PATH --partial FILE"
    text = _unfolded(path, MOST_BYTES if max_bytes is None else max_bytes)
    try:
        head = typed.decoded(_Head, text)
        if head.schema != SCHEMA or head.version != VERSION:
            problem = f"a partial file of ringscope {head.version} ({head.schema}), and this is {VERSION}"
            raise UnreadableRecording(path, problem, again)
        if head.window != asked.window:
            problem = f"measured with --window {head.window or 'steps where there are any'}, and asked for is "
            raise UnreadableRecording(path, problem + (asked.window or "the default"), again)
        held = typed.decoded(_File, text)
        units = [one.made() for one in held.units]
        if not units:
            raise ValueError("it holds nothing")
        first = units[0].recordings[0]
        units[0].recordings = (replace(first, doubts=(*held.doubts, *first.doubts)), *units[0].recordings[1:])
        return units
    except (ValueError, KeyError, TypeError) as error:  # files of a run's record
        raise UnreadableRecording(path, f"a partial file, cut short or damaged ({error})", again) from None


def _unfolded(path: Path, most: int) -> bytes:
    with opening.content(path) as content:
        found = content.read(most + 1)
    if len(found) > most:
        problem = f"a partial file that unpacks to more than {most:,} bytes"
        raise UnreadableRecording(path, problem, "give --max-size BYTES if it is one")
    return found


def _unit(unit: Unit) -> dict[str, Any]:
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
class _Head:
    schema: str
    version: str
    window: str | None


@dataclass(frozen=True, slots=True)
class _Ends:
    origin_utc_ns: int | None
    end_ns: list[int]
    name: list[int]
    names: list[str]
    steps: tuple[int, int] | None = None  # earlier files do not tell them


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
            raise ValueError("columns of negotiations with different lengths")
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
    handed_ns: list[int | None] | None = None  # None: of a version that did not look for it


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
            raise ValueError("waits that are not spans in order")
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
            raise ValueError("collectives with columns of different lengths")
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
            raise ValueError(f"no number is called {min(unknown)}")
        if unknown := {
            name for name in self.meanwhile if not is_movable(name) and getattr(self.measures, name) is None
        }:
            raise ValueError(f"times of {min(unknown)}, and no number of it")
        return Measured(
            measures=self.measures,
            doubts=tuple(self.doubts),
            exposed=_made_spans(self.exposed),
            waits=self.waits.made(len(self.collectives.start_ns)) if self.waits else peers.none(),
            meanwhile={name: _made_spans(times) for name, times in self.meanwhile.items()},
            picture=None,
        )


@dataclass(frozen=True, slots=True)
class _Unit:
    shift_ns: list[int]
    recordings: list[_Recorded]
    gpus: list[_Gpu]
    measured_from: list[tuple[str | None, int]]

    def made(self) -> Unit:
        count = len(self.recordings)
        if not count or len(self.shift_ns) != count:
            raise ValueError(f"{count} recordings and {len(self.shift_ns)} shifts")
        return Unit(
            members=(),
            recordings=tuple(one.made() for one in self.recordings),
            shift_ns=tuple(_times(self.shift_ns).tolist()),
            gpus=tuple(one.head(count) for one in self.gpus),
            gathered=None,
            measured=tuple(one.measured(count) for one in self.gpus),
            measured_from=dict(self.measured_from),
        )


@dataclass(frozen=True, slots=True)
class _File:
    doubts: list[Doubt]
    units: list[_Unit]


def _times(values: Sequence[int]) -> Int64s:
    found = np.array(values, dtype=np.int64)
    if len(found) and not -LIMIT_NS < found.min() <= found.max() < LIMIT_NS:
        raise ValueError(f"{int(np.abs(found).max())} is no time")
    return found


def _made_spans(told: tuple[list[int], list[int]]) -> Intervals:
    start, end = map(_times, told)
    if not _apart(start, end):
        raise ValueError("times that are not spans in order")
    return Intervals(start, end)


def _apart(start: Int64s, end: Int64s) -> bool:
    """True if these are disjoint ascending spans, none of them empty."""
    return len(start) == len(end) and not (start >= end).any() and not (end[:-1] > start[1:]).any()


def _places(values: Sequence[int], count: int) -> Int64s:
    found = _times(values)
    if len(found) and not 0 <= found.min() <= found.max() < count:
        raise ValueError(f"places in {count} that are none")
    return found
