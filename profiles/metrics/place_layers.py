"""Evidence of the place in the user's code at which a process was: marked ranges and stack samples, as layers, the most
certain first.

docs/reference/measures.md, "Which of my lines", says which layer counts for which cause of idle time.
"""

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
# Causes of idle time that lie with the host: all but the GPU's own hand-over, its waits and marked pauses.
DIVIDED: Final = tuple(cause for cause in range(len(CAUSES)) if cause not in (PAUSE, TURNAROUND, WAIT))
_OF_SAMPLES: Final = {
    **dict.fromkeys(("line", "start_ns", "at_ns", "end_ns"), np.int64),
    **dict.fromkeys(("steps", "framework"), np.bool_),
    **dict.fromkeys(("file", "function", "via", "source"), object),
}
_PLACE: Final = re.compile(marks.PLACE)
_WAITED_IN: Final = re.compile(r"(?:threading|queue|selectors|socketserver|multiprocessing|concurrent)\.")
_DISPATCHED_NS: Final = 4_000_000  # longer than the 2.5 ms or so in which Keras dispatches a step
WAITS: Final = "-wait"  # suffix of a range's kind if its thread only waits for the code that the range names
MAKES_BATCHES: Final = ("dataset", "loader", "generator", "py_function", "gc")


class Key(NamedTuple):
    """The key of one place: a range by its name and line, a function by its name and file."""

    name: str
    file: str
    line: int  # of the definition; -1 for a function that is known from samples alone


@dataclass(frozen=True, slots=True)
class Layer:
    """Disjoint spans in order of time, int64[n] ns, all from one kind of evidence, each with its place's number and
    kind.

    causes: the causes of idle time for which this evidence counts."""

    start_ns: Int64s
    end_ns: Int64s
    place: Int64s
    kind: NDArray[np.str_]
    causes: tuple[int, ...]


class Numbers:
    """Gives each place a number, from 0 on."""

    def __init__(self) -> None:
        self.keys: list[Key] = []
        self._of: dict[Key, int] = {}

    def of(self, key: Key) -> int:
        if key not in self._of:
            self._of[key] = len(self.keys)
            self.keys.append(key)
        return self._of[key]


def tells(timeline: Timeline) -> bool:
    """True if the recording has samples, or ranges that mark places in the user's code."""
    return len(timeline.samples) > 0 or bool(wholly(timeline.marks["name"].cat.categories, marks.PLACE).any())


RANGES: Final = 1  # index in the result of `of_process` of the ranges on the thread that runs the steps


def of_process(timeline: Timeline, pid: int, shift: int, numbers: Numbers) -> list[Layer]:
    """The layers of a process, the one that takes precedence first."""
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
    # Launch idle while one thread waits for its input belongs to the code that makes the batch on another thread.
    waiting = _waiting(timeline, pid, shift)
    return [
        _flat(ranges, ranges["kind"] == "gc", every),
        _flat(ranges, mine & ~waits, every),
        _sampled(seen, place, own, "python", every),
        # Python functions in a compiled step run on the framework's threads, which fetch the functions' inputs and
        # launch the work after them.
        _flat(ranges, ~mine & (ranges["kind"] == "py_function"), (FEED, SYNC, LAUNCH)),
        *made,
        *(_clipped(layer, waiting, (LAUNCH,)) for layer in made),
        _sampled(seen, place, called, "call", tuple(one for one in every if one != PEERS)),
    ]


def _waiting(timeline: Timeline, pid: int, shift: int) -> Intervals:
    """Time in which any thread of the process waits for its input. If no range marks that, as in Keras's own `fit`:
    times without any CUDA call that are longer than a step's dispatch."""
    rows = rows_named(timeline.marks, WAITING_FOR_INPUT, pid)
    start, end = (timeline.marks[name].to_numpy()[rows] + shift for name in ("start_ns", "end_ns"))
    if len(rows):
        return intervals.union(start, end)
    mine = timeline.api["pid"].to_numpy() == pid
    calls = intervals.union(*(timeline.api[name].to_numpy()[mine] + shift for name in ("start_ns", "end_ns")))
    long = np.flatnonzero(calls.start[1:] - calls.end[:-1] >= _DISPATCHED_NS)
    return Intervals(calls.end[:-1][long], calls.start[1:][long])


