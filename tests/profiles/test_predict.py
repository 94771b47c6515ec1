"""Predictions against runs made by the same formula with known constants, and order statistics against a simulation."""

from __future__ import annotations

import numpy as np
import pytest

from profiles.errors import RingscopeError
from profiles.predict import expected_largest, predict
from tests.profiles.hand import gpu, measures

ONE_NS, OTHER_NS, STEPS = 10_000_000, 300_000, 20


def _run(ranks: int, *, alpha: int, per_byte: int, sigma: int):  # type: ignore[no-untyped-def]
    """A run of the model: every GPU's step, its all-reduce's transfer (nothing hidden) and its waiting."""
    transfer = 2 * (ranks - 1) * alpha + 2 * (ranks - 1) * per_byte // ranks
    waiting = round(sigma * expected_largest(ranks)) if ranks > 1 else 0
    step = ONE_NS + (OTHER_NS + transfer + waiting if ranks > 1 else 0)
    each = gpu(
        steps=STEPS,
        step_ns=step,
        ledger={"compute": ONE_NS, "collective": transfer + waiting if ranks > 1 else 0},
        waiting=waiting if ranks > 1 else None,
        transfer=transfer if ranks > 1 else None,
    )
    return measures([each] * ranks), step


@pytest.mark.parametrize("ranks", [2, 4, 8, 64])
def test_a_ring_that_is_all_bandwidth_is_predicted_exactly(ranks: int) -> None:
    one, two = (_run(n, alpha=0, per_byte=1_000_000, sigma=50_000)[0] for n in (1, 2))
    (found,) = predict(one, two, [ranks])
    assert found.step_ns == pytest.approx(_run(ranks, alpha=0, per_byte=1_000_000, sigma=50_000)[1], abs=ranks + 5)
    assert found.efficiency == pytest.approx(ONE_NS / found.step_ns, rel=1e-6)


@pytest.mark.parametrize("alpha", [0, 1_000, 20_000])
def test_the_interval_holds_the_truth_whatever_part_is_latency(alpha: int) -> None:
    one, two = (_run(n, alpha=alpha, per_byte=200_000, sigma=0)[0] for n in (1, 2))
    for found in predict(one, two, [2, 4, 8]):
        truth = _run(found.ranks, alpha=alpha, per_byte=200_000, sigma=0)[1]
        assert found.low_ns - 1 <= truth <= found.high_ns + 1


@pytest.mark.parametrize("count", [2, 4, 8])
def test_the_largest_of_n_normals_agrees_with_a_simulation(count: int) -> None:
    drawn = np.random.default_rng(0).normal(size=(400_000, count)).max(axis=1)
    assert expected_largest(count) == pytest.approx(drawn.mean(), abs=0.005)


def test_anything_but_one_and_two_gpus_is_refused() -> None:
    one, _ = _run(1, alpha=0, per_byte=0, sigma=0)
    with pytest.raises(RingscopeError, match="1 GPU and of 2"):
        predict(one, one, [4])
