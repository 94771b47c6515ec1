"""Find the period in a sequence of kernel names: a kernel (anchor) that recurs with the same kernels between."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from .cycles import AGREE, Flags, Int64s, agreement

LEAST_CYCLES = 5
LEAST_EXPLAINED = 0.9
# Cycles must span at least this share of the GPU's kernels, since a burst of equal kernels at the start is no
# training.
LEAST_COVERED = 0.5
# A period that covers less than this share of the sequence, or of a longer period's span, loses to the longer period.
_WIDE = 0.8
# A cycle this many times as large as usual may hold another phase with its own period, such as an evaluation.
_PHASE = 3
# Cycles at least this many times as large as usual that recur at equal distances show a longer period: the step.
_LARGER = 1.5
# Number of candidates whose cycles are compared kernel by kernel, after sorting by the distances between their
# places.
_TRIES = 24
_MOST_IN_A_ROW = 3
_MOST_A_STEP = 1000
# Number of starting places that are tried, to find the one from which distances are most even.
_FIRSTS = 16
# Two distances of an anchor within 6 % count as equal; at least this share of an anchor's distances must be equal.
_EQUAL = 0.06
_LEAST_STEADY = 0.4


@dataclass(frozen=True, slots=True)
class Period:
    """Cycles [edges[i], edges[i + 1]) of kernels, from the first to the last cycle that agrees with others.

    `explained`: the share of kernels between edges[0] and edges[-1] that lie in agreeing cycles or in a phase with its
    own period, or the share of such cycles if that is less. `covered`: the share of all kernels that lie between
    edges[0] and edges[-1]. `two_levels`: True if larger cycles that do not agree recur at equal distances.
    """

    edges: Int64s
    agrees: Flags
    explained: float
    covered: float
    two_levels: bool

    @property
    def usual(self) -> float:
        """The median number of kernels in an agreeing cycle."""
        return float(np.median(np.diff(self.edges)[self.agrees]))

    @property
    def refused(self) -> str | None:
        """The reason why these cycles do not count as a period; None if they do."""
        if self.two_levels:
            return "the kernels show a short and a long repeating pattern, and the long one comes fewer than 5 times"
        if self.explained < LEAST_EXPLAINED:
            return f"only {100 * self.explained:.0f} % of the kernels repeat between the first and the last repetition"
        if self.covered < LEAST_COVERED:
            return f"the repeating part holds only {100 * self.covered:.0f} % of the recording's kernels"
        return None


def by_kernels(name: NDArray[np.int32]) -> Period | str:
    """Find the shortest period in a sequence of kernel names; else say why there is none.

    At least 5 cycles must agree, explain at least 90 % of the kernels between the first and the last of them, and
    span half of all kernels. A cycle begins with an anchor: a kernel name, or two or three names in a row if no
    name comes once a step.
    """
    best: Period | None = None
    for in_a_row in range(1, _MOST_IN_A_ROW + 1):
        found = _shortest(name, _by_name(_rows(name, in_a_row)))
        if found is not None and found.refused is None:
            return _filled(name, found)
        best = found if best is None else best
    return _judged(name, best, "no sequence of kernels repeats at least 5 times")


def by_places(name: NDArray[np.int32], places: Int64s) -> Period | str:
    """Find the period whose cycles begin at given places: at all of them, or at every k-th if a step has several."""
    if len(places) <= LEAST_CYCLES:
        return f"these occur only {'once' if len(places) == 1 else f'{len(places)} times'}"
    most = min(_MOST_A_STEP, (len(places) - 1) // LEAST_CYCLES)
    every = (_steadiest(places, k) for k in range(1, most + 1))
    return _judged(name, _shortest(name, every), "other kernels run between them each time")


def _steadiest(places: Int64s, k: int) -> Int64s:
    """Take every k-th place: from the first one, or if that gives uneven distances, from the start that gives the
    most even.

    A collective that runs beside kernels starts before some of them in one step and after them in the next.
    Without the search for an even start, two steps together could look more regular than one.
    """

    def even(first: int) -> float:
        distance = np.diff(places[first::k])
        usual = np.median(distance)
        return float((np.abs(distance - usual) <= (1 - AGREE) * usual).mean())

    if even(0) >= LEAST_EXPLAINED:
        return places[::k]
    firsts = np.unique(np.linspace(0, min(k, len(places) - LEAST_CYCLES * k) - 1, _FIRSTS).astype(np.int64)).tolist()
    return places[max(firsts, key=even) :: k]


def _judged(name: NDArray[np.int32], found: Period | None, otherwise: str) -> Period | str:
    if found is None:
        return otherwise
    return found.refused or _filled(name, found)


def _filled(name: NDArray[np.int32], found: Period) -> Period:
    """Add edges where an anchor is missing: split a cycle that is k times as large as usual into k parts. It is split
    only if all parts agree with the other cycles."""
    size = np.diff(found.edges)
    times = np.rint(size / found.usual).astype(np.int64)
    several = ~found.agrees & (times > 1) & (np.abs(size - times * found.usual) <= (1 - AGREE) * size)
    if not several.any():
        return found
    counts = np.where(several, times, 1)
    cycle = np.repeat(np.arange(len(size)), counts)
    part = np.arange(len(cycle)) - np.repeat(np.cumsum(counts) - counts, counts)
    edges = np.append(found.edges[cycle] + part * size[cycle] // counts[cycle], found.edges[-1])
    agrees = agreement(name, edges)
    # Split a cycle only if all its parts agree.
    whole = np.logical_and.reduceat(agrees, np.cumsum(counts) - counts)[cycle]
    kept = (part == 0) | whole
    return replace(found, edges=edges[np.append(kept, True)], agrees=agrees[kept] & (whole | found.agrees[cycle])[kept])


def _rows(name: NDArray[np.int32], count: int) -> NDArray[np.int32]:
    """Number each run of `count` successive names; a run's number stands at the place of its last kernel."""
    if count == 1:
        return name
    dense: Int64s = (name - name.min() + 1).astype(np.int64)
    found: Int64s = dense
    for back in range(1, count):
        before = np.concatenate((np.zeros(back, np.int64), dense[:-back]))
        found = np.unique(found * (dense.max() + 1) + before, return_inverse=True)[1]
    succession: NDArray[np.int32] = found.astype(np.int32)
    return succession


