"""Recordings of several ranks on one clock (docs/reference/measures.md, "Clocks").

Within a recording all times share a clock and are never shifted against each other. Between recordings the start of
each on the UTC clock tells the shift; the ends of collectives, which all ranks leave together, tell how good that is.
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

# UTC is good where the common ends of collectives agree to this.
AGREE_NS = 100_000
# So many common ends are needed to check a clock, and to set one.
_LEAST_PAIRS = 3
# Of fewer, some lag among hundreds has ends as equally far apart by chance.
_SURE_PAIRS = 6
# A spread within the clocks' own noise tells nothing more.
_NOISE_NS = 10_000
# Recordings that began at different steps: how many collectives one may be ahead of the other.
_MOST_LAG = 500


@dataclass(frozen=True, slots=True)
class Clock:
    """The common clock of several recordings. shift_ns: per recording, the ns to add to its times; methods: per
    recording, how the shift was found:

    `reference`: the clock itself, or on it as no shift was found; `utc`; `collectives`; `none`: not known.
    residual_ns: how far apart common ends of collectives still are, 95 of 100 of them, in the worst recording;
    None: not checked.
    """

    shift_ns: tuple[int, ...]
    methods: tuple[str, ...]
    residual_ns: int | None

    @property
    def method(self) -> str:
        """The least certain of the recordings' methods."""
        return max(self.methods, key=("reference", "utc", "collectives", "none").index)

    def to_json(self) -> dict[str, Any]:
        """`Measures.clock`."""
        return {
            "method": self.method,
            "methods": list(self.methods),
            "shifts": list(self.shift_ns),
            "residual_ns": self.residual_ns,
        }


@dataclass(frozen=True, slots=True)
class Ends:
    """One recording's start in UTC, and the ends of the collectives on the GPU that has most of them, ascending, with
    their names."""

    origin_utc_ns: int | None
    end_ns: Int64s
    name: NDArray[np.object_]
    steps: tuple[int, int] | None = None  # first and last number of its marks `step N`


def aligned(each: Sequence[Ends]) -> Clock:
    """Find the shifts that bring recordings on the clock of the first.

    The starts in UTC decide if the common ends of collectives then agree within 100 µs, cannot be compared, or belong
    to other steps by their marks. Else the median difference of those ends decides, at the lag with the most pairs and
    the least spread.
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
    """Read from a recording the times that its clock is found by."""
    name = timeline.kernels["name"].cat
    codes = name.codes.to_numpy()
    rows = np.flatnonzero(rows_of(codes, is_collective(name.categories)))
    if len(rows):
        device = timeline.kernels["device"].to_numpy()[rows]
        met, first, count = np.unique(device, return_index=True, return_counts=True)
        rows = rows[device == met[np.lexsort((first, -count))[0]]]  # of equals the one met first
    end_ns = timeline.kernels["end_ns"].to_numpy()[rows]
    order = np.argsort(end_ns, kind="stable")
    names = np.array(name.categories, dtype=object)[codes[rows[order]]]
    return Ends(timeline.recording.origin_utc_ns, end_ns[order], names, marks.numbers(timeline))


def _shift(reference: Ends, own: Ends, utc: int | None) -> tuple[int, str, int | None]:
    """Shift, method and residual of one recording."""
    if utc is not None:
        ours, theirs = nearest(reference.end_ns, own.end_ns + utc)
        apart = reference.end_ns[ours] - (own.end_ns[theirs] + utc)
        if len(apart) >= _LEAST_PAIRS and np.median(np.abs(apart)) <= AGREE_NS:
            return utc, "utc", _residual(apart)
    apart = np.empty(0, np.int64) if _other_steps(reference, own) else _best(list(_lagged(reference, own)), utc)
    if len(apart) < _LEAST_PAIRS:
        return (0, "none", None) if utc is None else (utc, "utc", None)
    shift = int(np.sort(apart)[(len(apart) - 1) // 2])
    return shift, "collectives", _residual(apart - shift)


def _other_steps(reference: Ends, own: Ends) -> bool:
    """True if by their marks the two have no step in common, and so no collective."""
    ours, theirs = reference.steps, own.steps
    return ours is not None and theirs is not None and (ours[1] < theirs[0] or theirs[1] < ours[0])


def _lagged(reference: Ends, own: Ends) -> Iterator[Int64s]:
    """For each lag (collectives by which one recording is ahead): the differences of the ends of equal collectives."""
    most = min(_MOST_LAG, max(len(reference.end_ns), len(own.end_ns)))
    for lag in range(-most, most + 1):
        first, other = max(lag, 0), max(-lag, 0)
        count = min(len(reference.end_ns) - first, len(own.end_ns) - other)
        if count < _LEAST_PAIRS:
            continue
        if (reference.name[first : first + count] == own.name[other : other + count]).all():
            yield reference.end_ns[first : first + count] - own.end_ns[other : other + count]


def _best(lags: list[Int64s], utc: int | None) -> Int64s:
    """The lag at which the ends are most equally far apart. Ties go to the most pairs, then the least spread, then the
    lag nearest to UTC. UTC has no other say: it was tried before, and does not fit.

    Steps of equal length are as well apart at another lag, but for fewer pairs.
    """
    spreads = [_spread(one) for one in lags]
    sure = [at for at, one in enumerate(lags) if len(one) >= _SURE_PAIRS] or range(len(lags))
    least = min((spreads[at] for at in sure), default=0)
    if least > AGREE_NS:  # no lag fits: the one that fits least badly, which is said
        return lags[min(sure, key=lambda at: _residual(lags[at] - int(np.median(lags[at]))))]
    alike = max(2 * least, _NOISE_NS)

    def order(at: int) -> tuple[int, int, float]:
        return -len(lags[at]), spreads[at], 0 if utc is None else abs(float(np.median(lags[at])) - utc)

    chosen = [at for at, spread in enumerate(spreads) if spread <= alike]
    return lags[min(chosen, key=order)] if chosen else np.empty(0, np.int64)


def _spread(apart: Int64s) -> int:
    """The distance from the median that three of four do not exceed, in ns: a few strays count nothing."""
    return nearest_rank(np.abs(apart - int(np.median(apart))), 75)


def _residual(apart: Int64s) -> int:
    """The difference that 95 of 100 do not exceed, in ns."""
    return nearest_rank(np.abs(apart), 95)


def nearest(a: Int64s, b: Int64s) -> tuple[Int64s, Int64s]:
    """Pairs of places of `a` and `b`, both ascending, that are each other's nearest instant."""
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
