"""Statistics against independent computations: simulation, scipy, counting."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as some

from profiles.ground import stats
from tests.tiers import few


def scipy_stats() -> Any:
    """To import it takes a second, which every worker would spend that collects this file."""
    from scipy import stats

    return stats


def test_three_launches_give_their_extremes_and_say_that_they_cover_three_quarters() -> None:
    found = stats.spread([10.0, 12.0, 11.0])
    assert (found.median, found.low, found.high) == (11.0, 10.0, 12.0)
    assert found.coverage == 0.75  # all on one side of the median: 2 of 2^3 cases
    assert found.interval == "min..max"


@pytest.mark.parametrize("count", few([2, 3, 5, 6, 9, 25]))
def test_an_interval_covers_the_median_as_often_as_it_says(count: int) -> None:
    generator = np.random.default_rng(count)
    samples = generator.lognormal(size=(20_000, count))  # skewed; its true median is 1
    held = [found.low <= 1 <= found.high for found in map(stats.spread, samples)]
    said = stats.spread(samples[0]).coverage
    assert np.mean(held) == pytest.approx(said, abs=5 * math.sqrt(said * (1 - said) / len(held)) + 1e-9)


@pytest.mark.parametrize("count", [6, 7, 8, 9, 12, 20, 51])
def test_from_six_launches_on_the_interval_is_scipys(count: int) -> None:
    values = np.random.default_rng(0).normal(size=count)
    found = stats.spread(values)
    # quantile_test's interval takes the narrowest order statistics on each side on its own: 97.5 % a side.
    theirs = scipy_stats().quantile_test(values, q=0, p=0.5).confidence_interval(0.95)
    assert (found.low, found.high) == (theirs.low, theirs.high)
    assert found.coverage >= 0.95


def test_sigma_is_scipys_scaled_median_absolute_deviation() -> None:
    values = [3.0, 1.0, 4.0, 1.5, 9.0]
    theirs = scipy_stats().median_abs_deviation(values, scale="normal")
    assert stats.spread(values).sigma == pytest.approx(theirs, rel=1e-4)


def test_one_launch_has_no_spread_and_covers_nothing() -> None:
    found = stats.spread([5.0])
    assert (found.sigma, found.coverage) == (None, 0.0)
    assert stats.ratio(found, stats.spread([2.0, 2.1])).error is None


def test_a_ratios_error_is_that_of_a_simulation() -> None:
    generator = np.random.default_rng(1)
    of, to = generator.normal(100, 2, 4001), generator.normal(50, 1.5, 4001)
    found = stats.ratio(stats.spread(of), stats.spread(to))
    assert found.error == pytest.approx(float(np.std(of / to)), rel=0.06)


@given(some.lists(some.floats(1, 1e6), min_size=1, max_size=9), some.lists(some.floats(1, 1e6), min_size=1, max_size=9))
def test_a_ratio_lies_in_its_interval(of: list[float], to: list[float]) -> None:
    found = stats.ratio(stats.spread(of), stats.spread(to))
    assert found.low <= found.value <= found.high


def test_few_launches_cannot_show_a_difference_and_it_is_said() -> None:
    assert not stats.difference([1, 2, 3], [10, 11, 12]).resolvable
    found = stats.difference([1, 2, 3, 4], [10, 11, 12, 13])
    assert found.resolvable and found.significant and found.delta == 1.0


def test_p_and_delta_are_those_of_all_rearrangements() -> None:
    first, second = [1.0, 4.0, 5.0, 8.0], [3.0, 6.0, 9.0, 11.0, 12.0]
    found = stats.difference(first, second)

    def wins(b: tuple[float, ...], a: tuple[float, ...]) -> int:
        return sum(y > x for x, y in itertools.product(a, b))

    everything = first + second
    observed = abs(wins(tuple(second), tuple(first)) - 10)
    extreme = total = 0
    for chosen in itertools.combinations(everything, 5):
        rest = tuple(value for value in everything if value not in chosen)
        extreme += abs(wins(chosen, rest) - 10) >= observed
        total += 1
    assert found.p_value == pytest.approx(extreme / total)
    assert found.least_p_value == pytest.approx(2 / total)
    assert found.delta == pytest.approx(2 * wins(tuple(second), tuple(first)) / 20 - 1)


@given(some.lists(some.integers(0, 10**12), min_size=1, max_size=50), some.sampled_from([5, 50, 95, 100]))
def test_a_percentile_is_the_smallest_value_that_enough_values_do_not_exceed(values: list[int], percent: int) -> None:
    found = stats.nearest_rank(values, percent)
    assert found in values
    assert 100 * sum(value <= found for value in values) >= percent * len(values)
    assert 100 * sum(value < found for value in values) < percent * len(values)
