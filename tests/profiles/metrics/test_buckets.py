"""How evenly ranks come to their collectives: of ranks whose steps are drawn with known deviations."""

from __future__ import annotations

import numpy as np
import pytest

import ringscope
from benchmarks.tables import timeline
from benchmarks.training import Shape
from profiles.metrics.buckets import pace
from profiles.model.steps import StepRow

MS = 1_000_000


def _rows(lengths: np.ndarray, numbers: list[int] | None = None) -> list[StepRow]:
    ends = np.cumsum(lengths)
    numbered = numbers or list(range(len(lengths)))
    return [
        StepRow(number, int(end - length), int(end), {}, None, None, 1)
        for number, length, end in zip(numbered, lengths, ends, strict=True)
    ]


@pytest.mark.parametrize("ranks", [2, 4, 16])
def test_the_deviation_of_each_rank_and_who_is_always_behind_are_found_again(ranks: int) -> None:
    drawn = np.random.default_rng(ranks)
    steps, sigma = 4_000, 0.3 * MS
    shared = drawn.normal(0, 2 * MS, steps)  # of all ranks alike: nobody waits for it
    own = drawn.normal(0, sigma, (ranks, steps))
    own[-1] += 1.5 * MS
    lengths = np.rint(20 * MS + shared + own).astype(np.int64)
    # Everybody leaves with the last: the rest is waiting.
    together = lengths.max(axis=0)
    found = pace([_rows(together) for _ in range(ranks)], list(together - lengths))
    behind, varies = (np.array([one[place] for one in found if one]) for place in (0, 1))
    assert behind[-1] == pytest.approx(1.5 * MS * (ranks - 1) / ranks, rel=0.05)
    assert behind[:-1] == pytest.approx(-1.5 * MS / ranks, abs=0.05 * MS)
    assert varies == pytest.approx(np.full(ranks, sigma), rel=0.05)


def test_only_steps_that_all_ranks_have_are_compared() -> None:
    lengths = np.array([10, 11, 12, 13, 14]) * MS
    none = np.zeros(5, np.int64)
    shifted = pace([_rows(lengths), _rows(lengths + MS, [2, 3, 4, 5, 6])], [none, none])
    # Steps 2, 3, 4 of the one are the last three, of the other the first three, 1 ms longer and two steps earlier.
    assert shifted == [(MS // 2, 0), (-MS // 2, 0)]
    assert pace([_rows(lengths), _rows(lengths, [3, 4, 5, 6, 7])], [none, none]) == [None, None]
    assert pace([_rows(lengths), _rows(lengths, [0, 1, 2, 0, 1])], [none, none]) == [None, None]
    assert pace([_rows(lengths)], [none]) == [None]


def test_a_slow_gpu_of_a_generated_training_is_behind_by_its_lateness() -> None:
    late = 2 * MS
    shape = Shape(steps=12, kernels=20, gpus=4, processes=4, skew_ns=0, hidden_ns=1, slow_gpus=(2,), late_ns=late)
    gpus = ringscope.measure([timeline(shape, range(rank, rank + 1)) for rank in range(4)]).gpus
    behind = [gpu.collectives.behind_ns for gpu in gpus]
    assert behind[2] == pytest.approx(late * 3 / 4, rel=0.02)
    assert [behind[rank] for rank in (0, 1, 3)] == pytest.approx([-late / 4] * 3, rel=0.05)
    for gpu in gpus:
        step = gpu.collectives.one_step
        assert step is not None and len(step.buckets) == gpu.collectives.per_step == 1
        assert step.buckets[0].needed_ns is not None and step.rest_ns > 0
