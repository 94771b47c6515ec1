"""Results of a load test of a server: latency from the planned arrivals, throughput, and lost requests.

Also chooses the best batching limits for each request rate.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ..ground import numbers, stats
from . import batching
from .records import Best, Served

# The queue grows if the rate of answers is below this share of the planned rate. It is below 1 because the last
# answers come some ms after the last arrival.
KEEPS_UP = 0.95


@dataclass(frozen=True, slots=True)
class Answers:
    """The requests of a load test in the order of their planned arrivals. Times in ns from the test's begin."""

    due_ns: NDArray[np.int64]
    sent_ns: NDArray[np.int64]
    done_ns: NDArray[np.int64]
    good: NDArray[np.bool_]  # True if answered with status 200 and as many answers as samples
    wrong: NDArray[np.bool_]  # True if good, but the values are not the right ones for the sample
    batch: NDArray[np.int64]  # number of requests in this request's batch; 0: the server does not tell
    service_ns: NDArray[np.int64]  # time in which the model computed this request's batch


@dataclass(frozen=True, slots=True)
class Limits:
    """Batching limits of a server: at most `most` requests in a batch, gathered within `wait_ms`."""

    most: int
    wait_ms: float

    @property
    def wait_ns(self) -> int:
        return round(self.wait_ms * 1e6)


def served(
    answers: Answers, *, server: str, model: str, limits: Limits | None, asked_per_s: float, rule: str | None
) -> Served:
    """The row of one load test. For a server that was already running, `limits` and `rule` are None. `rule`: how the
    server counts the waiting limit, one of batching.RULES."""
    good = answers.good
    latency_ns = (answers.done_ns - answers.due_ns)[good]
    rate = _rate(answers.done_ns[good], int(answers.due_ns[0]), len(latency_ns)) if len(latency_ns) else None
    planned = _rate(answers.due_ns, int(answers.due_ns[0]), len(answers.due_ns))
    p50, p99 = stats.nearest_ranks(latency_ns, 50, 99) if len(latency_ns) else (None, None)
    told = good & (answers.batch > 0)
    alone = simulated(answers, limits, rule) if limits and rule and told.all() else None
    lost = int(np.count_nonzero(~good))
    return Served(
        server=server,
        model=model,
        most=limits.most if limits else None,
        wait_ms=limits.wait_ms if limits else None,
        asked_per_s=asked_per_s,
        requests=len(good),
        lost=lost,
        wrong=int(np.count_nonzero(answers.wrong)),
        answered_per_s=rate,
        p50_ns=p50,
        p99_ns=p99,
        max_ns=int(latency_ns.max()) if len(latency_ns) else None,
        keeps_up=not lost and rate is not None and (planned is None or rate >= KEEPS_UP * planned),
        late_p99_ns=stats.nearest_rank(answers.sent_ns - answers.due_ns, 99),
        mean_batch=float(np.count_nonzero(told) / np.sum(1 / answers.batch[told])) if told.any() else None,
        simulated_p50_ns=alone[0] if alone else None,
        simulated_p99_ns=alone[1] if alone else None,
    )


def _rate(times_ns: NDArray[np.int64], begin_ns: int, count: int) -> float | None:
    """Events per second from `begin_ns` to the last event; None if no time lies between."""
    span_ns = int(times_ns.max()) - begin_ns
    return count * 1e9 / span_ns if span_ns > 0 else None


def simulated(answers: Answers, limits: Limits, rule: str) -> tuple[int, int]:
    """p50 and p99 latency in ns, simulated: batching and model alone, without HTTP and JSON. The simulation takes the
    arrivals of `answers`, and for each batch size the median service time in `answers`."""
    sizes = {int(size) for size in np.unique(answers.batch)}
    seen = {size: int(np.median(answers.service_ns[answers.batch == size])) for size in sizes}
    found = batching.simulate(
        answers.due_ns, batching.service_times(seen), most=limits.most, wait_ns=limits.wait_ns, rule=rule
    )
    p50, p99 = stats.nearest_ranks(found.done_ns - answers.due_ns, 50, 99)
    return p50, p99


def best(rows: Sequence[Served]) -> list[Best]:
    """Choose the limits with the smallest p99 latency for each model and rate; p50 decides a tie. Limits at which the
    server did not keep up, or gave wrong answers, are not chosen."""
    groups: dict[tuple[str, float], list[Served]] = {}
    for row in rows:
        groups.setdefault((row.model, row.asked_per_s), []).append(row)
    return [_best(model, rate, some) for (model, rate), some in groups.items()]


def _best(model: str, rate: float, rows: Sequence[Served]) -> Best:
    good = [row for row in rows if row.keeps_up and not row.wrong]
    asked = f"{model} at " * bool(model) + numbers.per_s(rate, "requests")
    if not good:
        most = max((row.answered_per_s or 0.0 for row in rows), default=0.0)
        return Best(
            model,
            rate,
            None,
            None,
            f"{asked}: no measured setting keeps up; {numbers.per_s(most, 'requests')} were answered",
        )
    first = min(good, key=lambda row: (row.p99_ns or 0, row.p50_ns or 0))
    text = (
        f"{asked}: {limits_in_words(first.most, first.wait_ms)} give the lowest p99, {numbers.duration(first.p99_ns)} "
        f"and p50 {numbers.duration(first.p50_ns)}"
    )
    return Best(model, rate, first.most, first.wait_ms, text)


def limits_in_words(most: int | None, wait_ms: float | None) -> str:
    """Batching limits in words, such as `batches of up to 8 within 2 ms`."""
    if most is None or wait_ms is None:
        return "its own limits"
    return "batches of 1" if most == 1 else f"batches of up to {most} within {wait_ms:g} ms"


def from_json(data: Mapping[str, Sequence[int]]) -> Answers:
    """Read the columns of a load test, which harness.inference.load wrote."""
    numbers_of = {
        name: np.array(data[name], np.int64) for name in ("due_ns", "sent_ns", "done_ns", "batch", "service_ns")
    }
    return Answers(**numbers_of, good=np.array(data["good"], bool), wrong=np.array(data["wrong"], bool))
