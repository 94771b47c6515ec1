"""Judge if the time of a run differs from earlier runs in a series, given their scatter and drift.

Two tests must agree that the last 3, 4 or 5 runs differ from the ones before. Mann and Whitney's U (Annals of
Mathematical Statistics 18, 1947) keeps the false-alarm rate for any distribution of the noise, but takes a drift for a
change. Student's t of a step beside a line (analysis of covariance: Fisher, Statistical Methods for
Research Workers, 4th edition, 1932) gives as many as asked for, whatever the drift, but knows of normal noise only, and
of runs that do not depend on each other: where they do, they count for fewer (Bayley and Hammersley, Supplement to the
Journal of the Royal Statistical Society 8, 1946). Whether one run alone differs is told by Student's interval of
prediction; he does not know how heavy the tails are, so it is asked for far fewer alarms, and a run that is less than
twice as far off as one before is none. benchmarks/gate_histories.py counts all of this on simulated histories.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np
from numpy.typing import NDArray

# Number of latest runs that are compared with earlier ones, and each number's part of the false-alarm rate.
LATEST: Final = {3: 0.25, 4: 0.25, 5: 0.5}
# Two-sided, of one run: half of them are slower. The two tests rarely err together, but one holds alone where the other
# does not know the noise.
BY_RANKS, BY_LINE = 1 / 100, 1 / 125
BY_ONE: Final = 2e-6
TAIL: Final = 2  # one run is a change only if it is this many times as far from the level as any earlier run
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
    limit: float  # the time above which one run alone has changed
    p_value: float | None = None  # the larger of the two tests' p values; None if one run alone was judged

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
    middle, limit = float(np.median(logs[before])), _limit(logs[before], tests)
    most = math.exp(middle + limit)
    if abs(logs[now] - middle) > limit:
        since = [now] if level.changed is None else _since(logs, level, now)
        return Found([one for one in before if one < since[0]], since, most)
    for end, part in _ends(known, now):
        if (p_value := _by_latest(logs, level, end, part / tests)) is not None:
            since = _since(logs, level, now)
            return Found([one for one in level.runs if one < since[0]][-BEFORE:], since, most, p_value)
    return Found(before, [], most)


def _ends(known: int, now: int) -> list[tuple[int, float]]:
    """The first of the latest runs, and the part of the false alarms: LATEST, and since a change that is known."""
    ends = {now + 1 - count: part for count, part in LATEST.items() if now + 1 - count <= known}
    return list(ends.items()) or [(known, max(LATEST.values()))]


def _by_latest(logs: NDArray[np.float64], level: _Level, end: int, part: float) -> float | None:
    """The larger p value, if both tests say that the runs from `end` on differ from earlier runs; else None."""
    from scipy import stats

    before = [one for one in level.runs if one < end][-BEFORE:]
    latest = [one for one in level.runs if one >= end]
    if 2 / math.comb(len(before) + len(latest), len(latest)) > BY_RANKS * part:
        return None  # so few runs cannot reach significance
    line = _by_line(logs, before, latest)
    if not line <= BY_LINE * part:
        return None
    ranks = float(stats.mannwhitneyu(logs[latest], logs[before], method="exact").pvalue)
    return max(line, ranks) if ranks <= BY_RANKS * part else None


def _by_line(logs: NDArray[np.float64], before: list[int], latest: list[int]) -> float:
    """The p value of a step between the runs, fitted together with a linear drift."""
    from scipy import special

    runs = np.asarray([*before, *latest])
    table = np.column_stack([np.ones(len(runs)), runs - runs[0], runs >= latest[0]]).astype(float)
    inverse = np.linalg.inv(table.T @ table)
    found = inverse @ table.T @ logs[runs]
    rest = logs[runs] - table @ found
    free, squares = len(runs) - table.shape[1], float(rest @ rest)
    if free < 1 or squares == 0:
        return 0.0 if free > 0 and found[2] else 1.0
    alike = min(0.9, max(0.0, float(rest[1:] @ rest[:-1]) / squares + 1 / len(runs)))  # what a fit takes away is 1 / n
    count = len(latest)
    fewer = 1 + 2 * sum((1 - lag / count) * alike**lag for lag in range(1, count))
    error = math.sqrt(squares / free * inverse[2, 2] * fewer)
    return float(2 * special.stdtr(free, -abs(found[2]) / error))


def _limit(before: NDArray[np.float64], tests: int) -> float:
    """The allowed distance of one run from the median, in logarithms of time."""
    count = len(before)
    squares = float(((before - before.mean()) ** 2).sum())
    if count < FEW:  # the scatter's distribution is a scaled inverse chi-squared (Gelman and others, BDA, 2.6)
        free = SUPPOSED_RUNS + count - 1
        scatter = math.sqrt((SUPPOSED_RUNS * SUPPOSED_SCATTER**2 + squares) / free)
        return max(math.log(1 + FIXED), _student(BY_FEW / tests, free) * scatter * math.sqrt(1 + 1 / count))
    scatter = math.sqrt(squares / (count - 1) * (1 + 1 / count))
    furthest = float(abs(before - np.median(before)).max())
    return max(_student(BY_ONE / tests, count - 1) * scatter, TAIL * furthest)


def _student(both: float, free: int) -> float:
    """The two-sided critical value of Student's t: probability `both`, `free` degrees of freedom."""
    from scipy import special

    return float(-special.stdtrit(free, both / 2))


def _since(logs: NDArray[np.float64], level: _Level, now: int) -> list[int]:
    """The runs since the change, placed by least squares. Times are clipped to the two levels, so that outliers do not
    decide."""
    runs = level.runs[-BEFORE - KEPT :]
    least = max(1, len(runs) - KEPT)
    known = sum(one <= now - max(LATEST) for one in runs) or 1
    ends = float(np.median(logs[runs[:known]])), float(np.median(logs[runs[-min(LATEST) :]]))
    steps = np.clip(logs[runs], min(ends), max(ends))

    def between(cut: int) -> float:
        apart = float(steps[cut:].mean() - steps[:cut].mean())
        return apart * apart * cut * (len(runs) - cut)

    return runs[max(range(least, len(runs)), key=between) :]
