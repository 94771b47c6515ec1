"""Where a model is cut, and how long a pipeline takes: against every possible cut, and a clock that is stepped."""

from __future__ import annotations

import itertools
import random

import pytest

from harness.training.strategies import Unsupported, stages
from profiles.scaling.rows import bubble_share


def test_the_largest_stage_is_as_small_as_any_cut_makes_it() -> None:
    random.seed(1)
    for _ in range(200):
        work = list(itertools.accumulate(random.randint(1, 9) for _ in range(random.randint(1, 9))))
        count = random.randint(1, len(work))
        cuts = [[*inner, len(work) - 1] for inner in itertools.combinations(range(len(work) - 1), count - 1)]
        found = stages.balanced(work, count)
        assert found in cuts
        assert largest(work, found) == min(largest(work, cut) for cut in cuts)


def largest(work: list[int], ends: list[int]) -> int:
    return max(work[end] - (work[start] if start >= 0 else 0) for start, end in itertools.pairwise([-1, *ends]))


def test_more_stages_than_points_are_refused() -> None:
    with pytest.raises(Unsupported, match="into 2 stages at most, not 3"):
        stages.balanced([1, 2], 3)
    with pytest.raises(Unsupported, match="into one stage at most, not 2"):
        stages.balanced([1], 2)


@pytest.mark.parametrize("count", [1, 2, 3, 5])
@pytest.mark.parametrize("parts", [1, 2, 4, 16])
def test_equal_stages_stand_still_for_the_share_of_the_formula(count: int, parts: int) -> None:
    took = clock([10] * count, parts) + clock([20] * count, parts)
    assert took == 30 * (parts + count - 1)
    told = {"micro_batches": parts, "stage_ns": [30] * count}
    assert bubble_share([told], took) == pytest.approx((count - 1) / (parts + count - 1))


def clock(durations: list[int], parts: int) -> int:
    """Tick by tick: a stage that is free takes the next part that the stage before has let go."""
    passed, at = [parts] + [0] * len(durations), [0] * len(durations)  # parts that wait before a stage; busy until
    done, now = 0, 0
    working = [False] * len(durations)
    while done < parts:
        for number in range(len(durations)):
            if working[number] and at[number] == now:
                working[number] = False
                passed[number + 1] += 1
                done += number + 1 == len(durations)
        for number, takes in enumerate(durations):
            if not working[number] and passed[number]:
                passed[number] -= 1
                working[number], at[number] = True, now + takes
        now += 1
    return now - 1


def test_a_share_that_cannot_be_is_none() -> None:
    assert bubble_share([], 100) is None and bubble_share([None], 100) is None
    assert bubble_share([{"micro_batches": 1, "stage_ns": [60, 60]}], None) is None
    assert bubble_share([{"micro_batches": 1, "stage_ns": [60, 60]}], 50) is None
