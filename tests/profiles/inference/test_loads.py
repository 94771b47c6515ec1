"""A load's row, by hand: latency from the planned arrival, what is lost, what keeps up, and the best limits."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

from profiles.inference import batching, loads
from profiles.inference.loads import Answers, Limits
from profiles.inference.records import Inference, Served
from tests.figures import figures

MS = 1_000_000


def answers(due_ms, done_ms, *, sent_ms=None, good=None, batch=None, service_ms=None) -> Answers:
    count = len(due_ms)

    def ns(values) -> np.ndarray:
        return np.array([round(value * MS) for value in values], np.int64)

    return Answers(
        due_ns=ns(due_ms),
        sent_ns=ns(due_ms if sent_ms is None else sent_ms),
        done_ns=ns(done_ms),
        good=np.array([True] * count if good is None else good),
        wrong=np.zeros(count, bool),
        batch=np.array([0] * count if batch is None else batch, np.int64),
        service_ns=ns([0] * count if service_ms is None else service_ms),
    )


def row(given: Answers, limits: Limits | None = None, rule: str | None = None) -> Served:
    return loads.served(given, server="s", model="m", limits=limits, asked_per_s=100.0, rule=rule)


def test_latency_counts_from_the_planned_arrival_not_from_when_it_was_sent() -> None:
    found = row(answers([0, 10, 20, 30], [5, 15, 60, 36], sent_ms=[0, 10, 55, 35]))
    assert (found.p50_ns, found.p99_ns, found.max_ns) == (5 * MS, 40 * MS, 40 * MS)
    assert found.late_p99_ns == 35 * MS


def test_percentiles_are_those_that_counting_gives() -> None:
    rng = np.random.default_rng(5)
    latency = rng.integers(1, 10**6, 997)
    due = np.arange(997) * 1000
    given = replace(answers([0] * 997, [0] * 997), due_ns=due, sent_ns=due, done_ns=due + latency)
    found = row(given)
    for percent, value in ((50, found.p50_ns), (99, found.p99_ns)):
        assert np.count_nonzero(latency <= value) >= percent * 997 / 100 > np.count_nonzero(latency < value)


def test_lost_requests_are_counted_and_are_no_latencies() -> None:
    found = row(answers([0, 10, 20, 30], [5, 9000, 25, 34], good=[True, False, True, True]))
    assert (found.requests, found.lost, found.max_ns, found.keeps_up) == (4, 1, 5 * MS, False)
    nothing = row(answers([0, 10], [1, 11], good=[False, False]))
    assert (nothing.lost, nothing.p50_ns, nothing.p99_ns, nothing.answered_per_s) == (2, None, None, None)
    assert not nothing.keeps_up


def test_a_queue_that_grows_does_not_keep_up() -> None:
    due = np.arange(0, 1000, 10.0)
    assert row(answers(due, due + 7)).keeps_up
    slow = row(answers(due, np.arange(1, 101) * 12.5))  # 80 answers a second to 100 requests
    assert slow.answered_per_s == pytest.approx(80.0) and not slow.keeps_up


def test_the_mean_batch_is_requests_by_batches() -> None:
    found = row(answers([0, 1, 2, 3, 4], [9, 9, 9, 12, 12], batch=[3, 3, 3, 2, 2], service_ms=[1] * 5))
    assert found.mean_batch == pytest.approx(5 / 2)
    assert row(answers([0, 1], [9, 9])).mean_batch is None


def test_what_the_model_alone_would_do_is_simulated_with_the_times_that_the_server_tells() -> None:
    """A server that only batches and computes: then the simulation is what was measured."""
    came = batching.poisson(300.0, 5.0, seed=2)
    limits = Limits(4, 3.0)
    service_ns = batching.service_times({1: 2 * MS, 4: 3 * MS})
    truth = batching.simulate(came, service_ns, most=4, wait_ns=limits.wait_ns, rule="taken")
    batch = np.repeat(truth.sizes, truth.sizes)
    told = np.array([service_ns(int(size)) for size in batch])
    good = np.ones(len(came), bool)
    found = row(Answers(came, came, truth.done_ns, good, ~good, batch, told), limits, "taken")
    assert (found.simulated_p50_ns, found.simulated_p99_ns) == (found.p50_ns, found.p99_ns)
    assert found.mean_batch == pytest.approx(truth.sizes.mean())
    unknown = row(Answers(came, came, truth.done_ns, good, ~good, 0 * batch, told), limits, "taken")
    assert unknown.simulated_p99_ns is None


BASE = Served("s", "m", 8, 5.0, 100.0, 500, 0, 0, 100.0, 5 * MS, 9 * MS, 20 * MS, True, 0)


def test_the_best_limits_are_those_with_the_smallest_p99_that_keep_up_and_answer_right() -> None:
    rows = [
        BASE,
        replace(BASE, wait_ms=1.0, p99_ns=7 * MS),
        replace(BASE, wait_ms=0.5, p99_ns=7 * MS, p50_ns=4 * MS),
        replace(BASE, wait_ms=0.0, p99_ns=2 * MS, wrong=1),
        replace(BASE, most=1, wait_ms=0.0, p99_ns=3 * MS, keeps_up=False),
        replace(BASE, asked_per_s=900.0, keeps_up=False, answered_per_s=310.0),
    ]
    best, none = loads.best(rows)
    assert (best.most, best.wait_ms) == (8, 0.5)
    assert figures(best.text) == ["100 requests/s", "8", "0.5 ms", "7.000 ms", "4.000 ms"]
    assert (none.most, none.wait_ms) == (None, None) and "310 requests/s" in figures(none.text)


def test_the_columns_that_a_load_writes_are_read_back() -> None:
    names = ("due_ns", "sent_ns", "done_ns", "good", "wrong", "batch", "service_ns")
    read = loads.from_json({name: [1, 0] for name in names} | {"errors": {}})
    assert read.good.tolist() == [True, False] and read.done_ns.tolist() == [1, 0]


def test_the_report_is_json() -> None:
    found = Inference(served=[BASE], best=loads.best([BASE]))
    told = json.loads(json.dumps(found.to_json()))
    assert told["schema"] == "ringscope.inference/1" and told["served"][0]["p99_ns"] == 9 * MS