def _by_name(name: NDArray[np.int32]) -> Iterator[Int64s]:
    """Yield the places of each name that is frequent, spans enough kernels and recurs mostly at equal distances."""
    order = np.argsort(name, kind="stable")
    changes = np.flatnonzero(np.diff(name[order])) + 1
    first, last = np.concatenate(([0], changes)), np.concatenate((changes, [len(name)]))
    distance = np.diff(order)
    # True where a distance equals the previous one. The few distances across two names do not matter.
    equal = np.abs(np.diff(distance, prepend=0)) <= _EQUAL * distance
    equals = np.concatenate(([0], np.cumsum(equal)))
    often = last - first > LEAST_CYCLES
    first, last = first[often], last[often]
    steady = equals[last - 1] - equals[first] >= _LEAST_STEADY * (last - first - 2)
    wide = order[last - 1] - order[first] >= LEAST_COVERED * len(name)
    for one in np.flatnonzero(steady & wide):
        yield order[first[one] : last[one]]


def _shortest(name: NDArray[np.int32], candidates: Iterable[Int64s], *, phase: bool = False) -> Period | None:
    """Choose the candidate with the shortest period; among equally short ones, the one with most agreeing cycles.

    A candidate that covers far more of the sequence wins over a shorter one. If no candidate is a period, return
    the one with the largest explained * covered. None without candidates.
    """
    best: Period | None = None
    refused: Period | None = None
    for usual, places in _hopeful(len(name), candidates):
        if best is not None and usual > best.usual / AGREE and best.covered >= _WIDE:
            break
        found = _explained(name, places, phase=phase)
        if found is None:
            continue
        if found.refused is None:
            as_short = best is not None and found.usual <= best.usual / AGREE
            wider = best is not None and best.covered < _WIDE * found.covered
            if best is None or wider or (as_short and found.agrees.sum() > best.agrees.sum()):
                best = found
        elif refused is None or found.explained * found.covered > refused.explained * refused.covered:
            refused = found
    return best or refused


