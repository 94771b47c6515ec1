"""Bring recordings of several ranks to one clock (docs/reference/measures.md, "Clocks").

Within a recording all times share a clock and are never shifted against each other. The recordings' starts in UTC give
the shifts between them; the ends of collectives, which all ranks leave together, show how accurate the shifts are.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..ground.stats import nearest_rank
from ..model import marks
from ..model.names import rows_of
from ..model.timeline import Timeline
from .collective_kernels import is_collective

Int64s = NDArray[np.int64]

# The shifts by UTC are accepted if the common ends of collectives then agree to this.
AGREE_NS = 100_000
# A shift is checked or found only by at least this many common ends.
_LEAST_PAIRS = 3
# With fewer pairs of ends, one of the hundreds of lags may have an equally small spread by chance.
_SURE_PAIRS = 6
# On one host, collectives of one run do not lie this far apart by UTC. Its clock may be set by seconds in between.
_OTHER_RUN_NS = 30 * 10**9
# Spreads below this are noise of the clocks: a smaller spread is no better.
_NOISE_NS = 10_000
# One recording may be ahead of the other by this many collectives, as recordings may begin at different steps.
_MOST_LAG = 500


@dataclass(frozen=True, slots=True)
class Clock:
    """The common clock of several recordings.

    `shift_ns`: for each recording, the ns to add to its times. `methods`: for each recording, how its shift was found:
    `reference` (its clock is the common one), `utc`, `collectives`, or `none` (not found, so the shift is 0).
    `residual_ns`: 95 % of the common ends of collectives agree to this in the worst recording; None: not checked.
    """

    shift_ns: tuple[int, ...]
    methods: tuple[str, ...]
    residual_ns: int | None

    @property
    def method(self) -> str:
        """The least certain method by which a recording's shift was found."""
        return max(self.methods, key=("reference", "utc", "collectives", "none").index)

    def to_json(self) -> dict[str, Any]:
        """The JSON object of `Measures.clock`."""
        return {
            "method": self.method,
            "methods": list(self.methods),
            "shifts": list(self.shift_ns),
            "residual_ns": self.residual_ns,
        }


@dataclass(frozen=True, slots=True)
class Ends:
    """The start of one recording in UTC, and the collectives of its GPU that has most: their ends in order, and
    names."""

    origin_utc_ns: int | None
    end_ns: Int64s
    name: NDArray[np.object_]
    steps: tuple[int, int] | None = None  # numbers of its first and last mark `step N`
    host: str | None = None  # the recorded host; None: not known


def aligned(each: Sequence[Ends]) -> Clock:
    """Find the shifts that bring recordings to the clock of the first one.

    The starts in UTC give the shift if the common ends of collectives then agree within 100 µs, or if these ends cannot
    be compared, or belong to different steps by their marks, or to different runs: one host recorded them over 30 s
    apart, or they are of different times by UTC and agree at no shift.
    Otherwise the shift is the median difference of these ends. Recordings may begin at different collectives; `_best`
    finds out which collectives belong together.
    """
    if len(each) == 1:
        return Clock((0,), ("reference",), None)
    reference = each[0]
    shifts, methods, residuals = [0], ["reference"], list[int]()
    for own in each[1:]:
        utc = _utc_shift(reference, own)
        shift, method, residual = _shift(reference, own, utc)
        shifts.append(shift)
        methods.append(method)
        residuals += [] if residual is None else [residual]
    checked = len(residuals) == len(each) - 1 and bool(residuals)
    return Clock(tuple(shifts), tuple(methods), max(residuals) if checked else None)


def _utc_shift(reference: Ends, own: Ends) -> int | None:
    ours, theirs = reference.origin_utc_ns, own.origin_utc_ns
    return None if ours is None or theirs is None else theirs - ours


def ends(timeline: Timeline) -> Ends:
    """Read from a recording the times by which its clock is compared with others."""
    name = timeline.kernels["name"].cat
    codes = name.codes.to_numpy()
    rows = np.flatnonzero(rows_of(codes, is_collective(name.categories)))
    if len(rows):
        device = timeline.kernels["device"].to_numpy()[rows]
        met, first, count = np.unique(device, return_index=True, return_counts=True)
        rows = rows[device == met[np.lexsort((first, -count))[0]]]  # of GPUs with equally many, the first
    end_ns = timeline.kernels["end_ns"].to_numpy()[rows]
    order = np.argsort(end_ns, kind="stable")
    names = np.array(name.categories, dtype=object)[codes[rows[order]]]
    return Ends(
        timeline.recording.origin_utc_ns, end_ns[order], names, marks.numbers(timeline), timeline.recording.host
    )


