"""Convert units to the JSON values of a partial file and back. Values that contradict each other raise ValueError."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import astuple, dataclass, fields, replace
from typing import Any, get_args

import numpy as np
from numpy.typing import NDArray

from ..ground import typed
from ..ground.intervals import Intervals
from ..ledger.enqueued import FOREVER, SOURCES
from ..metrics.gpu import MEANWHILE
from ..metrics.places import is_movable
from ..model.measures import OWNERS
from ..model.measures_json import check, plain
from ..model.possible import LIMIT_NS
from ..runs.records import RunRecord
from .one_recording import GpuHead, Measured, Recorded, Unit


def plain_unit(unit: Unit) -> dict[str, Any]:
    """The unit as values for `json.dumps`, except arrays, which `listed` makes lists of."""
    return {
        "shift_ns": unit.shift_ns,
        "recordings": [
            plain(replace(one, record=None)) | {"ranks": plain(sorted(one.ranks, key=astuple))}
            for one in unit.recordings
        ],
        "records": [one.record.to_json() if one.record else None for one in unit.recordings],
        "gpus": plain(unit.gpus),
        "measured": [plain(replace(one, picture=None)) for one in unit.measured],
        "measured_from": list(unit.measured_from.items()),
    }


def listed(array: NDArray[Any]) -> list[Any]:
    """The elements of an array, as `default` of `json.dumps`."""
    values: list[Any] = array.tolist()
    return values


def array_of(kind: Any, values: Any) -> NDArray[Any]:
    """The array of type `kind`, an NDArray[...], from a decoded list."""
    (element,) = get_args(get_args(kind)[1])
    if element in (np.bool_, np.object_):
        return np.array(typed.made(list[bool] if element is np.bool_ else list[str], values, texts=False), element)
    found = np.array(typed.made(list[int], values, texts=False), np.int64)
    if (found.astype(element) != found).any():
        raise ValueError(f"a number that is too large for {element.__name__}")
    return found.astype(element)


@dataclass(frozen=True, slots=True)
class Written:
    """A unit as a partial file holds it: `records` belong to `recordings`, and `measured` to `gpus`."""

    shift_ns: list[int]
    recordings: list[Recorded]
    records: list[dict[str, Any] | None]
    gpus: list[GpuHead]
    measured: list[Measured]
    measured_from: list[tuple[str | None, int]]

    def made(self) -> Unit:
        if not self.recordings:
            raise ValueError("it has no recording")
        _alike(self.recordings, self.shift_ns, self.records)
        _alike(self.gpus, self.measured)
        _check_times(np.array(self.shift_ns))
        for recorded in self.recordings:
            _check_recorded(recorded)
        for head, measured in zip(self.gpus, self.measured, strict=True):
            _check_head(head, len(self.recordings))
            _check_measured(measured, len(head.collectives.start_ns), len(self.recordings))
        return Unit(
            members=(),
            recordings=tuple(map(_with_record, self.recordings, self.records)),
            shift_ns=tuple(self.shift_ns),
            gpus=tuple(self.gpus),
            gathered=None,
            measured=tuple(replace(one, picture=None) for one in self.measured),
            measured_from=dict(self.measured_from),
        )


def _with_record(recorded: Recorded, record: dict[str, Any] | None) -> Recorded:
    return replace(recorded, record=RunRecord.from_json(record) if record else None)


def _check_recorded(recorded: Recorded) -> None:
    _alike(recorded.ends.end_ns, recorded.ends.name)
    _check_times(recorded.ends.end_ns)
    if (negotiated := recorded.negotiated) is not None:
        if negotiated.shorter():
            raise ValueError("the columns of negotiations have different lengths")
        _check_places(negotiated.of, len(negotiated.start_ns))
        _check_times(*(getattr(negotiated, one.name) for one in fields(negotiated)))


def _check_head(head: GpuHead, recordings: int) -> None:
    _check_places(np.array([place for place, _ in head.places] or [-1]), recordings)
    own = head.collectives
    _alike(*(getattr(own, one.name) for one in fields(own)))
    _check_times(own.start_ns, own.end_ns, own.bytes, own.handed_ns[own.handed_ns != FOREVER])
    if (own.start_ns > own.end_ns).any():
        raise ValueError("a collective ends before it starts")


def _check_measured(measured: Measured, collectives: int, recordings: int) -> None:
    check(measured.measures, recordings)
    for name in measured.meanwhile:
        if name not in MEANWHILE and not is_movable(name):
            raise ValueError(f"no measure has the name {name}")
        if not is_movable(name) and getattr(measured.measures, name) is None:
            raise ValueError(f"{name} has times, but no count")
    waits = measured.waits
    _alike(*(getattr(waits, one.name) for one in fields(waits)))
    _check_times(waits.called_ns)
    _check_places(waits.collective, collectives)
    _check_places(waits.source, SOURCES)
    _check_places(waits.owner, len(OWNERS))
    for spans in (measured.exposed, Intervals(waits.start_ns, waits.end_ns), *measured.meanwhile.values()):
        _check_spans(spans)


def _alike(*columns: Sequence[Any] | NDArray[Any]) -> None:
    lengths = list(map(len, columns))
    if len(set(lengths)) > 1:
        raise ValueError(f"columns that belong together have different lengths: {', '.join(map(str, lengths))}")


def _check_times(*columns: NDArray[Any]) -> None:
    for times in columns:
        if len(times) and not -LIMIT_NS < times.min() <= times.max() < LIMIT_NS:
            raise ValueError(f"{max(abs(int(times.min())), int(times.max()))} ns is too large for a time")


def _check_spans(spans: Intervals) -> None:
    """Raises ValueError unless these are disjoint ascending spans, none of them empty."""
    start, end = spans.start, spans.end
    _alike(start, end)
    _check_times(start, end)
    if (start >= end).any() or (end[:-1] > start[1:]).any():
        raise ValueError("the times are not spans in order")


def _check_places(places: NDArray[Any], count: int) -> None:
    if len(places) and not 0 <= places.min() <= places.max() < count:
        raise ValueError(f"an index is beyond the {count} entries")