def _hopeful(kernels: int, candidates: Iterable[Int64s]) -> list[tuple[float, Int64s]]:
    """Return (median distance, places) of the candidates worth comparing, the most promising first.

    First come candidates whose equal distances may explain enough of the kernels, the shortest first; then
    candidates that need phases with their own period, by the share of kernels that their equal distances explain.
    """
    found: list[tuple[bool, float, float, int, Int64s]] = []
    seen: set[tuple[int, int, int, float]] = set()
    for places in candidates:
        size = np.diff(places)
        usual = float(np.median(size))
        alike = np.flatnonzero(np.abs(size - usual) <= _EQUAL * usual)
        if len(alike) < LEAST_CYCLES:
            continue
        between = places[alike[-1] + 1] - places[alike[0]]
        explained = round(float(size[alike].sum() / between), 3)
        # All names that come once a step give the same period; try four of them, spread over the step.
        key = (len(places), int(usual), int(4 * (places[0] % usual) / usual), explained)
        if explained < 0.5 or between < LEAST_COVERED * kernels or key in seen:
            continue
        seen.add(key)
        alone = explained >= LEAST_EXPLAINED
        found.append((not alone, usual if alone else -explained, usual, len(found), places))
    return [(usual, places) for _, _, usual, _, places in sorted(found, key=lambda one: one[:-1])[:_TRIES]]


def _explained(name: NDArray[np.int32], places: Int64s, *, phase: bool) -> Period | None:
    """The period with anchors at these places; None if fewer than 5 cycles agree, or if a cycle holds only one
    kernel name.

    `phase`: True if the sequence is itself a phase of a larger one; then no phases are sought within its cycles.
    """
    agrees = agreement(name, places)
    where = np.flatnonzero(agrees)
    if len(where) < LEAST_CYCLES:
        return None
    edges = places[where[0] : where[-1] + 2]
    cycle = name[edges[0] : edges[1]]
    if (cycle == cycle[0]).all() and cycle[0] >= 0:  # one kernel over and over is no step, unless it is a whole graph
        return None
    agrees = agrees[where[0] : where[-1] + 1]
    size = np.diff(edges)
    usual = float(np.median(size[agrees]))
    kernels, cycles = int(size[agrees].sum()), int(agrees.sum())
    larger = np.flatnonzero(~agrees & (size > _LARGER * usual))
    two_levels = _equally_far(larger)
    if not phase and not two_levels:
        in_phases = [_in_phase(name[edges[i] : edges[i + 1]], cycle, usual) for i in larger]
        kernels, cycles = kernels + sum(in_phases), cycles + sum(map(bool, in_phases))
    between = int(edges[-1] - edges[0])
    explained = min(kernels / between, cycles / len(size))
    return Period(edges, agrees, explained, between / len(name), two_levels)


def _in_phase(name: NDArray[np.int32], cycle: NDArray[np.int32], usual: float) -> int:
    """The number of kernels in a large, disagreeing cycle that have a period of their own, as an evaluation's kernels
    do.

    0 unless more than half of their names occur in `cycle`, a training step, since an evaluation runs the same model.
    """
    if len(name) <= _PHASE * usual:
        return 0
    found = _shortest(name, _by_name(name), phase=True)
    if found is None or found.explained < LEAST_EXPLAINED:
        return 0
    own = np.unique(name[found.edges[0] : found.edges[-1]])
    return int(np.diff(found.edges)[found.agrees].sum()) if 2 * np.isin(own, cycle).sum() > len(own) else 0


def _equally_far(cycles: Int64s) -> bool:
    """True if there are at least 3 of these cycles (indices), mostly at equal distances, and not next to each other."""
    if len(cycles) < 3:
        return False
    distances, counts = np.unique(np.diff(cycles), return_counts=True)
    return bool(distances[counts.argmax()] > 1 and 2 * counts.max() > len(cycles) - 1)
