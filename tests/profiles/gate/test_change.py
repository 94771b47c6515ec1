"""A series of runs: a step is found, where it began, and neither noise, drift nor a few runs are taken for one."""

from __future__ import annotations

import math

import numpy as np
import pytest

from benchmarks.gate_histories import ASKED, KINDS, WITHIN, alarms, slower, steps
from profiles.gate.change import FEW, KEPT, each, last
from tests.tiers import few


def noisy(runs: int, seed: int = 0, sigma: float = 0.01) -> np.ndarray:
    return 100 * np.exp(np.random.default_rng(seed).normal(0, sigma, runs))


@pytest.mark.parametrize("kind", few(["normal", "drift of 0.02 % a run", "heavy tails (Laplace)"]))
def test_false_alarms_are_fewer_than_one_in_two_hundred_runs(kind: str) -> None:
    assert alarms(KINDS[kind], 12)[0] <= ASKED


def test_steps_of_three_times_the_noise_are_found_within_five_runs() -> None:
    found, by_fixed, places = steps(KINDS["normal"], 12, 40)
    assert found >= 0.9 and found > by_fixed and places >= 0.7


def test_the_change_is_where_it_began_and_is_told_until_it_is_the_level() -> None:
    times = np.concatenate([noisy(30), 1.06 * noisy(KEPT + 8, seed=1)])
    found = each(times)
    assert not any(one.since for one in found[:30])
    told = [at for at in range(30, len(times)) if found[at].since]
    assert told[0] <= 30 + WITHIN - 1 and told[-1] == 30 + KEPT - 1 and told == list(range(told[0], told[-1] + 1))
    assert found[told[-1]].since == list(range(30, 30 + KEPT)) and set(found[told[-1]].before) <= set(range(30))
    assert found[-1].before[0] == 30  # the new level alone is what the last run is held against


def test_a_step_down_is_a_change_and_not_slower() -> None:
    times = np.concatenate([noisy(30), 0.95 * noisy(5, seed=1)])
    found = each(times)
    assert found[-1].since == list(range(30, 35)) and not any(slower(list(np.log(times)), found))


def test_one_run_far_off_is_told_at_once_and_the_next_one_is_as_before() -> None:
    times = noisy(30)
    times[20] *= 1.2
    assert [at for at, one in enumerate(each(times)) if one.since] == [20]


def test_a_large_step_is_told_on_every_run_from_the_first_on() -> None:
    times = np.concatenate([noisy(30), 1.2 * noisy(6, seed=1)])
    assert [at for at, one in enumerate(each(times)) if one.since] == list(range(30, 36))


@pytest.mark.parametrize("before", [1, 2, 3, 4, FEW - 1])
def test_few_runs_are_held_to_a_fixed_twentieth_of_their_median(before: int) -> None:
    runs = [100.0] * before
    assert not last([*runs, 104.9]).since and last([*runs, 105.1]).since == [before]
    assert not last([*runs, 104.9]).by_scatter and last([*runs, 104.9]).limit == pytest.approx(105.0)


def test_a_first_run_is_held_against_nothing() -> None:
    assert last([100.0]) == each([100.0])[0] and not last([100.0]).before and last([100.0]).limit == math.inf


def test_the_limit_of_one_run_is_where_it_breaks() -> None:
    times = [*noisy(30), 100.0]
    limit = last(times).limit
    assert not last([*times[:-1], limit * 0.999]).since and last([*times[:-1], limit * 1.001]).since


def test_equal_runs_are_no_change_and_a_step_among_them_is_one() -> None:
    assert not last([100.0] * 40).since
    assert last([100.0] * 30 + [103.0]).since == [30]


def test_several_series_share_the_false_alarms() -> None:
    times = noisy(30)
    assert last([*times, 100.0], tests=10).limit > last([*times, 100.0]).limit
