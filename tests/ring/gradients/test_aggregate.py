"""Gradients of several calls, applied once: against a mean that NumPy takes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

pytest.importorskip("tensorflow", reason="TensorFlow is not installed")
pytest.importorskip("horovod.tensorflow", reason="Horovod is not installed")
import tensorflow as tf

from ringscope.ring.gradients.aggregate import aggregated


@pytest.mark.parametrize("every", [2, 3])
@pytest.mark.parametrize("traced", [False, True])
def test_the_mean_of_so_many_calls_is_applied_once_in_so_many(every: int, traced: bool) -> None:
    """Of a dense gradient, one that is none, rows, and one that is overwritten, of which the largest counts."""
    mean, rows, largest = tf.Variable([0.0, 0.0]), tf.Variable([[0.0], [0.0], [0.0]]), tf.Variable(0.0)
    applied = tf.Variable(0)

    def update(gradients: Any, variables: Any) -> None:
        assert gradients[1] is None
        for variable, gradient in zip((mean, rows, largest), (gradients[0], *gradients[2:]), strict=True):
            variable.assign(gradient)
        applied.assign_add(1)

    add = aggregated(update, every, {}, lambda _: [3])

    def step(dense: Any, row: Any, one: Any) -> None:
        add(
            [dense, None, tf.IndexedSlices(tf.reshape(row, [1, 1]), tf.constant([1]), tf.constant([3, 1])), one],
            [None] * 4,
        )

    call = tf.function(step, autograph=False) if traced else step
    given = np.random.default_rng(0).normal(size=(2 * every, 4)).astype("float32")
    for number, numbers in enumerate(given, 1):
        call(tf.constant(numbers[:2]), tf.constant(numbers[2]), tf.constant(numbers[3]))
        assert int(applied) == number // every
        if number % every == 0:
            last = given[number - every : number]
            np.testing.assert_allclose(mean, last[:, :2].mean(axis=0), rtol=1e-6)
            np.testing.assert_allclose(rows, [[0], [last[:, 2].mean()], [0]], rtol=1e-6)
            assert float(largest) == max(0.0, last[:, 3].max())


def test_what_is_computed_in_few_bits_is_added_up_in_more() -> None:
    kept: list[Any] = []
    add = aggregated(lambda gradients, _: kept.append(gradients[0]), 4, {}, lambda _: [])
    for number in (256.0, 1.0, 1.0, 1.0):  # bfloat16 has no 257
        add([tf.constant(number, tf.bfloat16)], [None])
    assert kept[-1].dtype == tf.float32 and float(kept[-1]) == 259 / 4
