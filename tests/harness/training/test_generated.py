"""The task that can be learnt: its best accuracy is what classifiers that know how it was made reach on it."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import islice

import numpy as np
import pytest

tf = pytest.importorskip("tensorflow")

from harness.training.convergence import converge  # noqa: E402
from harness.training.feeds import FEEDS  # noqa: E402
from harness.training.feeds.generated import BEST_ACCURACY, VALIDATION, Generated, patterns, samples  # noqa: E402
from harness.training.models import Spec, optimizer  # noqa: E402
from harness.training.windows import Window  # noqa: E402
from profiles.runs.cell import Cell  # noqa: E402

pytestmark = [pytest.mark.train, pytest.mark.beside]
COUNT = 4000
# Five standard deviations of the share of right labels among so many.
TOLERANCE = 5 * math.sqrt(BEST_ACCURACY * (1 - BEST_ACCURACY) / COUNT)


def scaled(x):
    return x.astype(np.float32) / 127.5 - 1


@pytest.mark.parametrize("spec", [Spec((256,), 10), Spec((8000,), 1), Spec((32, 32, 3), 10)])
def test_the_nearest_pattern_is_right_as_often_as_any_model_can_be(spec):
    x, y = samples(spec, COUNT // 4, seed=3, part=VALIDATION)
    classes = 2 if spec.classes == 1 else 10
    scores = scaled(x).reshape(len(x), -1) @ patterns(spec, classes, 3).reshape(classes, -1).T
    assert np.mean(scores.argmax(1) == y) == pytest.approx(BEST_ACCURACY, abs=2 * TOLERANCE)
    assert set(np.unique(y)) == set(range(classes))


def test_a_sequence_is_told_by_all_its_steps_and_not_by_one():
    spec = Spec((128, 64), 10)
    x, y = samples(spec, COUNT // 4, seed=5, part=VALIDATION)
    faint = patterns(spec, 10, 5)[:, 0]
    whole = np.mean((scaled(x).mean(1) @ faint.T).argmax(1) == y)
    one = np.mean((scaled(x)[:, 7] @ faint.T).argmax(1) == y)
    assert whole == pytest.approx(BEST_ACCURACY, abs=2 * TOLERANCE) and one < 0.6


def test_training_and_validation_are_other_samples_of_one_task():
    source = Generated(Spec((16,), 10), 8, count=256)
    (x, y), (seen, _) = source.held_out(), source.trained_on()
    assert len(y) == 1000 and not any((seen == one).all(1).any() for one in x[:50])


@pytest.mark.parametrize("feed", ["numpy", "host", "prefetch"])
def test_joined_batches_of_two_ranks_are_those_of_one_and_an_epoch_has_every_sample_once(feed):
    spec = Spec((6,), 10)
    one = FEEDS[feed](Generated(spec, 16, count=64), "/CPU:0")
    two = [FEEDS[feed](Generated(spec, 8, rank=rank, size=2, count=64), "/CPU:0") for rank in (0, 1)]
    epochs = []
    for _ in range(3):
        whole = [(np.asarray(x), np.asarray(y)) for x, y in islice(one, 4)]
        parts = [[(np.asarray(x), np.asarray(y)) for x, y in islice(rank, 4)] for rank in two]
        for step in range(4):
            for which in (0, 1):
                joined = np.concatenate([rank[step][which] for rank in parts])
                assert np.array_equal(joined, whole[step][which])
        epochs.append(np.concatenate([x for x, _ in whole]))
    rows = [sorted(map(tuple, epoch.tolist())) for epoch in epochs]
    assert rows[0] == rows[1] == rows[2] and not np.array_equal(epochs[0], epochs[1])


def test_the_parts_of_the_ranks_are_the_validation_samples_of_one():
    spec = Spec((6,), 10)
    whole = Generated(spec, 16, count=64).held_out()
    parts = [Generated(spec, 8, rank=rank, size=2, count=64).held_out() for rank in (0, 1)]
    assert sorted(np.concatenate([y for _, y in parts]).tolist()) == sorted(whole[1].tolist())
    assert sum(len(x) for x, _ in parts) == len(whole[0])


@pytest.mark.parametrize(
    ("name", "rule", "rate"),
    [
        ("sgd", "constant", 0.01),
        ("sgd", "linear", 0.04),
        ("sgd", "sqrt", 0.02),
        ("sgd", "warm-up", 0.01),
        ("adam", "linear", 0.004),
        ("lamb", "sqrt", 0.002),
    ],
)
def test_the_rate_of_four_ranks_follows_its_rule(name, rule, rate):
    made = optimizer(Cell("mlp", 4, 8, optimizer=name, rate_rule=rule))
    assert float(made.learning_rate.numpy()) == pytest.approx(rate) and type(made).__name__.lower() == name


def test_epochs_are_laid_end_to_end_and_end_with_the_one_that_is_good_enough():
    source = Generated(Spec((4,), 10), 8, rank=1, size=2, count=64)  # 4 steps per epoch
    cell = Cell("mlp", 2, 8, until="accuracy=0.9", max_epochs=9, data="generated")
    seen, said = [], iter([(0.5, 0.4), (0.9, 0.89), (0.95, 0.9), (1.0, 1.0)])

    def epoch(first):
        seen.append(first)
        start = 1000 * len(seen)  # judging takes the rest
        return Window(start, start + 40, [10] * 4, [1, 2, 3, 4])

    window, facts = converge(cell, source, epoch=epoch, judge=lambda: next(said))
    assert seen == [0, 4, 8]
    assert (window.start_ns, window.end_ns, len(window.step_ns)) == (1000, 1120, 12)
    assert (facts["reached"], facts["epochs"]) == (True, 3)
    assert [(one["training_ns"], one["samples"]) for one in facts["history"]] == [(40, 64), (80, 128), (120, 192)]
    _, facts = converge(replace(cell, max_epochs=2), source, epoch=epoch, judge=lambda: (0.1, 0.1))
    assert (facts["reached"], facts["epochs"]) == (False, 2)
