"""Idle time by the user's own code (docs/reference/measures.md, "Which of my lines").

Each nanosecond of the ledger's idle time goes to the first of these that the host was in: a garbage collection; on the
thread that runs the steps a range of a place, else a line of the user's; where the GPU waits for its input, what makes
batches on other threads; a line that has called a framework. The rest is `elsewhere`. Idle time by a synchronisation
belongs as a whole to where it began: there the host waited, and launched nothing ahead.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..gpus.operations import Gpu
from ..ground import intervals
from ..ground.intervals import Intervals
from ..ledger import ownership as ledger
from ..ledger.account import Account
from ..ledger.causes import FEED, LAUNCH, PAUSE, PEERS, SYNC, TURNAROUND, WAIT, WAITING_FOR_INPUT
from ..ledger.window import Window
from ..model import marks
from ..model.measures import CAUSES, CLASSES, OWNERS, Break, Line, Place, Places
from ..model.names import fitting, rows_of, wholly
from ..model.timeline import Timeline

Int64s = NDArray[np.int64]
# Causes that the host makes; the GPU's own hand-over, its waits and marked pauses are none.
DIVIDED: Final = tuple(cause for cause in range(len(CAUSES)) if cause not in (PAUSE, TURNAROUND, WAIT))
_PLACE: Final = re.compile(marks.PLACE)
_WAITS: Final = "-wait"  # ends the kind of a range in which a thread only waits for the place that it names
_MAKES_BATCHES: Final = ("dataset", "generator", "py_function", "gc")
_LINES: Final = 3
_OTHERS: Final = 100  # places that are told one by one


class Key(NamedTuple):
    """What is one place: a range by its name and line, a function by its name and file."""

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
    stepping: bool  # of the thread that runs the steps


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


@dataclass(frozen=True, slots=True)
class Claimed:
    """Spans of idle time of one cause that are a place's."""

    cause: int
    place: Int64s
    start_ns: Int64s
    end_ns: Int64s
    kind: NDArray[np.str_]


def measure(
    timelines: Sequence[Timeline], shift_ns: Sequence[int], gpu: Gpu, books: Account, breaks: Sequence[Break]
) -> tuple[Places | None, dict[str, Intervals]]:
    """The places of a GPU, and by `moved_name` those of their spans that may turn out to be waiting for other ranks.

    Writes into the breaks what of their idle time is a place's. None where the recordings tell of no place.
    """
    numbers, layers, samples = Numbers(), [], []
    origin = shift_ns[gpu.places[0][0]]
    for index, pid in gpu.processes:
        found = of_process(timelines[index], pid, shift_ns[index] - origin, numbers)
        layers.append(found)
        samples.append(samples_of(timelines[index], pid, shift_ns[index] - origin))
    if not any(len(layer.place) for found in layers for layer in found):
        return None, {}
    idle = {cause: ledger.owned_by(books.owned, len(CLASSES) + cause) for cause in DIVIDED}
    ordered = [layer for together in zip(*layers, strict=True) for layer in together]
    claimed, rest = divide(idle, ordered)
    rows, order = rows_of_claims(numbers, claimed, books.window, samples)
    elsewhere = {OWNERS[len(CLASSES) + cause]: books.window.part(left).total for cause, left in rest.items()}
    found_places = Places(
        rows,
        elsewhere,
        ranges=any(len(found[at].place) for found in layers for at in (0, 1, 3, 4, 6)),
        samples=any(len(one["start_ns"]) for one in samples),
    )
    _check(found_places, books)
    for one in breaks:
        one.places = _in_break(one, claimed, order)
    return found_places, _movable(claimed, rest, books, order)


def divide(idle: Mapping[int, Intervals], layers: Sequence[Layer]) -> tuple[list[Claimed], dict[int, Intervals]]:
    """Give each idle instant of each cause to the first layer that holds it; and what is left of each cause."""
    claimed, rest = [], {}
    for cause, left in idle.items():
        mine = [layer for layer in layers if cause in layer.causes and len(layer.place)]
        for layer in mine if cause == SYNC else ():
            span = np.searchsorted(layer.start_ns, left.start, side="right") - 1
            begun = (span >= 0) & (left.start < layer.end_ns[span])
            claimed.append(_claim(cause, layer, span[begun], left.start[begun], left.end[begun]))
            left = Intervals(left.start[~begun], left.end[~begun])
        for layer in mine:
            first, last = intervals.touching(left, Intervals(layer.start_ns, layer.end_ns))
            piece, place = intervals.one_after_another(last - first)
            span = first[piece] + place
            start = np.maximum(left.start[piece], layer.start_ns[span])
            end = np.minimum(left.end[piece], layer.end_ns[span])
            claimed.append(_claim(cause, layer, span, start, end))
            left = intervals.subtract(left, intervals.union(start, end))
        rest[cause] = left
    return claimed, rest


