"""Predict a step on more ranks, from recordings on 1 and on 2 (docs/reference/measures.md, "Prediction").

    T(N) = T(1) + other + u(N) + s + w(N)

u(N): all-reduce time that compute does not hide. The all-reduces of a recorded step are replayed one after the other,
each with its time on N ranks (`replay`); if a step cannot be replayed, the unhidden share of the all-reduces is assumed
to be that on 2 ranks. An all-reduce on a ring takes 2 (N - 1) alpha + 2 (N - 1) / N S / beta (Thakur, Rabenseifner,
Gropp 2005). Recordings of 2 ranks give the sum, not the two terms: the estimate assumes that all of the sum is
bandwidth, the interval's upper end that all of it is latency. s + w(N): waiting for the slowest rank. s is the wait for
a rank that is always behind, and does not grow; w grows as the expected largest of N independent normal step times.
other: all further cost on 2 ranks, assumed to be constant.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from fractions import Fraction
from functools import cache
from typing import Any

from ..comparing.compare import likeness, other_work
from ..doubts.forecasts import step_over_100_percent
from ..gate.baseline import gpu_names
from ..ground.errors import RingscopeError
from ..measuring.subject import Subject
from ..model.collectives import OneStep
from ..model.measures import GpuMeasures, Measures
from ..model.timeline import Doubt
from ..runs.cell import AXES
from . import replay

SCHEMA = "ringscope.prediction/1"
SIGMAS = 2  # half-width of the interval in standard errors of the mean step times: about 95 %
# Settings that must be equal in the recordings of 1 and of 2 ranks.
_ALIKE = tuple(one.name for one in AXES if one.name != "ranks")


@dataclass(frozen=True, slots=True)
class Prediction:
    """The predicted step on `ranks` GPUs, with weak scaling. Efficiency = T(1) / T(N)."""

    ranks: int
    step_ns: int
    low_ns: int
    high_ns: int
    efficiency: float
    efficiency_low: float
    efficiency_high: float


@dataclass(frozen=True, slots=True)
class Measured:
    """The measured step on `ranks` GPUs, as mean over steps and GPUs, to compare a prediction with."""

    ranks: int
    step_ns: int


@dataclass(frozen=True, slots=True)
class Basis:
    """Numbers from the recordings on 2 ranks, in ns per step, averaged over both ranks."""

    overlap: str  # replayed, or share: compute hides the same share of the all-reduces as on 2 ranks
    unhidden_ns: int  # transfer time that compute does not hide
    straggling_ns: int  # waiting for a rank that is always behind
    varying_ns: int  # waiting because steps vary


@dataclass(frozen=True, slots=True)
class _Means:
    """ns per step, averaged over the GPUs of a run."""

    step: float
    sigma_of_mean: float
    exposed: float  # exposed collectives, and waiting for other ranks before collectives are launched
    transfer: float | None
    waiting: float | None  # waiting for other ranks, a part of `exposed`


@dataclass(frozen=True, slots=True)
class Outlook:
    """The predictions asked for, their basis, and the measured step of a larger run to compare them with."""

    predictions: list[Prediction]
    basis: Basis
    measured: Measured | None = None

    @property
    def doubts(self) -> list[Doubt]:
        """A doubt if any efficiency is above 100 %: then the two recordings differ in more than the number of ranks."""
        over = [place for place, each in enumerate(self.predictions) if each.efficiency > 1]
        return [step_over_100_percent([f"/predictions/{place}/efficiency" for place in over])] if over else []

    def holds(self, prediction: Prediction) -> bool | None:
        """True if the measured step lies in the prediction's interval; None if no step was measured on that number of
        ranks."""
        if self.measured is None or self.measured.ranks != prediction.ranks:
            return None
        return prediction.low_ns <= self.measured.step_ns <= prediction.high_ns


def to_json(outlook: Outlook) -> dict[str, Any]:
    return {"schema": SCHEMA, **asdict(outlook), "doubts": [asdict(doubt) for doubt in outlook.doubts]}


def outlook(one: Subject, two: Subject, ranks: Sequence[int], larger: Subject | None = None) -> Outlook:
    """Predict a step on each of these counts of ranks, and on the number of ranks of `larger`, a run to compare with.

    Raises RingscopeError if the recordings lack needed numbers, or are of different work."""
    if one.measures is None or two.measures is None:
        needed = "prediction needs recordings; record the cell with ringscope record, on 1 rank and on 2"
        raise RingscopeError(one.unmeasured or two.unmeasured or needed)
    check_alike(one, two)
    if larger is None:
        return Outlook(*predict(one.measures, two.measures, ranks))
    check_alike(two, larger)
    if larger.measures is None:
        raise RingscopeError(
            f"{larger.label}: it has no recordings with which the prediction could be compared; give recordings of "
            "more than two ranks"
        )
    against = measured(larger.measures)
    return Outlook(*predict(one.measures, two.measures, sorted({*ranks, against.ranks})), against)


def check_alike(one: Subject, two: Subject) -> None:
    """Raises RingscopeError if two recordings differ in their settings, their GPUs or, where no record names the model
    of both, in their kernels."""
    unlike = likeness(one, two).unlike
    apart = [f"{name} {unlike[name][0]} and {unlike[name][1]}" for name in _ALIKE if name in unlike]
    names = [set(gpu_names(subject)) for subject in (one, two)]
    if names[0] != names[1]:
        apart.append(f"GPUs {', '.join(sorted(names[0]))} and {', '.join(sorted(names[1]))}")
    if why := other_work(one, two):
        apart.append(why)
    if apart:
        raise RingscopeError(
            f"{one.label} and {two.label} are of different runs ({'; '.join(apart)}), so they predict nothing; "
            "record the same training on 1 and on 2 ranks"
        )


def measured(measures: Measures) -> Measured:
    """The mean step of a recording, with its number of ranks. Raises RingscopeError if it has no steps."""
    return Measured(len(measures.gpus), round(_means(measures).step))


def predict(one: Measures, two: Measures, ranks: Sequence[int]) -> tuple[list[Prediction], Basis]:
    """Predict a step for each count of ranks (2 and up); also return the basis of the predictions.

    Raises RingscopeError if the recordings lack needed numbers."""
    if len(one.gpus) != 1 or len(two.gpus) != 2:
        found = f"{len(one.gpus)} and {len(two.gpus)}"
        raise RingscopeError(
            f"prediction needs a recording of 1 GPU and one of 2 GPUs, not of {found}; record -np 1 and -np 2"
        )
    first, second = _means(one), _means(two)
    if second.transfer is None or second.waiting is None:
        raise RingscopeError(
            "the recordings of the 2 ranks have no collectives in common, so the transfer of all-reduces is unknown; "
            "record both ranks of one run"
        )
    waiting = min(second.waiting, second.exposed)
    varying = _varying(two, waiting)
    steps = _replayed(two)
    basis = Basis(
        overlap="replayed" if steps else "share",
        unhidden_ns=round(second.exposed - waiting),
        straggling_ns=round(waiting - varying),
        varying_ns=round(varying),
    )
    constant = second.step - second.exposed + waiting - varying
    noise = SIGMAS * (first.sigma_of_mean**2 + second.sigma_of_mean**2) ** 0.5

    def predicted(count: int) -> Prediction:
        if count < 2:
            raise RingscopeError(f"prediction is for 2 ranks and up, not {count}; give larger numbers")
        base = constant + varying * expected_largest(count) / expected_largest(2)
        ends = (2 * (count - 1) / count, count - 1)
        bandwidth, latency = (base + _unhidden(second.exposed - waiting, steps, times) for times in ends)
        return _predicted(count, first.step, bandwidth, latency, noise)

    return list(map(predicted, ranks)), basis


def _varying(two: Measures, waiting: float) -> float:
    """ns of waiting on 2 ranks because step times vary: the expected larger of two normal numbers with the measured
    deviation, at most `waiting`; all of `waiting` if the deviation is not known."""
    deviations = [gpu.collectives.varies_ns for gpu in two.gpus]
    known = [one for one in deviations if one is not None]
    if len(known) < len(deviations):
        return waiting
    return min(waiting, statistics.fmean(known) * expected_largest(2))


def _replayed(two: Measures) -> list[OneStep]:
    """For each GPU one step to replay; [] if any GPU's step cannot be replayed."""
    steps = [gpu.collectives.one_step for gpu in two.gpus]
    known = [step for step in steps if step is not None and replay.holds(step)]
    return known if len(known) == len(steps) else []


