"""Predictions from measured sizes, against published tables that had no part in them and against plain arithmetic."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.published_scaling import BERT, BERT_HOSTS, TABLES, chosen, leave_one_out
from profiles.ground.errors import RingscopeError
from profiles.predicting.curve import CONSTANTS, Constants, Point, above_linear, disagreeing, predict, worth_adding

OWN_ONLY = Constants(growth=0.5, typical=0.9, trust=1.0, half_width=0.05)


def test_published_tables_left_out_are_met_within_3_points_on_average_and_9_in_10_lie_inside() -> None:
    found = leave_one_out()
    assert len(found) == 43
    assert sum(row.error for row in found) / len(found) <= 0.03
    assert sum(row.inside for row in found) / len(found) >= 0.9
    assert all(row.high - row.low <= 0.1 + 1e-12 for row in found if row.times <= 8)
    assert max(row.times for row in found) == 8


def test_the_constants_are_those_that_the_tables_choose() -> None:
    assert chosen(tuple(TABLES)) == CONSTANTS


def test_of_four_bert_rows_three_are_met_within_5_points_and_the_inconsistent_one_is_named() -> None:
    for row, rates in BERT.items():
        points = [Point(hosts, rate) for hosts, rate in zip(BERT_HOSTS[:2], rates, strict=False)]
        (said,) = predict(points, [BERT_HOSTS[-1]])
        published = rates[-1] / BERT_HOSTS[-1] / rates[0]
        if row == "512 tokens, TF32":  # 2 hosts do 1.71 times what one does; 8 hosts 6.78 times
            assert disagreeing(points) == points[1]
        else:
            assert abs(said.efficiency - published) <= 0.05
            assert disagreeing(points) is None


def test_the_loss_of_one_measured_size_grows_as_the_formula_says() -> None:
    # 100 on 1, 160 on 2: T(2) / T(1) - 1 = 1/4 = c (sqrt(2) - 1), so on 9 it is 1/4 (3 - 1) / (sqrt(2) - 1)
    (said,) = predict([Point(1, 100), Point(2, 160)], [9], OWN_ONLY)
    loss = 0.25 * 2 / (math.sqrt(2) - 1)
    assert said.efficiency == pytest.approx(1 / (1 + loss))
    assert said.per_s == pytest.approx(900 / (1 + loss))


def test_a_training_that_follows_the_formula_is_predicted_exactly_from_any_sizes() -> None:
    def rate(gpus: int) -> float:
        return gpus * 50 / (1 + 0.07 * (gpus**0.5 - 1))

    for known in ([1, 2], [1, 4, 8], [1, 3, 16, 64]):
        found = predict([Point(gpus, rate(gpus)) for gpus in known], [128, 512], OWN_ONLY)
        assert [one.per_s for one in found] == pytest.approx([rate(128), rate(512)])


def test_the_order_of_the_sizes_does_not_matter_and_the_smallest_need_not_be_one() -> None:
    points = [Point(32, 2800), Point(8, 760), Point(16, 1450)]
    assert predict(points, [64]) == predict(sorted(points, key=lambda point: point.gpus), [64])
    (said,) = predict(points, [8])
    assert said.efficiency == 1 and said.per_s == pytest.approx(760)


def test_further_out_than_the_tables_reach_the_interval_widens_and_says_so() -> None:
    near, far = predict([Point(1, 100), Point(2, 190)], [16, 128])
    assert near.calibrated and near.high - near.low == pytest.approx(2 * CONSTANTS.half_width)
    assert not far.calibrated
    assert far.efficiency - far.low == pytest.approx(CONSTANTS.half_width * math.log2(64) / 3)


def test_the_count_at_which_another_gpu_adds_less_than_half_a_gpu() -> None:
    points = [Point(1, 100), Point(8, 400)]
    found = worth_adding(points)
    assert found is not None
    rate = {gpus: predict(points, [gpus])[0].per_s for gpus in range(1, found + 2)}
    assert rate[found + 1] - rate[found] < 50
    assert all(rate[gpus + 1] - rate[gpus] >= 50 for gpus in range(1, found))
    assert worth_adding([Point(1, 100), Point(2, 200)], most=64) is None


@given(st.lists(st.floats(0.2, 1.1), min_size=1, max_size=4), st.integers(2, 4096))
def test_more_gpus_are_never_more_efficient_and_the_interval_holds_the_estimate(shares: list[float], gpus: int) -> None:
    points = [Point(1, 100.0), *(Point(2 ** (at + 1), 100 * 2 ** (at + 1) * share) for at, share in enumerate(shares))]
    less, more = predict(points, [gpus, gpus + 1])
    assert 0 <= less.low <= less.efficiency <= less.high <= 1
    assert more.efficiency <= less.efficiency + 1e-12


@pytest.mark.parametrize(
    "points",
    [
        *([], [Point(1, 5)], [Point(1, 5), Point(1, 6)], [Point(1, 5), Point(2, 0)], [Point(0, 5), Point(2, 6)]),
        *([Point(1, 5), Point(2, math.nan)], [Point(1, -5), Point(2, 5)]),
    ],
)
def test_too_few_or_impossible_sizes_are_refused(points: list[Point]) -> None:
    with pytest.raises(RingscopeError, match="prediction needs"):
        predict(points, [8])


def test_what_nobody_has_is_refused_and_no_number_is_made_of_it() -> None:
    for points, gpus in (
        ([Point(1, math.inf), Point(2, 5)], 8),
        ([Point(1, 1e300), Point(2, 1e300)], 8),
        ([Point(1, 5), Point(10**30, 5)], 8),
        ([Point(1, 5), Point(2, 9)], 10**39),
        ([Point(2, 5), Point(4, 9)], 1),
    ):
        with pytest.raises(RingscopeError, match="prediction is for"):
            predict(points, [gpus])


def test_sizes_that_do_more_than_so_many_times_the_smallest_are_told_apart_from_noise() -> None:
    assert above_linear([Point(1, 100), Point(2, 250), Point(4, 400)]) == [Point(2, 250)]
    everywhere = [series for table in TABLES.values() for series in table.values()]
    published = [[Point(n, x) for n, x in zip(*series, strict=False)] for series in everywhere]
    assert not any(map(above_linear, published))
