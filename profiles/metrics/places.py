"""Divide idle time by places in the user's own code (docs/reference/measures.md, "Which of my lines").

Each nanosecond of the ledger's idle time goes to the first of these activities that was under way on the host: a
garbage collection; a marked range on the thread that runs the steps; a sampled line of the user's code on that thread;
while the GPU waits for input, code that makes batches on other threads; a sampled line that was inside a call of a
framework. The rest is `elsewhere`. A span of idle time that a synchronisation causes goes as a whole to the place in
which it began, because the host waited there and launched nothing ahead.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ..gpus.operations import Gpu
from ..ground import intervals
from ..ground.intervals import Intervals
from ..ledger import ownership as ledger
from ..ledger.account import Account
from ..ledger.causes import SYNC
from ..ledger.window import Window
from ..model import marks
from ..model.measures import CLASSES, OWNERS
from ..model.places import SAMPLED, Line, Place, Places
from ..model.steps import Break
from ..model.timeline import Timeline
from .place_layers import (
    DIVIDED,
    MAKES_BATCHES,
    RANGES,
    WAITS,
    Key,
    Layer,
    Numbers,
    of_process,
    pieces,
    samples_of,
    tells,
)

Int64s = NDArray[np.int64]
_LINES: Final = 3
_OTHERS: Final = 100  # number of places that get a row of their own; all other places share one row


@dataclass(frozen=True, slots=True)
class Claimed:
    """Spans of idle time of one cause, int64[n] ns, each with the number of the place that it goes to."""

    cause: int
    place: Int64s
    start_ns: Int64s
    end_ns: Int64s
    kind: NDArray[np.str_]


def measure(
    timelines: Sequence[Timeline], shift_ns: Sequence[int], gpu: Gpu, books: Account, breaks: Sequence[Break]
) -> tuple[Places | None, dict[str, Intervals]]:
    """The places of a GPU, and the spans in them that may prove to be waiting for other ranks, under the names that
    `_movable` makes.

    Sets the places of each break, too. None if nothing in the recordings shows a place."""
    if not any(tells(timelines[index]) for index, _ in gpu.processes):
        return None, {}
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
        ranges=any(kind not in SAMPLED for found in layers for layer in found for kind in layer.kind[:1]),
        samples=any(len(one["start_ns"]) for one in samples),
    )
    _check(found_places, books)
    for one in breaks:
        one.places = _in_break(one, claimed, [found[RANGES] for found in layers], order)
    return found_places, _movable(claimed, rest, books, order)


def divide(idle: Mapping[int, Intervals], layers: Sequence[Layer]) -> tuple[list[Claimed], dict[int, Intervals]]:
    """Give each idle instant of each cause to the first layer that covers it. The second result is the idle time of
    each cause that no layer covers."""
    claimed, rest = [], {}
    for cause, left in idle.items():
        mine = [layer for layer in layers if cause in layer.causes and len(layer.place)]
        for layer in mine if cause == SYNC else ():
            span = np.searchsorted(layer.start_ns, left.start, side="right") - 1
            begun = (span >= 0) & (left.start < layer.end_ns[span])
            claimed.append(_claim(cause, layer, span[begun], left.start[begun], left.end[begun]))
            left = Intervals(left.start[~begun], left.end[~begun])
        for layer in mine:
            span, start, end = pieces(layer, left)
            claimed.append(_claim(cause, layer, span, start, end))
            left = intervals.subtract(left, intervals.union(start, end))
        rest[cause] = left
    return claimed, rest


def _claim(cause: int, layer: Layer, span: Int64s, start: Int64s, end: Int64s) -> Claimed:
    return Claimed(cause, layer.place[span], start, end, layer.kind[span])


def rows_of_claims(
    numbers: Numbers, claimed: Sequence[Claimed], window: Window, samples: Sequence[dict[str, Any]]
) -> tuple[list[Place], dict[int, int]]:
    """Rows of the places with idle time, the longest first, and the row of each place number.

    Places after the first `_OTHERS` share the last row."""
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
        kinds[kind.removesuffix(WAITS)] = kinds.get(kind.removesuffix(WAITS), 0) + spans.total
    whole = intervals.merge(*(spans for _, spans, _ in parts))
    inside = window.part(whole)
    kind = max(kinds, key=lambda kind: kinds[kind])
    seen = () if kind in marks.PIPELINE else samples
    lines = _lines(key, whole, seen, on_others=kind in MAKES_BATCHES and kind != "gc")
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
    """The lines that were sampled in these spans, the longest first. For a function, its own lines; for a range, the
    lines of the thread that runs the steps, or with `on_others` of the other threads."""
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
    """Raises AssertionError if the places of an owner and its `elsewhere` do not add up to its ns in the ledger."""
    for owner, left in found.elsewhere_ns.items():
        told = books.ledger_ns[owner]
        if told is not None and sum(row.ns.get(owner, 0) for row in found.rows) + left != told:
            raise AssertionError(f"the places of {owner} do not sum to its {told} ns")


def _in_break(
    one: Break, claimed: Sequence[Claimed], ranges: Sequence[Layer], order: dict[int, int]
) -> list[dict[str, int]]:
    """The three places with most time in a break: idle time, or the time of the place's ranges if that is more. Ranges
    count because an evaluation keeps the GPU busy. Ranges of eager steps do not, as one is around each step."""
    idle, spent = dict[int, int](), dict[int, int]()
    for parts, ns in ((claimed, idle), (ranges, spent)):
        for part in parts:
            shared = np.minimum(part.end_ns, one.end_ns) - np.maximum(part.start_ns, one.start_ns)
            if parts is ranges:
                shared[part.kind == "eager"] = 0
            for at in np.flatnonzero(shared > 0).tolist():
                row = order.get(int(part.place[at]))
                if row is not None:
                    ns[row] = ns.get(row, 0) + int(shared[at])
    most = {row: max(idle.get(row, 0), spent.get(row, 0)) for row in idle | spent}
    ranked = sorted(most.items(), key=lambda each: (-each[1], each[0]))[:_LINES]
    return [{"place": row, "ns": value} for row, value in ranked]


# The name of spans that may prove to be waiting for other ranks: their place's row (-1: elsewhere) and their owner.
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
    """The places after the part of `meanwhile` that lies in `peers` has moved to the owner `idle_peers`, row by row."""
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