def _unhidden(on_two: float, steps: Sequence[OneStep], times: float) -> float:
    """ns per step of all-reduces that compute does not hide, if each all-reduce takes `times` as long as on 2 ranks."""
    if not steps:
        return on_two * times
    took = [[bucket.transfer_ns for bucket in step.buckets] for step in steps]
    more = [
        replay.exposed_ns(step, [ns * times for ns in own]) - replay.exposed_ns(step, own)
        for step, own in zip(steps, took, strict=True)
    ]
    return on_two + statistics.fmean(more)


def _predicted(ranks: int, one: float, bandwidth: float, latency: float, noise: float) -> Prediction:
    # A step on more ranks cannot be shorter than on one. If the recordings say so, the estimate is the interval's lower
    # end.
    low, high = min(max(bandwidth - noise, one - noise, 1.0), bandwidth), latency + noise
    return Prediction(
        ranks=ranks,
        step_ns=round(bandwidth),
        low_ns=round(low),
        high_ns=round(high),
        efficiency=one / bandwidth,
        efficiency_low=one / high,
        efficiency_high=one / low,
    )


@cache
def expected_largest(count: int) -> float:
    """Mean of the largest of `count` independent standard normal numbers."""
    from scipy import integrate, stats

    def density(x: float) -> float:
        return float(x * count * stats.norm.pdf(x) * stats.norm.cdf(x) ** (count - 1))

    return float(integrate.quad(density, -10, 10, limit=200)[0])


