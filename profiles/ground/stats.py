"""Statistics of few launches: median, spread, confidence intervals, ratios, and the difference of two samples.

A sample consists of whole launches, since the steps of one launch are not independent measurements.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

# MAD_TO_SIGMA x the median absolute deviation (MAD) of a normal distribution is its standard deviation: 1 /
# Phi^-1(3/4).
MAD_TO_SIGMA = 1.4826
CONFIDENCE = 0.95
SIX = 6  # fewest launches whose minimum and maximum enclose the median with 95 %: 1 - 2 / 2^6 = 0.969


@dataclass(frozen=True, slots=True)
class Spread:
    """A quantity measured in `count` launches: its median, and a confidence interval from `low` to `high`.

    The interval holds the true median with probability `coverage`, whatever the distribution: both ends are
    observed values, and the chance that all of n launches lie on one side of the median is 2 / 2^n.
    """

    count: int
    median: float
    low: float
    high: float
    coverage: float
    sigma: float | None  # 1.4826 x MAD; None for a single launch

    @property
    def interval(self) -> str:
        """Name of the interval's kind: `min..max` below 6 launches, else `order statistics`."""
        return "min..max" if self.count < SIX else "order statistics"


@dataclass(frozen=True, slots=True)
class Ratio:
    """A quotient of two medians. `error` comes from the sigmas of both. The true quotient lies between `low` and `high`
    with probability `coverage` or more."""

    value: float
    error: float | None
    low: float
    high: float
    coverage: float


@dataclass(frozen=True, slots=True)
class Difference:
    """The difference of two samples, and whether this number of launches is enough to show it."""

    ratio: Ratio  # the second sample's median divided by the first's
    p_value: float  # of the two-sided Mann-Whitney U test
    least_p_value: float  # the smallest p-value that samples of these sizes can give
    delta: float  # Cliff's delta, -1..1: share of pairs with the second value larger, minus smaller

    @property
    def resolvable(self) -> bool:
        """True if samples of these sizes can give p <= 0.05 at all: at least 4 and 4 launches can."""
        return self.least_p_value <= 1 - CONFIDENCE

    @property
    def significant(self) -> bool:
        return self.p_value <= 1 - CONFIDENCE


def spread(values: Sequence[float]) -> Spread:
    """Median, confidence interval and 1.4826 x MAD of at least one value.

    The interval is the narrowest pair of order statistics (k-th smallest, k-th largest) that encloses the median
    with 95 % or more (David and Nagaraja, Order Statistics, section 7.1). Below 6 launches it is (minimum,
    maximum), whose coverage is smaller.
    """
    ordered = np.sort(np.asarray(values, dtype=float))
    count = len(ordered)
    if not count:
        raise ValueError("no value")
    median = float(np.median(ordered))
    rank, coverage = _interval(count)
    return Spread(
        count=count,
        median=median,
        low=float(ordered[rank - 1]),
        high=float(ordered[count - rank]),
        coverage=coverage,
        sigma=MAD_TO_SIGMA * float(np.median(np.abs(ordered - median))) if count > 1 else None,
    )


def _interval(count: int) -> tuple[int, float]:
    """(k, coverage) for the largest k with which [k-th smallest, k-th largest] encloses the median with 95 %; k is at
    least 1. The coverage is 1 - 2 P(Binomial(count, 1/2) < k)."""
    rank, ways, below = 1, 1, 1  # ways: `count` choose `rank - 1`; below: the sum of `ways` so far
    while 2 * (rank + 1) <= count:
        ways = ways * (count - rank + 1) // rank
        if 1 - 2 * (below + ways) / (1 << count) < CONFIDENCE:
            break
        rank, below = rank + 1, below + ways
    return rank, 1 - 2 * below / (1 << count)


def ratio(of: Spread, to: Spread, *, scale: float = 1.0) -> Ratio:
    """The ratio of two medians, times `scale`. Relative errors add in quadrature, because the samples are independent.

    The interval goes from of.low / to.high to of.high / to.low. By Bonferroni its coverage is at least
    `of.coverage + to.coverage - 1`.
    """
    value = of.median / to.median * scale
    error = None
    if of.sigma is not None and to.sigma is not None:
        error = abs(value) * math.hypot(of.sigma / of.median, to.sigma / to.median)
    return Ratio(
        value=value,
        error=error,
        low=of.low / to.high * scale,
        high=of.high / to.low * scale,
        coverage=max(0.0, of.coverage + to.coverage - 1),
    )


def difference(first: Sequence[float], second: Sequence[float]) -> Difference:
    """Compare the second sample with the first. The test is exact for small samples without ties, as scipy chooses."""
    from scipy import stats

    test = stats.mannwhitneyu(second, first, alternative="two-sided", method="auto")
    pairs = len(first) * len(second)
    return Difference(
        ratio=ratio(spread(second), spread(first)),
        p_value=float(test.pvalue),
        least_p_value=2 / math.comb(len(first) + len(second), len(first)),
        delta=2 * float(test.statistic) / pairs - 1,
    )


def lasting(flags: NDArray[np.bool_], share: float = 0.9) -> int | None:
    """The index from which on at least `share` of the flags are True; None if there is none. Of several, the index for
    which the number of True flags exceeds that share by most."""
    until_end = np.cumsum(np.where(flags, 1.0, -round(share / (1 - share), 6))[::-1])[::-1]
    return int(until_end.argmax()) if len(until_end) and until_end.max() >= 0 else None


def all_along(tenths: Sequence[int]) -> bool:
    """True if an amount is spread over a time: most of the time's equal parts have some, and none has half of the
    amount. `tenths`: the amount in each part."""
    return 2 * sum(1 for one in tenths if one) > len(tenths) and 2 * max(tenths) < sum(tenths)


def nearest_rank(values: Sequence[int] | NDArray[np.int64], percent: int) -> int:
    """The percentile by nearest rank: the smallest value that at least `percent` % of the values do not exceed.
    `values` must not be empty."""
    return nearest_ranks(values, percent)[0]


def nearest_ranks(values: Sequence[int] | NDArray[np.int64], *percents: int) -> list[int]:
    """`nearest_rank` for several percentages."""
    places = [max(-(-percent * len(values) // 100), 1) - 1 for percent in percents]
    whole = values if isinstance(values, np.ndarray) else np.asarray(values, np.int64)
    found: list[int] = np.partition(whole, places)[places].tolist()
    return found