def _shift(reference: Ends, own: Ends, utc: int | None) -> tuple[int, str, int | None]:
    """The shift of one recording, the method, and the residual; None: not checked."""
    if utc is not None:
        ours, theirs = nearest(reference.end_ns, own.end_ns + utc)
        apart = reference.end_ns[ours] - (own.end_ns[theirs] + utc)
        if len(apart) >= _LEAST_PAIRS and np.median(np.abs(apart)) <= AGREE_NS:
            return utc, "utc", _residual(apart)
    others = _other_steps(reference, own) or (utc is not None and _of_other_runs(reference, own, utc))
    apart = np.empty(0, np.int64) if others else _best(list(_lagged(reference, own)), utc)
    if len(apart) < _LEAST_PAIRS:
        return (0, "none", None) if utc is None else (utc, "utc", None)
    shift = int(np.sort(apart)[(len(apart) - 1) // 2])
    residual = _residual(apart - shift)
    if utc is not None and residual > AGREE_NS and _at_other_times(reference, own, utc):
        return utc, "utc", None
    return shift, "collectives", residual


def _other_steps(reference: Ends, own: Ends) -> bool:
    """True if the two recordings' marks show that they have no step, and so no collective, in common."""
    ours, theirs = reference.steps, own.steps
    return ours is not None and theirs is not None and (ours[1] < theirs[0] or theirs[1] < ours[0])


def _of_other_runs(reference: Ends, own: Ends, utc: int) -> bool:
    """True if one host recorded both, and by its clock their collectives are too far apart to be of one run."""
    known = reference.host is not None and len(reference.end_ns) and len(own.end_ns)
    return bool(known) and reference.host == own.host and _between_ns(reference, own, utc) > _OTHER_RUN_NS


def _at_other_times(reference: Ends, own: Ends, utc: int) -> bool:
    """True if by UTC all collectives of one recording end before the first of the other."""
    return _between_ns(reference, own, utc) > 0


def _between_ns(reference: Ends, own: Ends, utc: int) -> int:
    """The ns by UTC from the last collective of one recording to the first of the other; below 0 if they overlap."""
    ours, theirs = reference.end_ns, own.end_ns + utc
    return int(max(theirs[0] - ours[-1], ours[0] - theirs[-1]))


def _lagged(reference: Ends, own: Ends) -> Iterator[Int64s]:
    """Pair the collectives of two recordings at each lag, by which one recording is ahead. Yields the differences of
    the paired ends in ns for each lag at which the names of all pairs agree."""
    most = min(_MOST_LAG, max(len(reference.end_ns), len(own.end_ns)))
    for lag in range(-most, most + 1):
        first, other = max(lag, 0), max(-lag, 0)
        count = min(len(reference.end_ns) - first, len(own.end_ns) - other)
        if count < _LEAST_PAIRS:
            continue
        if (reference.name[first : first + count] == own.name[other : other + count]).all():
            yield reference.end_ns[first : first + count] - own.end_ns[other : other + count]


def _best(lags: list[Int64s], utc: int | None) -> Int64s:
    """Choose the lag with the smallest spread, and return its differences; empty if there is no lag.

    Lags with nearly equal spreads are sorted by the number of pairs, since equal steps give a small spread at a wrong
    lag, too, but with fewer pairs. After that the smaller spread decides, then the smaller distance from UTC.
    """
    spreads = [_spread(one) for one in lags]
    sure = [at for at, one in enumerate(lags) if len(one) >= _SURE_PAIRS] or range(len(lags))
    least = min((spreads[at] for at in sure), default=0)
    if least > AGREE_NS:  # no lag fits: take the one with the least residual, about which a doubt warns
        return lags[min(sure, key=lambda at: _residual(lags[at] - int(np.median(lags[at]))))]
    alike = max(2 * least, _NOISE_NS)

    def order(at: int) -> tuple[int, int, float]:
        return -len(lags[at]), spreads[at], 0 if utc is None else abs(float(np.median(lags[at])) - utc)

    chosen = [at for at, spread in enumerate(spreads) if spread <= alike]
    return lags[min(chosen, key=order)] if chosen else np.empty(0, np.int64)


def _spread(apart: Int64s) -> int:
    """The distance in ns from the median that 75 % of the differences do not exceed; a few outliers do not change
    it."""
    return nearest_rank(np.abs(apart - int(np.median(apart))), 75)


def _residual(apart: Int64s) -> int:
    """The size in ns that 95 % of the differences do not exceed."""
    return nearest_rank(np.abs(apart), 95)


def nearest(a: Int64s, b: Int64s) -> tuple[Int64s, Int64s]:
    """Find pairs of instants in `a` and `b` of which each is the other's nearest. Returns their indices in `a` and in
    `b`. Both arrays must be ascending."""
    if not len(a) or not len(b):
        return np.empty(0, np.int64), np.empty(0, np.int64)
    to_b, to_a = _nearest_place(a, b), _nearest_place(b, a)
    mine = np.flatnonzero(to_a[to_b] == np.arange(len(a)))
    return mine, to_b[mine]


def _nearest_place(a: Int64s, b: Int64s) -> Int64s:
    after = np.minimum(np.searchsorted(b, a), len(b) - 1)
    before = np.maximum(after - 1, 0)
    found: Int64s = np.where(np.abs(b[before] - a) <= np.abs(b[after] - a), before, after)
    return found
