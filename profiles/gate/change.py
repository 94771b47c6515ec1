"""Judge whether the last runs of a series became slower or faster than earlier runs, given their scatter and drift.

Three tests must agree that the last five runs differ from earlier runs, because each test errs with some kind of noise:
- Mann and Whitney's U (Annals of Mathematical Statistics 18, 1947) keeps its rate of false alarms for any distribution
  of the noise, but takes a drift for a change.
- Student's t of a step, fitted together with a linear drift (analysis of covariance: Fisher, Statistical Methods for
  Research Workers, 4th edition, 1932), allows for drifts, but assumes normal noise. So outliers are clipped
  (winsorized: Dixon, Annals of Mathematical Statistics 31, 1960), and correlated runs count as fewer runs (Bayley and
  Hammersley, Supplement to the Journal of the Royal Statistical Society 8, 1946).
- U and t assume independent runs. So the mean of the five must also be further off than the mean of any five earlier
  runs in a row, which are correlated in the same way (moving blocks: Kuensch, Annals of Statistics 17, 1989).

A single run beyond the limit may be an outlier: it is doubted. It is a change if it is very far off, or if the next run
is off as well. benchmarks/gate_histories.py measures false alarms and detected changes on simulated histories.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np
from numpy.typing import NDArray

from ..ground.stats import MAD_TO_SIGMA

LATEST: Final = 5  # number of latest runs that are compared with earlier ones
# Significance levels of U and t, two-sided: half of the false alarms say "slower". All tests must agree, but with some
# kinds of noise only one of them limits false alarms, so each level is strict.
BY_RANKS, BY_LINE = 1 / 100, 1 / 150
CLIPPED: Final = 3  # standard deviations (by the median absolute deviation) beyond which a run is an outlier
# The mean of the latest runs must be FURTHER times as far off as any earlier mean; with few earlier runs SHORT / (their
# number) times, because few runs show little of the noise.
FURTHER, SHORT = 1.5, 40
AGAIN: Final = 0.1  # factor on the levels if the run before was a change, since each further run adds false alarms
BY_ONE: Final = 1 / 1000  # two-sided significance level at which a single run is doubted
FAR: Final = 0.5  # a single run is a change if it takes over 1 + FAR times as long, or under 1 / (1 + FAR)
FEW: Final = 10  # with fewer earlier runs their scatter is hardly known: FIXED, BY_FEW and SUPPOSED_* apply
FIXED: Final = 0.05  # a run may differ by this share from the median of few earlier runs; more if they scatter more
# BY_FEW: two-sided significance level at which a single run is doubted. The scatter is estimated as if SUPPOSED_RUNS
# more runs, of a standard deviation of SUPPOSED_SCATTER, had come before.
BY_FEW, SUPPOSED_RUNS, SUPPOSED_SCATTER = 1 / 200, 8, 0.015
BEFORE: Final = 50  # a run is compared with at most this number of earlier runs
KEPT: Final = 10  # number of runs that report a change; after that later runs are compared with these


@dataclass(frozen=True, slots=True)
class Found:
    """The judgement of the last run of a series. Runs are given by their index in the series."""

    before: list[int]  # runs that the last run was compared with; empty for a first run
    since: list[int]  # runs since the change, with the last run; empty if there was no change
    limit: float  # longest time at which a single run is not doubted, in the unit of the times
    p_value: float | None = None  # the larger of the p values of U and t; None if single runs were judged
    doubted: bool = False  # the last run is beyond the limit; the next run shows if that is a change

    @property
    def by_scatter(self) -> bool:
        return len(self.before) >= FEW


@dataclass(slots=True)
class _Level:
    """The runs that later runs are compared with, and the first run of a change that is still reported."""

    runs: list[int] = field(default_factory=list)
    changed: int | None = None


def last(times: Sequence[float], tests: int = 1) -> Found:
    """Judge the last run by the times of all runs (at least one, all above 0).

    tests: number of series that are judged together; the significance levels are divided by it."""
    return each(times, tests)[-1]


def each(times: Sequence[float], tests: int = 1) -> list[Found]:
    """Judge every run as if it were the last one."""
    logs = np.log(np.asarray(times, float))
    level, found = _Level(), []
    for now in range(len(logs)):
        level.runs.append(now)
        found.append(_judged(logs, level, now, tests))
        _go_on(level, found[-1], now)
    return found


def _go_on(level: _Level, found: Found, now: int) -> None:
    if found.since and now - found.since[0] + 1 >= KEPT:
        level.runs, level.changed = list(found.since), None
    elif found.since:
        level.changed = found.since[0]
    # The change is over: several changed runs are left out, a single one stays as noise.
    elif level.changed is not None:
        if now - level.changed > 1:
            level.runs = [one for one in level.runs if one < level.changed or one == now]
        level.changed = None


def _judged(logs: NDArray[np.float64], level: _Level, now: int, tests: int) -> Found:
    known = now if level.changed is None else level.changed  # runs from here on may belong to a change
    before = [one for one in level.runs if one < known][-BEFORE:]
    if not before:
        return Found([], [], math.inf)
    most = math.exp(float(np.median(logs[before])) + _limit(logs[before], tests))
    off, apart = _off(logs, before, now, tests), before[:-1]
    twice = _off(logs, apart, before[-1], tests) * _off(logs, apart, now, tests) > 0
    if off and level.changed is not None or level.changed is None and twice:
        since = _since(logs, level, now)
        return Found([one for one in level.runs if one < since[0]][-BEFORE:], since, most)
    if abs(off) > math.log(1 + FAR):
        return Found(before, [now], most)
    end, part = (now + 1 - LATEST, 1.0) if level.changed is None else (known, AGAIN)
    if (p_value := _by_latest(logs, level, end, part / tests)) is not None:
        since = _since(logs, level, now)
        return Found([one for one in level.runs if one < since[0]][-BEFORE:], since, most, p_value)
    return Found(before, [], most, doubted=bool(off))


def _off(logs: NDArray[np.float64], before: list[int], run: int, tests: int) -> float:
    """The distance of a run from the median of earlier runs, in logarithms of time; 0 if within the limit."""
    if not before:
        return 0.0
    off = float(logs[run] - np.median(logs[before]))
    return off if abs(off) > _limit(logs[before], tests) else 0.0


def _by_latest(logs: NDArray[np.float64], level: _Level, end: int, part: float) -> float | None:
    """The larger of the p values of U and t if all tests say that the runs from `end` on differ; else None."""
    from scipy import stats

    before = [one for one in level.runs if one < end][-BEFORE:]
    latest = [one for one in level.runs if one >= end]
    if 2 / math.comb(len(before) + len(latest), len(latest)) > BY_RANKS * part:
        return None  # even the most extreme order of so few runs is not significant
    line = _by_line(logs, before, latest)
    most = _most(logs[before])
    if not line <= BY_LINE * part or not _further(_clipped(logs[before], most), _clipped(logs[latest], most)):
        return None
    ranks = float(stats.mannwhitneyu(logs[latest], logs[before], method="exact").pvalue)
    return max(line, ranks) if ranks <= BY_RANKS * part else None


def _further(before: NDArray[np.float64], latest: NDArray[np.float64]) -> bool:
    """True if the mean of the latest runs is further off than any mean of as many earlier runs in a row."""
    count, middle = min(len(latest), LATEST, len(before)), float(np.median(before))
    means = np.convolve(before, np.full(count, 1 / count), "valid")
    times = max(FURTHER, SHORT / len(before))
    return bool(abs(latest.mean() - middle) > times * abs(means - middle).max())


def _by_line(logs: NDArray[np.float64], before: list[int], latest: list[int]) -> float:
    """The p value of Student's t for a step from `before` to `latest`, fitted together with a linear drift."""
    from scipy import special

    runs = np.asarray([*before, *latest])
    table = np.column_stack([np.ones(len(runs)), runs - runs[0], runs >= latest[0]]).astype(float)
    inverse = np.linalg.inv(table.T @ table)
    most = _most(logs[before])
    clipped = np.concatenate([_clipped(logs[before], most), _clipped(logs[latest], most)])
    found = inverse @ table.T @ clipped
    rest = clipped - table @ found
    free, squares = len(runs) - table.shape[1], float(rest @ rest)
    if free < 1 or squares == 0:
        return 0.0 if free > 0 and found[2] else 1.0
    # Fitting a drift lowers the correlation by 2 / n.
    alike = min(0.9, max(0.0, float(rest[1:] @ rest[:-1]) / squares + 2 / len(runs)))
    count = len(latest)
    fewer = 1 + 2 * sum((1 - lag / count) * alike**lag for lag in range(1, count))
    error = math.sqrt(squares / free * inverse[2, 2] * fewer)
    return float(2 * special.stdtr(free, -abs(found[2]) / error))


