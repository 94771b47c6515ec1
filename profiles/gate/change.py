"""Judge if the time of a run differs from earlier runs in a series, given their scatter and drift.

Three tests must agree that the last five runs differ from the ones before. Mann and Whitney's U (Annals of Mathematical
Statistics 18, 1947) keeps the false-alarm rate for any distribution of the noise, but takes a drift for a change.
Student's t of a step beside a line (analysis of covariance: Fisher, Statistical Methods for Research Workers, 4th
edition, 1932), with outliers clipped (winsorized: Dixon, Annals of Mathematical Statistics 31, 1960), knows drifts, but
normal noise only. Both suppose runs that do not depend on each other. Where they do, runs count for fewer (Bayley and
Hammersley, Supplement to the Journal of the Royal Statistical Society 8, 1946); and the five must be further off than
any five in a row before, which depend on each other as much (moving blocks: Kuensch, Annals of Statistics 17, 1989).

Few runs before cannot tell one run from an outlier: it is doubted, and is a change if it is far off, or if the next run
is off as well. benchmarks/gate_histories.py counts all of this on simulated histories.
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
# Two-sided, of the latest runs: half of them are slower. Tests rarely err together, but one holds alone where others do
# not know the noise.
BY_RANKS, BY_LINE = 1 / 100, 1 / 150
CLIPPED: Final = 3  # standard deviations (by the median absolute deviation) beyond which a run is an outlier
# How many times as far off as any before the latest runs must be. With few before, chance may be as far off.
FURTHER, SHORT = 1.5, 40
AGAIN: Final = 0.1  # a change that was told is told again at this part of the false alarms: its runs add up
BY_ONE: Final = 1 / 1000  # two-sided, of one run, which is then doubted
FAR: Final = 0.5  # one run alone is a change if it is off by so much
FEW: Final = 10  # with fewer earlier runs the tails of their noise are unknown
FIXED: Final = 0.05  # what a run may then differ from their median, as from a baseline; more where they scatter more
# How much they scatter is known badly: as if of these many runs before them, with this scatter, two-sided.
BY_FEW, SUPPOSED_RUNS, SUPPOSED_SCATTER = 1 / 200, 8, 0.015
BEFORE: Final = 50  # most earlier runs that a run is compared with
KEPT: Final = 10  # number of runs that report a change; later runs are compared with the new level


@dataclass(frozen=True, slots=True)
class Found:
    """Judgement of the last run of a series. Runs are given by their index in the series."""

    before: list[int]  # the runs that it was compared with; empty for a first run
    since: list[int]  # the runs since the change, the last among them; empty where there is none
    limit: float  # the time above which one run alone is doubted
    p_value: float | None = None  # the larger of the tests' p values; None if runs were judged one by one
    doubted: bool = False  # the run is beyond the limit, and the next run must tell if that is a change

    @property
    def by_scatter(self) -> bool:
        return len(self.before) >= FEW


@dataclass(slots=True)
class _Level:
    """The runs that later ones are compared with, and the first run of a change that is still reported."""

    runs: list[int] = field(default_factory=list)
    changed: int | None = None


def last(times: Sequence[float], tests: int = 1) -> Found:
    """Judge the last of at least one run, each time above 0. tests: series that share the false alarms asked for."""
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
    elif level.changed is not None:  # it went back: several changed runs are left out, a single one is kept as noise
        if now - level.changed > 1:
            level.runs = [one for one in level.runs if one < level.changed or one == now]
        level.changed = None


def _judged(logs: NDArray[np.float64], level: _Level, now: int, tests: int) -> Found:
    known = now if level.changed is None else level.changed  # the level of runs from here on is not known
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
    """The distance of a run from the median of earlier ones, in logarithms of time; 0 if that is within the limit."""
    if not before:
        return 0.0
    off = float(logs[run] - np.median(logs[before]))
    return off if abs(off) > _limit(logs[before], tests) else 0.0


def _by_latest(logs: NDArray[np.float64], level: _Level, end: int, part: float) -> float | None:
    """The larger p value, if all tests say that the runs from `end` on differ from earlier runs; else None."""
    from scipy import stats

    before = [one for one in level.runs if one < end][-BEFORE:]
    latest = [one for one in level.runs if one >= end]
    if 2 / math.comb(len(before) + len(latest), len(latest)) > BY_RANKS * part:
        return None  # so few runs cannot reach significance
    line = _by_line(logs, before, latest)
    most = _most(logs[before])
    if not line <= BY_LINE * part or not _further(_clipped(logs[before], most), _clipped(logs[latest], most)):
        return None
    ranks = float(stats.mannwhitneyu(logs[latest], logs[before], method="exact").pvalue)
    return max(line, ranks) if ranks <= BY_RANKS * part else None


def _further(before: NDArray[np.float64], latest: NDArray[np.float64]) -> bool:
    """True if the latest runs' mean is further off than the mean of any of as many runs in a row before."""
    count, middle = min(len(latest), LATEST, len(before)), float(np.median(before))
    means = np.convolve(before, np.full(count, 1 / count), "valid")
    times = max(FURTHER, SHORT / len(before))
    return bool(abs(latest.mean() - middle) > times * abs(means - middle).max())


