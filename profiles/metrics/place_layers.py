"""Places of the host of a process: their ranges in its recording and samples beside it, as layers in the order of
their trust. What each is worth for which cause stands in docs/reference/measures.md, "Which of my lines"."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..ground import intervals
from ..ground.intervals import Intervals
from ..ledger.causes import FEED, LAUNCH, PAUSE, PEERS, SYNC, TURNAROUND, WAIT, WAITING_FOR_INPUT
from ..model import marks
from ..model.measures import CAUSES
from ..model.names import rows_named, wholly
from ..model.timeline import Timeline

Int64s = NDArray[np.int64]
# Causes that the host makes; the GPU's own hand-over, its waits and marked pauses are none.
DIVIDED: Final = tuple(cause for cause in range(len(CAUSES)) if cause not in (PAUSE, TURNAROUND, WAIT))
_OF_SAMPLES: Final = {
    **dict.fromkeys(("line", "start_ns", "at_ns", "end_ns"), np.int64),
    **dict.fromkeys(("steps", "framework"), np.bool_),
    **dict.fromkeys(("file", "function", "via", "source"), object),
}
_PLACE: Final = re.compile(marks.PLACE)
_WAITED_IN: Final = re.compile(r"(?:threading|queue|selectors|socketserver|multiprocessing|concurrent)\.")
_DISPATCHED_NS: Final = 4_000_000  # Keras takes some 2.5 ms
WAITS: Final = "-wait"  # ends the kind of a range in which a thread only waits for the place that it names
MAKES_BATCHES: Final = ("dataset", "loader", "generator", "py_function", "gc")


class Key(NamedTuple):
    """The key of one place: a range by its name and line, a function by its name and file."""

    name: str
    file: str
    line: int  # of a definition; -1: of a function that samples saw


@dataclass(frozen=True, slots=True)
class Layer:
    """Spans of one kind of evidence, apart and in order, each with the number of its place and what kind it is."""

    start_ns: Int64s
    end_ns: Int64s
    place: Int64s
    kind: NDArray[np.str_]
    causes: tuple[int, ...]


class Numbers:
    """Places by number."""

    def __init__(self) -> None:
        self.keys: list[Key] = []
        self._of: dict[Key, int] = {}

    def of(self, key: Key) -> int:
        if key not in self._of:
            self._of[key] = len(self.keys)
            self.keys.append(key)
        return self._of[key]


def tells(timeline: Timeline) -> bool:
    """True if the recording may tell of any place."""
    return len(timeline.samples) > 0 or bool(wholly(timeline.marks["name"].cat.categories, marks.PLACE).any())


RANGES: Final = 1  # of the layers of a process: on the thread that runs the steps


def of_process(timeline: Timeline, pid: int, shift: int, numbers: Numbers) -> list[Layer]:
    """The layers of a process, those that come first first."""
    every = DIVIDED
    ranges = _ranges(timeline, pid, shift, numbers)
    steps = _stepping(timeline, pid)
    mine = np.ones(len(ranges["tid"]), bool) if steps is None else np.isin(ranges["tid"], list(steps))
    waits = np.char.endswith(ranges["kind"], WAITS)
    makes, stage = (np.isin(ranges["kind"], kinds) for kinds in (MAKES_BATCHES, marks.PIPELINE))
    mine &= ~stage
    seen = samples_of(timeline, pid, shift)
    place = _functions(seen, numbers)
    inside = _looked_at_within(seen, ranges, mine & ~waits)
    own, called = (seen["steps"] & ~inside & which for which in (~seen["framework"], seen["framework"]))
    others = ~seen["steps"] & ~seen["framework"] & ~_defined(seen, ranges)
    others &= ~_looked_at_within(seen, ranges, ~mine & makes) & ~_waiting_there(seen)
    made = [
        _flat(ranges, ~mine & makes, (FEED,)),
        _sampled(seen, place, others, "python", (FEED,)),
        _flat(ranges, waits, (FEED,)),
        _flat(ranges, stage, (FEED,)),
    ]
    # Launched by one thread while another one waits for what it launches.
    waiting = _waiting(timeline, pid, shift)
    return [
        _flat(ranges, ranges["kind"] == "gc", every),
        _flat(ranges, mine & ~waits, every),
        _sampled(seen, place, own, "python", every),
        # Functions in a step run on threads of the framework's, which fetch for them and launch after them.
        _flat(ranges, ~mine & (ranges["kind"] == "py_function"), (FEED, SYNC, LAUNCH)),
        *made,
        *(_clipped(layer, waiting, (LAUNCH,)) for layer in made),
        _sampled(seen, place, called, "call", tuple(one for one in every if one != PEERS)),
    ]


def _waiting(timeline: Timeline, pid: int, shift: int) -> Intervals:
    """Time in which any thread of the process waits for its input.

    Where no range says so, as in Keras's own `fit`: time without a call of CUDA, longer than a step's dispatch.
    """
    rows = rows_named(timeline.marks, WAITING_FOR_INPUT, pid)
    start, end = (timeline.marks[name].to_numpy()[rows] + shift for name in ("start_ns", "end_ns"))
    if len(rows):
        return intervals.union(start, end)
    mine = timeline.api["pid"].to_numpy() == pid
    calls = intervals.union(*(timeline.api[name].to_numpy()[mine] + shift for name in ("start_ns", "end_ns")))
    long = np.flatnonzero(calls.start[1:] - calls.end[:-1] >= _DISPATCHED_NS)
    return Intervals(calls.end[:-1][long], calls.start[1:][long])


def pieces(layer: Layer, within: Intervals) -> tuple[Int64s, Int64s, Int64s]:
    """The parts of a layer's spans that lie in these times: which span, start, end."""
    first, last = intervals.touching(within, Intervals(layer.start_ns, layer.end_ns))
    piece, place = intervals.one_after_another(last - first)
    span = first[piece] + place
    start = np.maximum(within.start[piece], layer.start_ns[span])
    return span, start, np.minimum(within.end[piece], layer.end_ns[span])