def _claim(cause: int, layer: Layer, span: Int64s, start: Int64s, end: Int64s) -> Claimed:
    return Claimed(cause, layer.place[span], start, end, layer.kind[span])


def of_process(timeline: Timeline, pid: int, shift: int, numbers: Numbers) -> list[Layer]:
    """The layers of a process, those that come first first."""
    every = DIVIDED
    ranges = _ranges(timeline, pid, shift, numbers)
    steps = _stepping(timeline, pid)
    mine = np.ones(len(ranges["tid"]), bool) if steps is None else np.isin(ranges["tid"], list(steps))
    waits = np.char.endswith(ranges["kind"], _WAITS)
    makes = np.isin(ranges["kind"], _MAKES_BATCHES)
    seen = samples_of(timeline, pid, shift)
    place = _functions(seen, numbers)
    inside = _looked_at_within(seen, ranges, mine & ~waits)
    own, called = (seen["steps"] & ~inside & which for which in (~seen["framework"], seen["framework"]))
    others = ~seen["steps"] & ~seen["framework"] & ~_defined(seen, ranges)
    made = [
        _flat(ranges, ~mine & makes, (FEED,), False),
        _sampled(seen, place, others, "python", (FEED,), False),
        _flat(ranges, waits, (FEED,), False),
    ]
    # Launched by one thread while another one waits for what it launches.
    waiting = _waiting(timeline, pid, shift)
    return [
        _flat(ranges, ranges["kind"] == "gc", every, True),
        _flat(ranges, mine & ~waits, every, True),
        _sampled(seen, place, own, "python", every, True),
        # Functions in a step run on threads of the framework's, which fetch for them and launch after them.
        _flat(ranges, ~mine & (ranges["kind"] == "py_function"), (FEED, SYNC, LAUNCH), False),
        *made,
        *(_clipped(layer, waiting, (LAUNCH,)) for layer in made),
        _sampled(seen, place, called, "call", tuple(one for one in every if one != PEERS), True),
    ]


def _waiting(timeline: Timeline, pid: int, shift: int) -> Intervals:
    """When any thread of the process waits for its input."""
    names = timeline.marks["name"].cat
    rows = np.flatnonzero(rows_of(names.codes.to_numpy(), fitting(names.categories, WAITING_FOR_INPUT)))
    rows = rows[timeline.marks["pid"].to_numpy()[rows] == pid]
    start, end = (timeline.marks[name].to_numpy()[rows] + shift for name in ("start_ns", "end_ns"))
    return intervals.union(start, end)


def _clipped(layer: Layer, to: Intervals, causes: tuple[int, ...]) -> Layer:
    """What of a layer lies in these times, as evidence for other causes."""
    first, last = intervals.touching(to, Intervals(layer.start_ns, layer.end_ns))
    piece, place = intervals.one_after_another(last - first)
    span = first[piece] + place
    start = np.maximum(to.start[piece], layer.start_ns[span])
    end = np.minimum(to.end[piece], layer.end_ns[span])
    return Layer(start, end, layer.place[span], layer.kind[span], causes, layer.stepping)