def _by_line(logs: NDArray[np.float64], before: list[int], latest: list[int]) -> float:
    """The p value of a step between the runs, fitted together with a linear drift; outliers are clipped."""
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
    alike = min(0.9, max(0.0, float(rest[1:] @ rest[:-1]) / squares + 2 / len(runs)))  # a fit with a drift takes 2 / n
    count = len(latest)
    fewer = 1 + 2 * sum((1 - lag / count) * alike**lag for lag in range(1, count))
    error = math.sqrt(squares / free * inverse[2, 2] * fewer)
    return float(2 * special.stdtr(free, -abs(found[2]) / error))


def _most(before: NDArray[np.float64]) -> float:
    """The distance from their median beyond which runs are outliers."""
    return CLIPPED * MAD_TO_SIGMA * float(np.median(abs(before - np.median(before))))


def _clipped(logs: NDArray[np.float64], most: float) -> NDArray[np.float64]:
    """Runs that are off their median by at most `most`; without a scatter (0) they stay as they are."""
    middle = float(np.median(logs))
    return np.clip(logs, middle - most, middle + most) if most else logs


def _limit(before: NDArray[np.float64], tests: int) -> float:
    """The distance from the median from which on one run is doubted, in logarithms of time."""
    count = len(before)
    squares = float(((before - before.mean()) ** 2).sum())
    if count < FEW:  # the scatter's distribution is a scaled inverse chi-squared (Gelman and others, BDA, 2.6)
        free = SUPPOSED_RUNS + count - 1
        scatter = math.sqrt((SUPPOSED_RUNS * SUPPOSED_SCATTER**2 + squares) / free)
        return max(math.log(1 + FIXED), _student(BY_FEW / tests, free) * scatter * math.sqrt(1 + 1 / count))
    scatter = math.sqrt(squares / (count - 1) * (1 + 1 / count))
    return max(_student(BY_ONE / tests, count - 1) * scatter, float(abs(before - np.median(before)).max()))


def _student(both: float, free: int) -> float:
    """The two-sided critical value of Student's t: probability `both`, `free` degrees of freedom."""
    from scipy import special

    return float(-special.stdtrit(free, both / 2))


def _since(logs: NDArray[np.float64], level: _Level, now: int) -> list[int]:
    """The runs since the change, placed by least squares. Times are clipped to the two levels, so that outliers do not
    decide."""
    runs = level.runs[-BEFORE - KEPT :]
    least = max(1, len(runs) - KEPT)
    known = sum(one <= now - LATEST for one in runs) or 1
    ends = float(np.median(logs[runs[:known]])), float(np.median(logs[runs[-3:]]))
    steps = np.clip(logs[runs], min(ends), max(ends))

    def between(cut: int) -> float:
        apart = float(steps[cut:].mean() - steps[:cut].mean())
        return apart * apart * cut * (len(runs) - cut)

    return runs[max(range(least, len(runs)), key=between) :]
