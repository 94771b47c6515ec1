"""Requests in batches: the simulation against answers known from elsewhere, and against one that goes tick by tick."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as some

from profiles.inference import batching
from tests.tiers import few

MS = 1_000_000


def arrivals(*ms: float) -> np.ndarray:
    return np.array([round(at * MS) for at in ms], np.int64)


def latencies_ms(found: batching.Batches, came: np.ndarray) -> list[float]:
    return [(done - at) / MS for done, at in zip(found.done_ns.tolist(), came.tolist(), strict=True)]


@pytest.mark.parametrize("load", few([0.6, 0.3, 0.8]))
def test_batches_of_one_wait_as_long_as_in_the_queue_m_d_1(load: float) -> None:
    """Pollaczek and Khinchine: the mean wait is load x service / (2 (1 - load)) for a constant service time."""
    service_ns = 2 * MS
    came = batching.poisson(load * 1e9 / service_ns, 1200.0, seed=3)
    found = batching.simulate(came, lambda size: service_ns, most=1, wait_ns=5 * MS)
    waits_ns = found.done_ns - came - service_ns
    assert waits_ns.mean() == pytest.approx(load * service_ns / (2 * (1 - load)), rel=0.03)
    assert (waits_ns == 0).mean() == pytest.approx(1 - load, abs=0.01)  # who finds nobody there (PASTA)
    assert set(found.sizes.tolist()) == {1}


def test_a_model_that_takes_all_at_once_and_no_time_has_only_the_waiting() -> None:
    """Without service time and limit a batch takes who comes within t: 1 + rate x t on average."""
    rate, wait_ns = 1000.0, 4 * MS
    came = batching.poisson(rate, 300.0, seed=1)
    found = batching.simulate(came, lambda size: 0, most=10**9, wait_ns=wait_ns)
    assert found.sizes.mean() == pytest.approx(1 + rate * wait_ns / 1e9, rel=0.01)
    assert (found.done_ns - came).max() == wait_ns


def test_a_batch_leaves_when_it_is_full_or_has_waited_by_hand() -> None:
    came = arrivals(0, 1, 2, 10, 30, 31)
    found = batching.simulate(came, lambda size: 2 * MS, most=3, wait_ns=5 * MS, rule="first")
    assert found.sizes.tolist() == [3, 1, 2]
    assert latencies_ms(found, came) == [4, 3, 2, 7, 7, 6]


@pytest.mark.parametrize(
    ("rule", "done_ms"),
    [
        # The model is busy from 5 to 25 with the first; the second came at 6, the third at 27.
        ("first", [25, 45, 65]),  # 6 has waited its 5 ms long before 25, and leaves alone; the third leaves at 45
        ("taken", [25, 50, 50]),  # taken at 25, it waits till 30, and the third comes with it
        ("windows", [25, 50, 50]),
    ],
)
def test_rules_differ_in_what_the_waiting_is_counted_from(rule: str, done_ms: list[int]) -> None:
    came = arrivals(0, 6, 27)
    found = batching.simulate(came, lambda size: 20 * MS, most=8, wait_ns=5 * MS, rule=rule)
    assert (found.done_ns / MS).tolist() == done_ms


def test_windows_begin_again_while_nobody_comes() -> None:
    came = arrivals(7)  # in the window from 5 to 10
    found = batching.simulate(came, lambda size: MS, most=8, wait_ns=5 * MS, rule="windows")
    assert latencies_ms(found, came) == [4]


@pytest.mark.parametrize("rule", batching.RULES)
@given(
    gaps=some.lists(some.integers(0, 12), min_size=1, max_size=25),
    most=some.integers(1, 6),
    wait=some.integers(0, 15),
    fixed=some.integers(0, 9),
    each=some.integers(0, 3),
)
def test_it_is_what_a_clock_that_ticks_once_a_nanosecond_sees(
    rule: str, gaps: list[int], most: int, wait: int, fixed: int, each: int
) -> None:
    came = np.cumsum(gaps).astype(np.int64)
    found = batching.simulate(came, lambda size: fixed + each * size, most=most, wait_ns=wait, rule=rule)
    done, sizes = by_ticks(came.tolist(), lambda size: fixed + each * size, most, wait, rule)
    assert (found.done_ns.tolist(), found.sizes.tolist()) == (done, sizes)


def by_ticks(came: list[int], service, most: int, wait: int, rule: str) -> tuple[list[int], list[int]]:
    """The same, written from the words of the rules: look at every tick whether a batch leaves."""
    done, sizes, queue, now, free, next_one, window = [], [], [], 0, 0, 0, 0
    taken_at: int | None = None
    while len(done) < len(came):
        while next_one < len(came) and came[next_one] <= now:
            queue.append(came[next_one])
            next_one += 1
        if now >= free:
            if queue and taken_at is None:
                taken_at = now
            if rule == "windows" and wait and now - window >= wait and (not queue or queue[0] == now):
                window = now  # nobody came in the one that ends here
            since = {"first": queue[0] if queue else 0, "taken": taken_at, "windows": window if wait else taken_at}[
                rule
            ]
            if queue and (most == 1 or len(queue) >= most or now - since >= wait):
                batch, queue = queue[:most], queue[most:]
                free = now + service(len(batch))
                window, taken_at = free, None
                done += [free] * len(batch)
                sizes.append(len(batch))
                if free == now:
                    continue
        now += 1
    return done, sizes


def test_service_times_lie_straight_between_those_that_were_seen() -> None:
    service_ns = batching.service_times({1: 100, 4: 400, 8: 480})
    assert [service_ns(size) for size in (1, 2, 4, 6, 8, 20)] == [100, 200, 400, 440, 480, 480]


def test_arrivals_are_a_poisson_process_within_the_time() -> None:
    came = batching.poisson(500.0, 200.0, seed=7)
    gaps_ns = np.diff(came)
    assert len(came) == pytest.approx(100_000, abs=4 * 100_000**0.5)
    assert gaps_ns.std() == pytest.approx(gaps_ns.mean(), rel=0.02)  # of exponential gaps they are equal
    assert came[-1] < 200 * 10**9 and (gaps_ns >= 0).all()
    assert (came == batching.poisson(500.0, 200.0, seed=7)).all()
    assert not np.array_equal(came, batching.poisson(500.0, 200.0, seed=8))


def test_what_cannot_be_simulated_is_refused() -> None:
    for wrong in ({"most": 0, "wait_ns": 1}, {"most": 1, "wait_ns": -1}, {"most": 1, "wait_ns": 1, "rule": "other"}):
        with pytest.raises(ValueError):
            batching.simulate(arrivals(1, 2), lambda size: 1, **wrong)
    with pytest.raises(ValueError):
        batching.simulate(arrivals(2, 1), lambda size: 1, most=1, wait_ns=0)