def _most(before: NDArray[np.float64]) -> float:
    """The distance from the median beyond which a run is an outlier, in logarithms of time."""
    return CLIPPED * MAD_TO_SIGMA * float(np.median(abs(before - np.median(before))))


def _clipped(logs: NDArray[np.float64], most: float) -> NDArray[np.float64]:
    """`logs` with a distance from their median of at most `most`; unchanged if `most` is 0."""
    middle = float(np.median(logs))
    return np.clip(logs, middle - most, middle + most) if most else logs


def _limit(before: NDArray[np.float64], tests: int) -> float:
    """The distance from the median beyond which a single run is doubted, in logarithms of time."""
    count = len(before)
    squares = float(((before - before.mean()) ** 2).sum())
    if count < FEW:  # the scatter's distribution is a scaled inverse chi-squared (Gelman and others, BDA, 2.6)
        free = SUPPOSED_RUNS + count - 1
        scatter = math.sqrt((SUPPOSED_RUNS * SUPPOSED_SCATTER**2 + squares) / free)
        return max(math.log(1 + FIXED), _student(BY_FEW / tests, free) * scatter * math.sqrt(1 + 1 / count))
    scatter = math.sqrt(squares / (count - 1) * (1 + 1 / count))
    return max(_student(BY_ONE / tests, count - 1) * scatter, float(abs(before - np.median(before)).max()))


def _student(both: float, free: int) -> float:
    """The critical value of Student's t. both: probability of both tails; free: degrees of freedom."""
    from scipy import special

    return float(-special.stdtrit(free, both / 2))


def _since(logs: NDArray[np.float64], level: _Level, now: int) -> list[int]:
    """The runs since the change, whose place is found by least squares. Times are clipped to the levels before and
    after the change, so that outliers do not move the place."""
    runs = level.runs[-BEFORE - KEPT :]
    least = max(1, len(runs) - KEPT)
    known = sum(one <= now - LATEST for one in runs) or 1
    ends = float(np.median(logs[runs[:known]])), float(np.median(logs[runs[-3:]]))
    steps = np.clip(logs[runs], min(ends), max(ends))

    def between(cut: int) -> float:
        apart = float(steps[cut:].mean() - steps[:cut].mean())
        return apart * apart * cut * (len(runs) - cut)

    return runs[max(range(least, len(runs)), key=between) :]