def _looked_at_within(seen: dict[str, Any], ranges: dict[str, Any], which: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Samples taken within a range: what they saw is that range's, which begins and ends when it says."""
    covered = intervals.union(ranges["start_ns"][which], ranges["end_ns"][which])
    return intervals.contains(covered, seen["at_ns"])


def _defined(seen: dict[str, Any], ranges: dict[str, Any]) -> NDArray[np.bool_]:
    """Samples in functions that have ranges of their own."""
    own = set(zip(ranges["name"], ranges["file"], strict=True))
    there = zip(seen["function"].tolist(), seen["file"].tolist(), strict=True)
    return np.fromiter((one in own for one in there), bool, len(seen["line"]))


def _ranges(timeline: Timeline, pid: int, shift: int, numbers: Numbers) -> dict[str, Any]:
    """Start, end, tid, place and kind of the process's ranges of places."""
    names = timeline.marks["name"].cat
    rows = np.flatnonzero(rows_of(names.codes.to_numpy(), wholly(names.categories, marks.PLACE)))
    rows = rows[timeline.marks["pid"].to_numpy()[rows] == pid]
    codes = names.codes.to_numpy()[rows]
    told = {}
    for code in np.unique(codes).tolist():
        match = _PLACE.fullmatch(str(names.categories[code]))
        assert match is not None  # it did above
        told[code] = match[1], numbers.of(Key(match[2], match[3], int(match[4][:9])))
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
    names = timeline.marks["name"].cat
    rows = np.flatnonzero(rows_of(names.codes.to_numpy(), wholly(names.categories, marks.STEP)))
    rows = rows[timeline.marks["pid"].to_numpy()[rows] == pid]
    marked = set(timeline.marks["tid"].to_numpy()[rows].tolist())
    of_process = timeline.marks["tid"].to_numpy()[timeline.marks["pid"].to_numpy() == pid]
    return marked or ({pid} if pid in of_process else None)


def samples_of(timeline: Timeline, pid: int, shift: int) -> dict[str, Any]:
    table = timeline.samples
    rows = np.flatnonzero(table["pid"].to_numpy() == pid)
    found: dict[str, Any] = {name: table[name].to_numpy()[rows] for name in ("line", "steps", "framework")}
    for name in ("start_ns", "at_ns", "end_ns"):
        found[name] = table[name].to_numpy()[rows] + shift
    for name in ("file", "function", "via", "source"):
        found[name] = table[name].iloc[rows].astype(str).to_numpy(dtype=object)
    return found


def _functions(seen: dict[str, Any], numbers: Numbers) -> Int64s:
    """The number of the function of each sample's span."""
    keys = zip(seen["function"].tolist(), seen["file"].tolist(), strict=True)
    return np.array([numbers.of(Key(function, file, -1)) for function, file in keys], np.int64)


def _flat(ranges: dict[str, Any], which: NDArray[np.bool_], causes: tuple[int, ...], stepping: bool) -> Layer:
    """Ranges that may lie in each other, as spans apart: each instant is that of the one that began last."""
    rows = np.flatnonzero(which & (ranges["end_ns"] > ranges["start_ns"]))
    start, end = ranges["start_ns"][rows], ranges["end_ns"][rows]
    edges = np.unique(np.append(start, end))
    which_one = intervals.Nested(start, end).innermost(edges[:-1]) if len(edges) else np.empty(0, np.int64)
    some = np.flatnonzero(which_one >= 0)
    of = rows[which_one[some]]
    return Layer(edges[:-1][some], edges[1:][some], ranges["place"][of], ranges["kind"][of], causes, stepping)


def _sampled(
    seen: dict[str, Any], place: Int64s, which: NDArray[np.bool_], kind: str, causes: tuple[int, ...], stepping: bool
) -> Layer:
    """Samples of one thread lie apart; of several, the one that began last holds."""
    spans = {"start_ns": seen["start_ns"], "end_ns": seen["end_ns"], "place": place}
    return _flat({**spans, "kind": np.full(len(place), kind)}, which, causes, stepping)


def rows_of_claims(
    numbers: Numbers, claimed: Sequence[Claimed], window: Window, samples: Sequence[dict[str, Any]]
) -> tuple[list[Place], dict[int, int]]:
    """The places with any idle time, the longest first, and by the number of each its row; many small ones are one."""
    spans: dict[int, list[tuple[int, Intervals, str]]] = {}
    for one in claimed:
        for place, kind in sorted(set(zip(one.place.tolist(), one.kind.tolist(), strict=True))):
            mine = (one.place == place) & (one.kind == kind)
            found = intervals.union(one.start_ns[mine], one.end_ns[mine])
            spans.setdefault(place, []).append((one.cause, found, kind))
    made = [(number, _place(numbers.keys[number], parts, window, samples)) for number, parts in spans.items()]
    ranked = sorted(made, key=lambda one: (-one[1].total_ns, -sum(p[1].total for p in spans[one[0]]), one[1].name))
    rows = [place for _, place in ranked[:_OTHERS]]
    order = {number: min(at, _OTHERS) for at, (number, _) in enumerate(ranked)}
    if len(ranked) > _OTHERS:
        rest: dict[str, int] = {}
        for _, place in ranked[_OTHERS:]:
            for owner, ns in place.ns.items():
                rest[owner] = rest.get(owner, 0) + ns
        rows.append(Place("others", f"{len(ranked) - _OTHERS} other places", "", 0, rest))
    return rows, order


def _place(
    key: Key, parts: Sequence[tuple[int, Intervals, str]], window: Window, samples: Sequence[dict[str, Any]]
) -> Place:
    ns: dict[str, int] = {}
    kinds: dict[str, int] = {}
    for cause, spans, kind in parts:
        owner = OWNERS[len(CLASSES) + cause]
        ns[owner] = ns.get(owner, 0) + window.part(spans).total
        kinds[kind.removesuffix(_WAITS)] = kinds.get(kind.removesuffix(_WAITS), 0) + spans.total
    whole = intervals.merge(*(spans for _, spans, _ in parts))
    inside = window.part(whole)
    kind = max(kinds, key=lambda kind: kinds[kind])
    lines = _lines(key, whole, samples, on_others=kind in _MAKES_BATCHES and kind != "gc")
    at = int(np.argmax(inside.end - inside.start)) if len(inside) else None
    return Place(
        kind=kind,
        name=key.name,
        file=key.file,
        line=key.line if key.line >= 0 else lines[0].line if lines else 0,
        ns={owner: value for owner, value in ns.items() if value},
        lines=lines[:_LINES],
        longest_start_ns=None if at is None else int(inside.start[at]),
        longest_ns=0 if at is None else int(inside.end[at] - inside.start[at]),
    )


def _lines(key: Key, whole: Intervals, samples: Sequence[dict[str, Any]], *, on_others: bool) -> list[Line]:
    """The lines that samples saw in these spans, the longest first: of a function its own, of a range those of its
    thread (on_others: not the one that runs the steps)."""
    found: dict[tuple[str, int, str, str, str], int] = {}
    for seen in samples:
        ns = intervals.total_in(whole, seen["start_ns"], seen["end_ns"])
        for row in np.flatnonzero(ns).tolist():
            file, line, function, via, source = (
                seen[name][row] for name in ("file", "line", "function", "via", "source")
            )
            if (file, function) != (key.file, key.name) if key.line < 0 else seen["steps"][row] == on_others:
                continue
            told = file, int(line), function, via, source
            found[told] = found.get(told, 0) + int(ns[row])
    ranked = sorted(found.items(), key=lambda one: (-one[1], one[0]))
    return [Line(*told, ns) for told, ns in ranked]


def _check(found: Places, books: Account) -> None:
    """Raises AssertionError where a cause's places and what is elsewhere are not all of it."""
    for owner, left in found.elsewhere_ns.items():
        told = books.ledger_ns[owner]
        if told is not None and sum(row.ns.get(owner, 0) for row in found.rows) + left != told:
            raise AssertionError(f"the places of {owner} do not sum to its {told} ns")


def _in_break(one: Break, claimed: Sequence[Claimed], order: dict[int, int]) -> list[dict[str, int]]:
    ns: dict[int, int] = {}
    for part in claimed:
        shared = np.minimum(part.end_ns, one.end_ns) - np.maximum(part.start_ns, one.start_ns)
        for at in np.flatnonzero(shared > 0).tolist():
            row = order[int(part.place[at])]
            ns[row] = ns.get(row, 0) + int(shared[at])
    ranked = sorted(ns.items(), key=lambda each: (-each[1], each[0]))[:_LINES]
    return [{"place": row, "ns": value} for row, value in ranked]


# What may turn out to be waiting for other ranks, by the row of its place (-1: elsewhere) and its owner.
_MOVED: Final = re.compile(r"place (-1|\d{1,9}) (idle_\w+)")


def _movable(
    claimed: Sequence[Claimed], rest: dict[int, Intervals], books: Account, order: dict[int, int]
) -> dict[str, Intervals]:
    waits = books.waits.spans
    found: dict[str, list[Intervals]] = {}

    def add(row: int, cause: int, spans: Intervals) -> None:
        if len(shared := intervals.intersect(spans, waits)):
            found.setdefault(f"place {row} {OWNERS[len(CLASSES) + cause]}", []).append(shared)

    if len(waits):
        for part in claimed:
            for place in np.unique(part.place).tolist():
                mine = part.place == place
                add(order[place], part.cause, intervals.union(part.start_ns[mine], part.end_ns[mine]))
        for cause, left in rest.items():
            add(-1, cause, left)
    return {name: intervals.merge(*spans) for name, spans in found.items()}


def is_movable(name: str) -> bool:
    return _MOVED.fullmatch(name) is not None


def with_peers(own: Places, meanwhile: Mapping[str, Intervals], peers: Intervals) -> Places:
    """The places with the time that `peers` holds under that owner, in the rows that it was in."""
    rows = [dict(row.ns) for row in own.rows]
    left = dict(own.elsewhere_ns)
    for name, spans in meanwhile.items():
        if (match := _MOVED.fullmatch(name)) is None:
            continue
        ns = intervals.intersect(spans, peers).total
        of = left if match[1] == "-1" else rows[int(match[1])]
        of[match[2]] = of.get(match[2], 0) - ns
        of["idle_peers"] = of.get("idle_peers", 0) + ns
    return Places([_with(row, ns) for row, ns in zip(own.rows, rows, strict=True)], left, own.ranges, own.samples)


def _with(row: Place, ns: dict[str, int]) -> Place:
    return replace(row, ns={owner: value for owner, value in ns.items() if value})


def seen_of(places: Places | None) -> Iterator[Place]:
    """The rows that are places of their own."""
    yield from (row for row in (places.rows if places else ()) if row.kind != "others")