def _clipped(layer: Layer, to: Intervals, causes: tuple[int, ...]) -> Layer:
    """The part of a layer that lies in these times, as evidence for other causes."""
    span, start, end = pieces(layer, to)
    return Layer(start, end, layer.place[span], layer.kind[span], causes)


def _looked_at_within(seen: dict[str, Any], ranges: dict[str, Any], which: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Samples taken within a range: what they saw is that range's, which begins and ends when it says."""
    covered = intervals.union(ranges["start_ns"][which], ranges["end_ns"][which])
    return intervals.contains(covered, seen["at_ns"])


def _waiting_there(seen: dict[str, Any]) -> NDArray[np.bool_]:
    """Samples in lines that only wait: a thread that does is no maker of batches, whatever it waits for."""
    lines = zip(seen["via"].tolist(), seen["source"].tolist(), strict=True)
    return np.fromiter((bool(_WAITED_IN.match(via) or "sleep(" in source) for via, source in lines), bool)


def _defined(seen: dict[str, Any], ranges: dict[str, Any]) -> NDArray[np.bool_]:
    """Samples in functions that have ranges of their own."""
    own = set(zip(ranges["name"], ranges["file"], strict=True))
    there = zip(seen["function"].tolist(), seen["file"].tolist(), strict=True)
    return np.fromiter((one in own for one in there), bool, len(seen["line"]))


def _ranges(timeline: Timeline, pid: int, shift: int, numbers: Numbers) -> dict[str, Any]:
    """Start, end, tid, place and kind of the process's ranges of places."""
    names = timeline.marks["name"].cat
    rows = rows_named(timeline.marks, marks.PLACE, pid, whole=True)
    codes = names.codes.to_numpy()[rows]
    told = {}
    for code in np.unique(codes).tolist():
        match = _PLACE.fullmatch(str(names.categories[code]))
        assert match is not None  # it did above
        told[code] = match[1], numbers.of(Key(match[2], match[3], int(match[4])))
    found = {name: timeline.marks[name].to_numpy()[rows] for name in ("start_ns", "end_ns", "tid")}
    return {
        "start_ns": found["start_ns"] + shift,
        "end_ns": found["end_ns"] + shift,
        "tid": found["tid"],
        "place": np.array([told[code][1] for code in codes.tolist()], np.int64),
        "name": [numbers.keys[told[code][1]].name for code in codes.tolist()],
        "file": [numbers.keys[told[code][1]].file for code in codes.tolist()],
        "kind": np.array([told[code][0] for code in codes.tolist()], np.str_),
    }


def _stepping(timeline: Timeline, pid: int) -> set[int] | None:
    """The threads that steps are marked on, else the process's first; None where no thread is known by that."""
    rows = rows_named(timeline.marks, marks.STEP, pid, whole=True)
    marked = set(timeline.marks["tid"].to_numpy()[rows].tolist())
    of_process = timeline.marks["tid"].to_numpy()[timeline.marks["pid"].to_numpy() == pid]
    return marked or ({pid} if pid in of_process else None)


def samples_of(timeline: Timeline, pid: int, shift: int) -> dict[str, Any]:
    table = timeline.samples
    if not len(table):  # to look for none in each of its columns takes a tenth of a small recording's time
        return {name: np.empty(0, dtype) for name, dtype in _OF_SAMPLES.items()}
    rows = np.flatnonzero(table["pid"].to_numpy() == pid)
    found: dict[str, Any] = {}
    for name, dtype in _OF_SAMPLES.items():
        column = table[name].iloc[rows]
        found[name] = column.astype(str).to_numpy(dtype=object) if dtype is object else column.to_numpy()
        if name.endswith("_ns"):
            found[name] = found[name] + shift
    return found


def _functions(seen: dict[str, Any], numbers: Numbers) -> Int64s:
    """The number of the function of each sample's span."""
    keys = zip(seen["function"].tolist(), seen["file"].tolist(), strict=True)
    return np.array([numbers.of(Key(function, file, -1)) for function, file in keys], np.int64)


def _flat(ranges: dict[str, Any], which: NDArray[np.bool_], causes: tuple[int, ...]) -> Layer:
    """Ranges that may lie in each other, as spans apart: each instant is that of the one that began last."""
    rows = np.flatnonzero(which & (ranges["end_ns"] > ranges["start_ns"]))
    start, end = ranges["start_ns"][rows], ranges["end_ns"][rows]
    edges = np.unique(np.append(start, end))
    which_one = intervals.Nested(start, end).innermost(edges[:-1]) if len(edges) else np.empty(0, np.int64)
    some = np.flatnonzero(which_one >= 0)
    of = rows[which_one[some]]
    return Layer(edges[:-1][some], edges[1:][some], ranges["place"][of], ranges["kind"][of], causes)


def _sampled(
    seen: dict[str, Any], place: Int64s, which: NDArray[np.bool_], kind: str, causes: tuple[int, ...]
) -> Layer:
    """Samples of one thread lie apart; of several, the one that began last holds."""
    spans = {"start_ns": seen["start_ns"], "end_ns": seen["end_ns"], "place": place}
    return _flat({**spans, "kind": np.full(len(place), kind)}, which, causes)
