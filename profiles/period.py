"""The period in a sequence of kernel names: cycles between occurrences of an anchor that hold the same kernels."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from .cycles import Flags, Int64s, agreement

LEAST_CYCLES = 5
LEAST_EXPLAINED = 0.9
# Cycles must lie over at least this share of the GPU's kernels: a burst of equal ones at the start is no training.
_LEAST_COVERED = 0.5
# An anchor may come several times a step; beyond this many of one kernel name a better anchor exists.
_MOST_PER_CYCLE = 8
# A cycle so many times as large as usual may hold a phase of its own: an evaluation.
_PHASE = 3
_TRIES = 12


@dataclass(frozen=True, slots=True)
class Period:
    """Cycles [edges[i], edges[i + 1]) of kernels; from the first to the last that agree with each other.

    explained: the share of the kernels between edges[0] and edges[-1] that lie in agreeing cycles, or in a phase with
    a period of its own.
    """

    edges: Int64s
    agrees: Flags
    explained: float


def by_kernels(name: NDArray[np.int32]) -> Period | str:
    """The period in kernel names: the anchor whose cycles explain most, of equals the shortest; or why there is none.

    At least 5 cycles agree, explain at least 90 % of the kernels between the first and the last of them, and lie over
    half of all kernels.
    """
    found = _best(name, _by_name(name), phases=True)
    if found is None:
        return f"no kernel name comes back with the same kernels in between {LEAST_CYCLES} times"
    return _judged(found, len(name))


def by_places(name: NDArray[np.int32], places: Int64s) -> Period | str:
    """The same with anchors at given places, of which every step has as many: each one, each second one, ..."""
    if len(places) <= LEAST_CYCLES:
        return f"they come only {len(places)} times"
    found = _best(name, ([places[::k] for k in range(1, (len(places) - 1) // LEAST_CYCLES + 1)]), phases=True)
    if found is None:
        return "the kernels between them are never the same ones"
    return _judged(found, len(name))


def _judged(found: Period, kernels: int) -> Period | str:
    covered = (found.edges[-1] - found.edges[0]) / kernels
    if found.explained < LEAST_EXPLAINED:
        return f"cycles of equal kernels explain only {found.explained:.0%} of the kernels between them"
    if covered < _LEAST_COVERED:
        return f"cycles of equal kernels cover only {covered:.0%} of the recording's kernels"
    if _two_levels(found):
        return "the kernels repeat on two levels, and which of them is the step cannot be told"
    return found


def _two_levels(found: Period) -> bool:
    """Whether cycles that do not agree come back at equal distances: then the step is rather the larger period."""
    others = np.flatnonzero(~found.agrees)
    if len(others) < 3:
        return False
    distance = np.diff(others)
    return bool(distance[0] > 1 and (distance == distance[0]).all())


def _by_name(name: NDArray[np.int32]) -> Iterable[Int64s]:
    """Places of every kernel name that comes often enough: each one, each second one, ... up to each eighth."""
    order = np.argsort(name, kind="stable")
    first = np.flatnonzero(np.diff(name[order], prepend=name[order[0]] - 1 if len(name) else 0))
    for places in np.split(order, first[1:]):
        for k in range(1, min(_MOST_PER_CYCLE, (len(places) - 1) // LEAST_CYCLES) + 1):
            yield places[::k]


def _best(name: NDArray[np.int32], candidates: Iterable[Int64s], *, phases: bool) -> Period | None:
    """The candidate that explains most, of equals the one with the shortest cycles."""
    hopeful: list[tuple[float, int, int, Int64s]] = []
    seen: set[tuple[tuple[int, int, float], int]] = set()
    for places in candidates:
        bound, usual = _bound(places)
        key = (len(places), usual, round(bound, 3))
        # One kernel over and over is no step, unless it is a whole graph. Names that come once a step all tell the
        # same: two of them are enough.
        if bound >= 0.5 and (usual >= 2 or name[places[0]] < 0) and (key, 1) not in seen:
            seen.add((key, 1) if (key, 0) in seen else (key, 0))
            hopeful.append((bound, -usual, len(hopeful), places))
    best: Period | None = None
    for bound, _, _, places in sorted(hopeful, key=lambda one: one[:3], reverse=True)[:_TRIES]:
        if best is not None and bound < best.explained and bound < LEAST_EXPLAINED:
            break
        found = _explained(name, places, phases=phases)
        if found and (best is None or _rank(found) > _rank(best)):
            best = found
    return best


def _rank(found: Period) -> tuple[float, int]:
    return round(found.explained, 6), len(found.edges)


def _bound(places: Int64s) -> tuple[float, int]:
    """The most that cycles between these places can explain, by their sizes alone, and their usual size."""
    size = np.diff(places)
    if len(size) < LEAST_CYCLES:
        return 0.0, 0
    usual = float(np.median(size))
    alike = np.abs(size - usual) <= 0.06 * usual
    where = np.flatnonzero(alike)
    if len(where) < LEAST_CYCLES:
        return 0.0, 0
    return float(size[alike].sum() / (places[where[-1] + 1] - places[where[0]])), int(usual)


def _explained(name: NDArray[np.int32], places: Int64s, *, phases: bool) -> Period | None:
    agrees = agreement(name, places)
    where = np.flatnonzero(agrees)
    if len(where) < LEAST_CYCLES:
        return None
    edges = places[where[0] : where[-1] + 2]
    agrees = agrees[where[0] : where[-1] + 1]
    size = np.diff(edges)
    explained = int(size[agrees].sum())
    if phases:
        usual = np.median(size[agrees])
        for cycle in np.flatnonzero(~agrees & (size > _PHASE * usual)):
            inside = name[edges[cycle] : edges[cycle + 1]]
            phase = _best(inside, _by_name(inside), phases=False)
            if phase and phase.explained >= LEAST_EXPLAINED:
                explained += int(np.diff(phase.edges)[phase.agrees].sum())
    return Period(edges, agrees, explained / int(edges[-1] - edges[0]))
