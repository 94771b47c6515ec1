"""The time of each run of a series: has it changed, judged by the scatter and the drift of the runs before?

Two tests look at each run. Whether the last 3, 4 or 5 runs differ from the ones before is told by Mann and Whitney's U
(Annals of Mathematical Statistics 18, 1947), whose false alarms are as many as asked for, whatever the distribution.
Whether one run alone does is told by Student's interval of prediction, which knows of normal noise only and is asked
for far fewer alarms therefore. A drift is a slope by Kendall's tau; what it may have done since (Theil and Sen's
slope, the steep end of its interval) is no change. benchmarks/gate_histories.py counts both on simulated histories.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np
from numpy.typing import NDArray

LATEST: Final = (3, 4, 5)  # runs since a change, which are held against the ones before
# Two-sided, of one run: by all of LATEST together, and by the run alone. A quarter of 1 in 200: a
# false alarm lasts some runs, and drift and tails add to it.
BY_LATEST, BY_ONE = 1 / 800, 1e-5
DRIFTS: Final = 0.05  # the p value from which on a slope is a drift
STEEPEST: Final = 0.9  # the confidence of the slope's interval
FEW: Final = 10  # runs before, below which nothing is known of their scatter
FIXED: Final = 0.05  # what a run may then differ from their median, as from a baseline; more where they scatter more
BEFORE: Final = 50  # most runs that one is held against
KEPT: Final = 10  # runs for which a change is told; then the new level is what later runs are held against


@dataclass(frozen=True, slots=True)
class Found:
    """Judgement of the last run of a series. Numbers are places in the series."""

    before: list[int]  # the runs it was held against; empty for a first run
    since: list[int]  # the runs since the change, the last among them; empty where there is none
    limit: float  # the time above which one run alone has changed
    p_value: float | None = None  # of Mann and Whitney's test; None where one run told

    @property
    def by_scatter(self) -> bool:
        return len(self.before) >= FEW


@dataclass(slots=True)
class _Level:
    """The runs that later ones are held against, and where they changed, as long as that is told."""

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
    elif level.changed is not None:  # it went back: several runs in between were no noise, one is its tail
        if now - level.changed > 1:
            level.runs = [one for one in level.runs if one < level.changed or one == now]
        level.changed = None


def _judged(logs: NDArray[np.float64], level: _Level, now: int, tests: int) -> Found:
    known = now if level.changed is None else level.changed  # of runs from here on nobody knows the level
    before = [one for one in level.runs if one < known][-BEFORE:]
    if not before:
        return Found([], [], math.inf)
    residuals, apart = _apart(logs, before, [now])
    limit = _limit(residuals, tests)
    most = math.exp(float(logs[now] - apart[0]) + limit)
    if abs(apart[0]) > limit:
        since = [now] if level.changed is None else _since(logs, level, now)
        return Found([one for one in before if one < since[0]], since, most)
    for count in (*LATEST, now + 1 - known):
        if (p_value := _by_latest(logs, level, min(now + 1 - count, known), now, tests)) is not None:
            since = _since(logs, level, now)
            return Found([one for one in level.runs if one < since[0]][-BEFORE:], since, most, p_value)
    return Found(before, [], most)


def _by_latest(logs: NDArray[np.float64], level: _Level, end: int, now: int, tests: int) -> float | None:
    """The p value, if the runs from `end` on differ from the ones before; None if not."""
    from scipy import stats

    before = [one for one in level.runs if one < end][-BEFORE:]
    latest = [one for one in level.runs if one >= end]
    asked = BY_LATEST / len(LATEST) / tests
    if len(latest) < min(LATEST) or 2 / math.comb(len(before) + len(latest), len(latest)) > asked:
        return None  # as few cannot show it
    residuals, apart = _apart(logs, before, latest)
    found = float(stats.mannwhitneyu(apart, residuals, method="exact").pvalue)
    return found if found <= asked else None


def _apart(
    logs: NDArray[np.float64], before: list[int], latest: list[int]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Distances of the runs before from their own level, and of the latest, less what the drift may have done since."""
    slope, least, most = _drift(logs, before)
    levels = logs[before] - slope * (np.asarray(before) - before[-1])
    level, ahead = np.median(levels), np.asarray(latest) - before[-1]
    found = logs[latest] - slope * ahead - level
    up = np.median(found) > 0
    rest = found - ((most if up else least) - slope) * ahead
    return levels - level, rest if (np.median(rest) > 0) == up else np.zeros_like(rest)


def _drift(logs: NDArray[np.float64], before: list[int]) -> tuple[float, float, float]:
    """The slope per run, and the ends of its interval; 0 where there is none, or too few runs tell."""
    if len(before) < FEW:
        return 0.0, 0.0, 0.0
    from scipy import stats

    if not stats.kendalltau(before, logs[before]).pvalue < DRIFTS:  # nor where it is NaN, as of equal runs
        return 0.0, 0.0, 0.0
    slope, _, least, most = stats.theilslopes(logs[before], before, STEEPEST)
    return float(slope), float(least), float(most)


def _limit(residuals: NDArray[np.float64], tests: int) -> float:
    """The distance from the level that one run alone may have, as a logarithm."""
    count = len(residuals)
    if count < FEW:
        return max(math.log(1 + FIXED), 4 * float(residuals.std(ddof=1)) if count > 1 else 0.0)
    from scipy import stats

    return float(stats.t.isf(BY_ONE / tests / 2, count - 1) * residuals.std(ddof=1) * math.sqrt(1 + 1 / count))


def _since(logs: NDArray[np.float64], level: _Level, now: int) -> list[int]:
    """The runs since the change, by least squares. No run counts for more than the change is large, so no tail of the
    noise decides."""
    runs = level.runs[-BEFORE - KEPT :]
    least = max(1, len(runs) - KEPT)
    known = [one for one in runs if one <= now - max(LATEST)] or runs[:1]
    level_logs = logs[runs] - _drift(logs, known)[0] * (np.asarray(runs) - now)
    ends = float(np.median(level_logs[: len(known)])), float(np.median(level_logs[-min(LATEST) :]))
    steps = np.clip(level_logs, min(ends), max(ends))

    def between(cut: int) -> float:
        apart = float(steps[cut:].mean() - steps[:cut].mean())
        return apart * apart * cut * (len(runs) - cut)

    return runs[max(range(least, len(runs)), key=between) :]