def _means(measures: Measures) -> _Means:
    for gpu in measures.gpus:
        if gpu.window != "steps" or not gpu.steps.count:
            raise RingscopeError(f"{gpu.title} has no steps ({gpu.steps.refused}); record with ringscope record")
    gpus = measures.gpus
    return _Means(
        step=_mean([gpu.span_ns for gpu in gpus], gpus),
        sigma_of_mean=max(_sigma_of_mean(gpu) for gpu in gpus),
        exposed=_mean([(gpu.ledger_ns["collective"] or 0) + (gpu.ledger_ns["idle_peers"] or 0) for gpu in gpus], gpus),
        transfer=_mean_known([gpu.collectives.transfer_ns for gpu in gpus], gpus),
        waiting=_mean_known([_waiting(gpu) for gpu in gpus], gpus),
    )


def _waiting(gpu: GpuMeasures) -> int | None:
    """ns of waiting for other ranks, inside collectives and before their launch."""
    measured = gpu.collectives
    # Measures of earlier versions lack exposed_waiting_ns: all waiting is used instead, an upper bound.
    inside = measured.waiting_ns if measured.exposed_waiting_ns is None else measured.exposed_waiting_ns
    return None if inside is None else inside + (gpu.ledger_ns["idle_peers"] or 0)


def _mean(totals: Sequence[int], gpus: Sequence[GpuMeasures]) -> float:
    each = [Fraction(total, gpu.steps.count) for total, gpu in zip(totals, gpus, strict=True)]
    return float(sum(each) / len(each))


def _mean_known(totals: Sequence[int | None], gpus: Sequence[GpuMeasures]) -> float | None:
    known = [total for total in totals if total is not None]
    return _mean(known, gpus) if len(known) == len(gpus) else None


def _sigma_of_mean(gpu: GpuMeasures) -> float:
    """The standard error of the mean step time, in ns; 0 with fewer than 2 steps. Outliers count, since they count in
    the predicted mean, too."""
    lengths = [row.end_ns - row.start_ns for row in gpu.steps.rows]
    return statistics.stdev(lengths) / len(lengths) ** 0.5 if len(lengths) > 1 else 0.0