def pieces(layer: Layer, within: Intervals) -> tuple[Int64s, Int64s, Int64s]:
    """The parts of a layer's spans that lie in `within`: index of the span, start and end in ns."""
    first, last = intervals.touching(within, Intervals(layer.start_ns, layer.end_ns))
    piece, place = intervals.one_after_another(last - first)
    span = first[piece] + place
    start = np.maximum(within.start[piece], layer.start_ns[span])
    return span, start, np.minimum(within.end[piece], layer.end_ns[span])


def _clipped(layer: Layer, to: Intervals, causes: tuple[int, ...]) -> Layer:
    """The part of a layer that lies within `to`, as evidence for these causes."""
    span, start, end = pieces(layer, to)
    return Layer(start, end, layer.place[span], layer.kind[span], causes)


def _looked_at_within(seen: dict[str, Any], ranges: dict[str, Any], which: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """True for samples taken within one of these ranges: a range is better evidence, as its times are exact."""
    covered = intervals.union(ranges["start_ns"][which], ranges["end_ns"][which])
    return intervals.contains(covered, seen["at_ns"])


def _waiting_there(seen: dict[str, Any]) -> NDArray[np.bool_]:
    """True for samples in lines that only wait, such as `sleep` or `queue.get`: that thread is not making a batch."""
    lines = zip(seen["via"].tolist(), seen["source"].tolist(), strict=True)
    return np.fromiter((bool(_WAITED_IN.match(via) or "sleep(" in source) for via, source in lines), bool)


def _defined(seen: dict[str, Any], ranges: dict[str, Any]) -> NDArray[np.bool_]:
    """True for samples in functions that also have marked ranges."""
    own = set(zip(ranges["name"], ranges["file"], strict=True))
    there = zip(seen["function"].tolist(), seen["file"].tolist(), strict=True)
    return np.fromiter((one in own for one in there), bool, len(seen["line"]))


def _ranges(timeline: Timeline, pid: int, shift: int, numbers: Numbers) -> dict[str, Any]:
    """Start, end, tid, place number, name, file and kind of the process's ranges that mark places."""
    names = timeline.marks["name"].cat
    rows = rows_named(timeline.marks, marks.PLACE, pid, whole=True)
    codes = names.codes.to_numpy()[rows]
    told = {}
    for code in np.unique(codes).tolist():
        match = _PLACE.fullmatch(str(names.categories[code]))
        assert match is not None  # never None, because `rows_named` matched the same pattern
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
    """The threads that mark steps, else the main thread if it has any marks; None if neither is known."""
    rows = rows_named(timeline.marks, marks.STEP, pid, whole=True)
    marked = set(timeline.marks["tid"].to_numpy()[rows].tolist())
    of_process = timeline.marks["tid"].to_numpy()[timeline.marks["pid"].to_numpy() == pid]
    return marked or ({pid} if pid in of_process else None)


def samples_of(timeline: Timeline, pid: int, shift: int) -> dict[str, Any]:
    table = timeline.samples
    if not len(table):  # without this line, selecting no rows takes a tenth of a small recording's analysis
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
    """The place number of each sample's function."""
    keys = zip(seen["function"].tolist(), seen["file"].tolist(), strict=True)
    return np.array([numbers.of(Key(function, file, -1)) for function, file in keys], np.int64)


def _flat(ranges: dict[str, Any], which: NDArray[np.bool_], causes: tuple[int, ...]) -> Layer:
    """Nested ranges as disjoint spans: each instant belongs to the open range that began last."""
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
    """Samples as a layer; where samples of several threads overlap, an instant belongs to the one that began last."""
    spans = {"start_ns": seen["start_ns"], "end_ns": seen["end_ns"], "place": place}
    return _flat({**spans, "kind": np.full(len(place), kind)}, which, causes)
