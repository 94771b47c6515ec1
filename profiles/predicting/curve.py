"""Efficiency on more GPUs, from throughput measured on fewer (docs/reference/measures.md, "Prediction").

The loss of N GPUs, relative to the smallest size measured, n1:

    L(N) = T(N) / T(n1) - 1 = c ((N / n1)^growth - 1)        efficiency = 1 / (1 + L)

c is what the other measured sizes tell (least squares), drawn towards the loss that is typical of published tables,
since a single size is measured to about a percent and often loses nothing. `growth`, the typical c and the trust in
one's own sizes minimise the mean error over published tables of 1 to 64 GPUs; the errors are of tables left out of
the choice (benchmarks/published_scaling.py).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from ..ground.errors import RingscopeError

# 9 in 10 published points up to this many times the largest measured size lie in the interval.
CALIBRATED_TIMES = 8
# No published table loses more than 5.7 % by its first doubling (AlexNet on P100, 94.7 %).
MOST_BY_DOUBLING = 0.06
# A size is measured to about a percent: published ones reach 100.6 %.
MOST_EFFICIENT = 1.02
MOST_GPUS, MOST_PER_S = 1_000_000, 1e15  # what is asked for beyond is a slip of the keyboard


@dataclass(frozen=True, slots=True)
class Constants:
    growth: float
    typical: float  # c of published tables
    trust: float  # 0..1, in the sizes measured
    half_width: float  # of the interval, in efficiency


CONSTANTS = Constants(growth=0.3, typical=0.02, trust=0.7, half_width=0.05)


@dataclass(frozen=True, slots=True)
class Point:
    """Throughput over all GPUs, in samples or anything else a second."""

    gpus: int
    per_s: float


@dataclass(frozen=True, slots=True)
class Expected:
    """Efficiency relative to the smallest size measured, and the interval that 9 in 10 such predictions keep."""

    gpus: int
    per_s: float
    efficiency: float
    low: float
    high: float
    calibrated: bool  # False: further out than any published table tells


def predict(points: Sequence[Point], gpus: Sequence[int], constants: Constants = CONSTANTS) -> list[Expected]:
    """Predict each of these counts of GPUs. Raises RingscopeError for fewer than two sizes, or bad ones."""
    measured = _sorted(points)
    first, largest = measured[0], measured[-1]
    loss = _loss_per_growth(measured, constants)
    found = []
    for count in gpus:
        if not first.gpus <= count <= MOST_GPUS:
            raise RingscopeError(f"prediction is for {first.gpus} to {MOST_GPUS:,} GPUs, not {count}")
        efficiency = 1 / (1 + loss * _grown(count / first.gpus, constants.growth))
        times = max(count / largest.gpus, 1.0)
        wider = max(1.0, math.log2(times) / math.log2(CALIBRATED_TIMES))
        half = constants.half_width * wider
        found.append(
            Expected(
                gpus=count,
                per_s=efficiency * count * first.per_s / first.gpus,
                efficiency=efficiency,
                low=max(efficiency - half, 0.0),
                high=max(min(efficiency + half, 1.0), efficiency),
                calibrated=times <= CALIBRATED_TIMES,
            )
        )
    return found


def worth_adding(points: Sequence[Point], *, share: float = 0.5, most: int = 4096) -> int | None:
    """The smallest count of GPUs at which one more adds less than `share` of what one GPU of the smallest size does.

    None: every GPU up to `most` adds more.
    """
    first = _sorted(points)[0]
    floor = share * first.per_s / first.gpus
    counts = range(first.gpus, most + 2)
    rates = [one.per_s for one in predict(points, counts)]
    return next((n for n, a, b in zip(counts, rates, rates[1:], strict=False) if b - a < floor), None)


def disagreeing(points: Sequence[Point]) -> Point | None:
    """The size that loses more than its doublings can explain in any published table, while it is next to the
    smallest: most likely a run that went wrong, and worth measuring again before anything is concluded from it."""
    first, second = _sorted(points)[:2]
    loss = 1 - second.per_s / second.gpus / (first.per_s / first.gpus)
    doublings = math.log2(second.gpus / first.gpus)
    return second if loss > MOST_BY_DOUBLING * max(doublings, 1) else None


def above_linear(points: Sequence[Point]) -> list[Point]:
    """The sizes that do over MOST_EFFICIENT times the smallest, per GPU."""
    first, *others = _sorted(points)
    return [one for one in others if one.per_s / one.gpus > MOST_EFFICIENT * first.per_s / first.gpus]


def _sorted(points: Sequence[Point]) -> list[Point]:
    by_gpus = {point.gpus: point for point in points}
    if len(by_gpus) < 2 or len(by_gpus) != len(points):
        raise RingscopeError(
            "prediction needs the throughput of two counts of GPUs or more, each once; measure 1 and 2"
        )
    if any(point.gpus < 1 or not point.per_s > 0 for point in points):
        raise RingscopeError("prediction needs positive counts of GPUs and throughputs")
    if any(point.gpus > MOST_GPUS or point.per_s > MOST_PER_S for point in points):
        raise RingscopeError(f"prediction is for {MOST_GPUS:,} GPUs and {MOST_PER_S:g} samples/s at most")
    return [by_gpus[gpus] for gpus in sorted(by_gpus)]


def _grown(times: float, growth: float) -> float:
    return float(times**growth - 1)


def _loss_per_growth(measured: Sequence[Point], constants: Constants) -> float:
    """c: least squares over the measured sizes (a gain counts as no loss), drawn towards the typical one."""
    first = measured[0]
    grown = [_grown(point.gpus / first.gpus, constants.growth) for point in measured[1:]]
    lost = [max(point.gpus * first.per_s / point.per_s / first.gpus - 1, 0.0) for point in measured[1:]]
    own = sum(g * y for g, y in zip(grown, lost, strict=True)) / sum(g * g for g in grown)
    return constants.trust * own + (1 - constants.trust) * constants.typical
