"""Efficiency on more GPUs, from throughput measured on fewer (docs/reference/measures.md, "Prediction").

The time of a step on N GPUs (H hosts with n GPUs each), relative to a step on one GPU:

    T(N) = 1 + c (n / 2)^g + s (H / 2)^g          c where n > 1, s where H > 1

c is the loss from one GPU to two on one host, s the loss from one host to two; both grow with exponent g. This is a
Bayesian estimate: 5,000 curves (c, s, g) are weighted by a prior from published tables and by the likelihood of the
measured ratios, given the noise of a throughput. The estimate is the weighted median of the curves; the interval
contains nine tenths of the weight, and that noise. So if the loss between hosts was not measured, the interval is as
wide as that loss is in published tables.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from ..ground.errors import RingscopeError

Floats = npt.NDArray[np.float64]

USUAL_GPUS_PER_HOST = 8  # assumed GPUs of a host, as in DGX and HGX; a doubt says so
# Published tables reach 20 times the largest count used to predict, rarely more (benchmarks/published_scaling.py).
CALIBRATED_TIMES = 16
# Largest published loss from one GPU to two of one host: 14.5 %, TensorFlow 2.3's BERT on two V100.
MOST_BY_DOUBLING = 0.15
# Throughput is measured to about 1 %: published efficiencies reach 101 %.
MOST_EFFICIENT = 1.02
MOST_GPUS, MOST_PER_S = 1_000_000, 1e15  # larger numbers are refused as typing errors

# 5,000 quasi-random points in the unit cube, evenly spread (powers of the root of x^4 = x + 1).
_SPREAD = np.modf(np.outer(1.2207440846057596 ** -np.arange(1.0, 4.0), np.arange(1, 5001)))[0]
_BLURRED = (4, 2, 1, 1)  # noise assumed in each round of refining the grid, relative to the noise in the last round
_SEEN = 1e-3  # share of the weight that may lie below the next round's grid, and the same share above it
_NINE_TENTHS = 1.645  # standard deviations on either side


@dataclass(frozen=True, slots=True)
class Constants:
    """The prior. c and s are half-Cauchy distributed, so their medians are the scales."""

    inside: float  # scale of c
    step: float  # scale of s
    growth: float  # mean of g, a normal distribution cut to 0..MOST_GROWTH
    spread: float  # standard deviation of g
    noise: float  # standard deviation of a published ratio of throughputs


MOST_GROWTH = 1.5
CONSTANTS = Constants(inside=0.02, step=0.06, growth=0.3, spread=0.5, noise=0.035)


@dataclass(frozen=True, slots=True)
class Point:
    """Throughput over all GPUs, per second, in samples or any other unit."""

    gpus: int
    per_s: float


@dataclass(frozen=True, slots=True)
class Expected:
    """Efficiency relative to the smallest size measured, with a 90 % interval."""

    gpus: int
    per_s: float
    efficiency: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class _Grid:
    """Curves (c, s, g) and their weights, which sum to 1; curves of negligible weight are left out."""

    c: Floats
    s: Floats
    g: Floats
    weight: Floats

    def times(self, gpus: int, per_host: int) -> Floats:
        """T(gpus) of every curve, relative to one GPU."""
        inside, hosts = min(gpus, per_host), -(-gpus // per_host)
        found = np.ones(self.c.size)
        if inside > 1:
            found += self.c * (inside / 2) ** self.g
        if hosts > 1:
            found += self.s * (hosts / 2) ** self.g
        return found

    def quantiles(self, values: Floats, shares: Sequence[float]) -> list[float]:
        order = np.argsort(values)
        weight = self.weight[order]
        places = np.searchsorted(np.cumsum(weight), shares).clip(max=order.size - 1)
        return [float(one) for one in values[order][places]]


def predict(
    points: Sequence[Point],
    gpus: Sequence[int],
    gpus_per_host: int = USUAL_GPUS_PER_HOST,
    constants: Constants = CONSTANTS,
) -> list[Expected]:
    """Predict the efficiency on each of these counts of GPUs. GPUs fill one host before they use the next.

    Raises RingscopeError for fewer than two sizes, or values out of range."""
    measured = _sorted(points)
    first = measured[0]
    for count in gpus:
        if not first.gpus <= count <= MOST_GPUS:
            raise RingscopeError(
                f"prediction is for {first.gpus} to {MOST_GPUS:,} GPUs, not {count}; ask for numbers in this range"
            )
    grid = _weighed(tuple(measured), gpus_per_host, constants)
    found = []
    for count in gpus:
        shares = grid.times(first.gpus, gpus_per_host) / grid.times(count, gpus_per_host)
        low, efficiency, high = grid.quantiles(shares, (0.05, 0.5, 0.95))
        noise = _NINE_TENTHS * constants.noise * efficiency
        found.append(
            Expected(
                gpus=count,
                per_s=efficiency * count * first.per_s / first.gpus,
                efficiency=efficiency,
                low=max(efficiency - math.hypot(efficiency - low, noise), 0.0),
                high=min(efficiency + math.hypot(high - efficiency, noise), 1.0),
            )
        )
    return found


def worth_adding(points: Sequence[Point], gpus_per_host: int = USUAL_GPUS_PER_HOST, *, most: int = 4096) -> int | None:
    """The count of GPUs from which another GPU adds less than half of a GPU's throughput at the smallest size; None if
    GPUs still add more at `most`.

    Only doublings are compared, since one more host may lose throughput that further hosts regain."""
    first = _sorted(points)[0]
    counts = [first.gpus << doubling for doubling in range((most // first.gpus).bit_length())]
    rates = [one.per_s for one in predict(points, counts, gpus_per_host)]
    floor = first.per_s / first.gpus / 2
    steps = zip(counts, counts[1:], rates, rates[1:], strict=False)
    pays = [more - less >= floor * (b - a) for a, b, less, more in steps]
    last = max((at for at, one in enumerate(pays) if one), default=-1)
    return None if last == len(pays) - 1 else counts[last + 1]


def disagreeing(points: Sequence[Point], gpus_per_host: int = USUAL_GPUS_PER_HOST) -> Point | None:
    """The second smallest size, if it fits on one host and loses more than any published table shows for as many
    doublings; else None. The run of that size most likely went wrong, and should be measured again. Between hosts
    published losses have no limit."""
    first, second = _sorted(points)[:2]
    loss = 1 - second.per_s / second.gpus / (first.per_s / first.gpus)
    doublings = math.log2(second.gpus / first.gpus)
    inside = second.gpus <= gpus_per_host
    return second if inside and loss > MOST_BY_DOUBLING * max(doublings, 1) else None


def above_linear(points: Sequence[Point]) -> list[Point]:
    """The sizes whose throughput per GPU exceeds MOST_EFFICIENT times that of the smallest size."""
    first, *others = _sorted(points)
    return [one for one in others if one.per_s / one.gpus > MOST_EFFICIENT * first.per_s / first.gpus]


def _sorted(points: Sequence[Point]) -> list[Point]:
    by_gpus = {point.gpus: point for point in points}
    if len(by_gpus) < 2 or len(by_gpus) != len(points):
        raise RingscopeError(
            "prediction needs the throughput on two numbers of GPUs or more, and each number once; measure 1 and 2 GPUs"
        )
    if any(point.gpus < 1 or not point.per_s > 0 for point in points):
        raise RingscopeError("prediction needs counts of GPUs and throughputs above 0; give others")
    if any(point.gpus > MOST_GPUS or point.per_s > MOST_PER_S for point in points):
        raise RingscopeError(f"prediction is for {MOST_GPUS:,} GPUs and {MOST_PER_S:g} samples/s at most; give others")
    return [by_gpus[gpus] for gpus in sorted(by_gpus)]


@lru_cache(64)
def _weighed(measured: tuple[Point, ...], per_host: int, constants: Constants) -> _Grid:
    """Weigh the curves by these points: first on the whole range, then on ever smaller ranges around most of the
    weight."""
    scales = (constants.inside, constants.step)
    spans = [*((math.log(scale * 1e-2), math.log(scale * 1e3)) for scale in scales), (0.0, MOST_GROWTH)]
    for blurred in _BLURRED:
        axes = [start + (end - start) * share for (start, end), share in zip(spans, _SPREAD, strict=True)]
        grid = _Grid(np.exp(axes[0]), np.exp(axes[1]), axes[2], np.ones(axes[0].size))
        odds = _before(grid, constants) + _likelihood(grid, measured, per_host, blurred * constants.noise)
        weight = np.exp(odds - odds.max())
        grid = _Grid(grid.c, grid.s, grid.g, weight / weight.sum())
        ends = [grid.quantiles(axis, (_SEEN, 1 - _SEEN)) for axis in axes]
        spans = [
            (max(start, low - (end - start) / 16), min(end, high + (end - start) / 16))
            for (start, end), (low, high) in zip(spans, ends, strict=True)
        ]
    kept = grid.weight > 1e-6 * grid.weight.max()
    return _Grid(grid.c[kept], grid.s[kept], grid.g[kept], grid.weight[kept] / grid.weight[kept].sum())


def _before(grid: _Grid, constants: Constants) -> Floats:
    """Logarithm of the prior density of each curve, over log c, log s and g."""
    c, s = grid.c / constants.inside, grid.s / constants.step
    found: Floats = (
        np.log(c / (1 + c**2)) + np.log(s / (1 + s**2)) - ((grid.g - constants.growth) / constants.spread) ** 2 / 2
    )
    return found


def _likelihood(grid: _Grid, measured: Sequence[Point], per_host: int, noise: float) -> Floats:
    """Log-likelihood of each curve, given the measured ratios of throughput to the smallest size."""
    first, *others = measured
    base = grid.times(first.gpus, per_host)
    found = np.zeros(grid.c.size)
    for point in others:
        times = math.log(point.gpus / first.gpus) + math.log(first.per_s / point.per_s)
        found -= ((times - np.log(grid.times(point.gpus, per_host) / base)) / noise) ** 2 / 2
    return found
