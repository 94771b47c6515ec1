"""Predictions from measured sizes, against published tables that had no part in them and against plain arithmetic."""

from __future__ import annotations

import itertools
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.published_scaling import NEW, Row, every, rows, series
from profiles.ground.errors import RingscopeError
from profiles.predicting.curve import Constants, Point, above_linear, disagreeing, predict, worth_adding

EXACT = Constants(inside=0.1, step=0.1, growth=0.5, spread=10.0, noise=0.01)  # trusts what is measured alone


def inside(some: list[Row]) -> float:
    return sum(not row.missed for row in some) / len(some)


def test_9_in_10_published_points_of_every_kind_lie_inside() -> None:
    found = rows()
    assert len(found) == 400
    for kind in ("inside a host", "first crossing", "hosts measured"):
        assert inside([row for row in found if row.kind == kind]) >= 0.9, kind
    for new in (False, True):
        assert inside([row for row in found if (row.series.table in NEW) is new]) >= 0.9, new


def test_once_hosts_were_measured_it_is_nearer_than_the_formula_that_knew_of_none() -> None:
    now, then = ([row.error for row in some if row.kind == "hosts measured"] for some in (rows(), rows(None)))
    assert sum(now) < 0.85 * sum(then)


def test_the_step_from_one_host_to_two_is_no_trend() -> None:
    """MaxText on 16 H100 hosts; the formula that knew of no hosts said 60 % (55 to 65)."""
    points = series("maxtext", "Llama 2 7B").points
    published = points[-1].per_s / points[-1].gpus / (points[0].per_s / points[0].gpus)
    assert round(published, 3) == 0.762
    for known in (2, 3, 4):
        (said,) = predict(points[:known], [128], 8)
        assert said.low <= published <= said.high
        assert abs(said.efficiency - published) < 0.07


def test_within_a_host_the_network_is_not_counted() -> None:
    points = [Point(1, 100), Point(2, 196)]
    inside, crossing = predict(points, [8], 8) + predict(points, [8], 4)
    assert inside.efficiency > crossing.efficiency and inside.low > crossing.low + 0.1


def rate(gpus: int, per_host: int, c: float, s: float, g: float) -> float:
    """By the formula of the docs."""
    n, hosts = min(gpus, per_host), math.ceil(gpus / per_host)
    return gpus * 50 / (1 + (c * (n / 2) ** g if n > 1 else 0) + (s * (hosts / 2) ** g if hosts > 1 else 0))


@pytest.mark.parametrize(("c", "s", "g"), [(0.02, 0.1, 0.3), (0.1, 0.5, 0.8), (0.3, 0.02, 1.2)])
def test_a_training_that_follows_the_formula_is_predicted_from_enough_of_its_sizes(
    c: float, s: float, g: float
) -> None:
    points = [Point(gpus, rate(gpus, 4, c, s, g)) for gpus in (1, 2, 4, 8, 16, 64)]
    for said in predict(points, [32, 128, 512], 4, EXACT):
        true = rate(said.gpus, 4, c, s, g) / said.gpus / points[0].per_s
        assert said.efficiency == pytest.approx(true, rel=0.03)
        assert said.low <= true <= said.high


def test_the_weights_are_those_of_a_fine_grid_of_one_unknown() -> None:
    """Two sizes of a host and 2 GPUs asked: T(2) = 1 + c. Its odds by hand, in steps of a ten-thousandth."""
    constants = Constants(inside=0.02, step=0.05, growth=0.3, spread=0.5, noise=0.02)
    (said,) = predict([Point(1, 100), Point(2, 180)], [2], 8, constants)
    c = [number * 1e-4 + 5e-5 for number in range(100_000)]
    miss = [(math.log(2 / 1.8) - math.log(1 + one)) / 0.02 for one in c]
    odds = [math.exp(-(off**2) / 2) / (1 + (one / 0.02) ** 2) for one, off in zip(c, miss, strict=True)]
    below = itertools.accumulate(odds)
    median = next(one for one, less in zip(c, below, strict=True) if less >= sum(odds) / 2)
    assert said.efficiency == pytest.approx(1 / (1 + median), abs=0.003)


def test_the_order_of_the_sizes_does_not_matter_and_the_smallest_need_not_be_one() -> None:
    points = [Point(32, 2800), Point(8, 760), Point(16, 1450)]
    assert predict(points, [64]) == predict(sorted(points, key=lambda point: point.gpus), [64])
    (said,) = predict(points, [8])
    assert said.efficiency == 1 and said.per_s == pytest.approx(760)


def test_further_out_the_interval_widens() -> None:
    near, far, further = predict([Point(8, 800), Point(16, 1400)], [32, 256, 512], 8)
    assert near.high - near.low < far.high - far.low < further.high - further.low


def test_the_doubling_from_which_another_gpu_adds_less_than_half_a_gpu() -> None:
    points = [Point(1, 100), Point(2, 190), Point(8, 500)]
    found = worth_adding(points, 8)
    assert found is not None
    rate = {gpus: predict(points, [gpus], 8)[0].per_s for gpus in (1, 2, 4, 8, 16, 32, 64)}
    assert all(rate[2 * gpus] - rate[gpus] < 50 * gpus for gpus in rate if found <= gpus < 64)
    assert found == 1 or rate[found] - rate[found // 2] >= 50 * found / 2
    assert worth_adding([Point(1, 100), Point(2, 200)], 64, most=64) is None
    assert worth_adding([Point(1, 100), Point(2, 200)], 10**6) is None


@given(st.lists(st.floats(0.2, 1.1), min_size=1, max_size=4), st.integers(2, 4096), st.integers(1, 16))
def test_more_gpus_are_never_more_efficient_and_the_interval_holds_the_estimate(
    shares: list[float], gpus: int, per_host: int
) -> None:
    points = [Point(1, 100.0), *(Point(2 ** (at + 1), 100 * 2 ** (at + 1) * share) for at, share in enumerate(shares))]
    less, more = predict(points, [gpus, gpus + 1], per_host)
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
    # 4 nodes of DGX-2H do 4.28 times one, for they add up fewer batches; no other series does so much
    assert {one.table for one in every() if above_linear(one.points)} == {"bert-tf1"}


def test_only_losses_that_no_table_shows_by_its_doublings_are_called_out_of_line() -> None:
    assert disagreeing([Point(1, 100), Point(2, 160)], 8) == Point(2, 160)
    assert disagreeing([Point(8, 100), Point(16, 120)], 8) is None  # the first crossing may cost anything
    # 8 GPUs of MXNet wait for their images: 44 % of 8 times one
    assert [one.name for one in every() if disagreeing(one.points, one.gpus_per_host)] == ["ResNet-50 AMP, 256, MXNet"]
