"""Rows that each sample takes from its own, and their gradients, against Keras's and TensorFlow's own."""

from __future__ import annotations

import re
from contextlib import nullcontext
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from keras import ops

from ringscope.ring.forms import gathered
from tests.tiers import few


def _along(x: Any, at: Any) -> Any:
    return ops.take_along_axis(x, at[(..., *[None] * (x.shape.rank - 2))], axis=1)


def _of_each(x: Any, at: Any) -> Any:
    return tf.gather(x, at % x.shape[1], axis=1, batch_dims=1)


def _run(take: Any, x: Any, at: Any, form: bool) -> Any:
    @tf.function(jit_compile=True, autograph=False)  # type: ignore[untyped-decorator]
    def run(x: Any, at: Any) -> Any:
        with gathered.rows() if form else nullcontext(), tf.GradientTape() as tape:
            tape.watch(x)
            made = take(x, at)
            weights = tf.reshape(tf.sin(tf.range(tf.size(made), dtype=tf.float32)), tf.shape(made))
            total = tf.reduce_sum(tf.cast(made, tf.float32) * weights)
        return made, tape.gradient(total, x)

    return run


def _given(shape: tuple[int, ...], count: int, dtype: str) -> tuple[Any, Any]:
    """x, and places, some of them equal and some from the end."""
    random = np.random.default_rng(0)
    at = random.integers(-shape[1], shape[1], (shape[0], count))
    return tf.cast(tf.constant(random.normal(size=shape)), dtype), tf.constant(at.astype(np.int32))


SHAPES = [((3, 7, 5), 4), ((2, 5, 3), 11), ((1, 6, 2, 3), 3), ((4, 1, 8), 2), ((2, 9, 1), 9)]


@pytest.mark.parametrize(
    ("take", "shape", "count", "dtype"),
    few([(t, *s, d) for t in (_along, _of_each) for s in SHAPES for d in ("bfloat16", "float16", "float32")], 6),
)
def test_rows_and_gradients_are_equal(take: Any, shape: tuple[int, ...], count: int, dtype: str) -> None:
    x, at = _given(shape, count, dtype)
    (mine, back), (theirs, own_back) = (_run(take, x, at, form)(x, at) for form in (True, False))
    assert mine.dtype == theirs.dtype and mine.shape == theirs.shape
    np.testing.assert_array_equal(np.asarray(tf.cast(mine, tf.float32)), np.asarray(tf.cast(theirs, tf.float32)))
    near = {"bfloat16": 3e-2, "float16": 3e-3, "float32": 1e-6}[dtype]
    np.testing.assert_allclose(
        *(np.asarray(tf.cast(each, tf.float32)) for each in (back, own_back)), atol=near, rtol=near
    )


def test_a_gradient_of_equal_places_is_summed_in_float32() -> None:
    """200 ones for one row: sums in bfloat16 would stay at 128 or 256."""
    x, at = tf.zeros((1, 2, 3), tf.bfloat16), tf.zeros((1, 200), tf.int32)

    @tf.function(jit_compile=True)  # type: ignore[untyped-decorator]
    def run(x: Any) -> Any:
        with gathered.rows(), tf.GradientTape() as tape:
            tape.watch(x)
            total = tf.reduce_sum(tf.cast(_of_each(x, at), tf.float32))
        return tape.gradient(total, x)

    np.testing.assert_array_equal(np.asarray(tf.cast(run(x), tf.float32))[0], [[200] * 3, [0] * 3])


@pytest.mark.parametrize("take", [_along, _of_each])
def test_the_program_has_no_scatter(take: Any) -> None:
    x, at = _given((3, 7, 5), 4, "bfloat16")
    texts = [_run(take, x, at, form).experimental_get_compiler_ir(x, at)(stage="hlo") for form in (True, False)]
    assert [bool(re.search(r" scatter\(", text)) for text in texts] == [False, True]


@pytest.mark.parametrize(
    ("shape", "of_indices", "axis"),
    [((3, 7, 5), (3, 4, 5), 1), ((3, 7, 5), (1, 4, 1), 1), ((3, 7, 5), (3, 1, 2), 2), ((3, 7, 5), (2, 7, 5), 0)],
)
def test_other_indices_are_taken_as_keras_takes_them(
    shape: tuple[int, ...], of_indices: tuple[int, ...], axis: int
) -> None:
    random = np.random.default_rng(0)
    x = tf.constant(random.normal(size=shape).astype(np.float32))
    at = tf.constant(random.integers(0, shape[axis], of_indices))
    own = ops.take_along_axis(x, at, axis=axis)
    with gathered.rows():
        np.testing.assert_array_equal(ops.take_along_axis(x, at, axis=axis), own)


def test_lookups_in_one_table_stay_as_they_are() -> None:
    table, at = tf.cast(tf.random.normal((50, 4)), tf.bfloat16), tf.constant([[1, 2], [3, 4]])
    with gathered.rows():
        made = tf.gather(table, at)
    np.testing.assert_array_equal(tf.cast(made, tf.float32), tf.cast(table, tf.float32).numpy()[at.numpy()])
