"""Slices at a place that the step computes: Keras's results and gradients, and no second compilation."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from ringscope.ring.forms import augmented, sliced
from ringscope.ring.step import checks

IMAGES = np.random.default_rng(0).uniform(0, 255, (4, 12, 13, 3)).astype(np.float32)
PLACES = ((0, 0), (4, 4), (3, 1))  # first rows and columns of a crop of 8 x 9


@pytest.mark.parametrize("policy", ["float32", "bfloat16"])
@pytest.mark.parametrize("given", ["channels_last", "channels_first", "one image"])
def test_a_random_crop_takes_what_keras_takes(given: str, policy: str) -> None:
    images = {"channels_last": IMAGES, "channels_first": np.moveaxis(IMAGES, 3, 1), "one image": IMAGES[0]}[given]
    form = "channels_first" if given == "channels_first" else "channels_last"
    layer = keras.layers.RandomCrop(8, 9, data_format=form, dtype=policy)
    place, images = tf.Variable([0, 0]), tf.constant(images)

    def cut(first: Any) -> Any:
        with tf.GradientTape() as tape:
            tape.watch(images)
            made = layer.transform_images(images, (first[0], first[1]))
            total = tf.reduce_sum(tf.square(tf.cast(made, tf.float32)))
        return made, tape.gradient(total, images)

    @tf.function(jit_compile=True, autograph=False)  # type: ignore[untyped-decorator]
    def run() -> Any:
        with augmented.compiled(), sliced.anywhere():
            return cut(place + 0)

    for first in PLACES:
        place.assign(first)
        for mine, kerass in zip(run(), cut(tf.constant(first)), strict=True):
            assert mine.dtype == kerass.dtype
            np.testing.assert_array_equal(tf.cast(mine, tf.float32), tf.cast(kerass, tf.float32))


X = np.random.default_rng(1).integers(-4, 5, (3, 4, 5, 6)).astype(np.float32)  # whose powers are exact
PICKS: dict[str, Any] = {
    "x[i]": lambda x, i, j: x[i],
    "x[1:, i]": lambda x, i, j: x[1:, i],
    "x[i, j]": lambda x, i, j: x[i, j],
    "x[..., i, ::2]": lambda x, i, j: x[..., i, ::2],
    "x[..., i, None, 0]": lambda x, i, j: x[..., i, None, 0],
    "x[0, i, ..., None, j]": lambda x, i, j: x[0, i, ..., None, j],
    "of int64": lambda x, i, j: x[:, tf.cast(i, tf.int64)],
    "an end that is known": lambda x, i, j: tf.strided_slice(x, tf.stack([0, i]), [3, 1], [1, 1], shrink_axis_mask=2),
}


def _twice(take: Any, x: Any, i: Any, j: Any) -> list[Any]:
    """What is taken, its gradient, and the gradient of that gradient's squares."""
    with tf.GradientTape() as outer:
        outer.watch(x)
        with tf.GradientTape() as tape:
            tape.watch(x)
            taken = take(x, i, j)
            cubes = tf.reduce_sum(tf.cast(taken, tf.float32) ** 3)
        gradient = tape.gradient(cubes, x)
        squares = tf.reduce_sum(tf.cast(gradient, tf.float32) ** 2)
    return [taken, gradient, outer.gradient(squares, x)]


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("pick", PICKS)
def test_an_index_that_the_step_computes_takes_what_tensorflow_takes(pick: str, dtype: str) -> None:
    take, x = PICKS[pick], tf.cast(X, dtype)
    drawn = tf.Variable([0, 0])

    @tf.function(jit_compile=True, autograph=False)  # type: ignore[untyped-decorator]
    def run() -> Any:
        drawn.assign_add([0, 0])  # a place that the step changes itself
        with sliced.anywhere():
            return _twice(take, x, *tf.unstack(drawn.read_value()))

    assert checks.check_sizes(run.get_concrete_function().graph) == ""
    for places in ((0, 0), (2, 1), (-1, -2), (-3, 2)):
        drawn.assign(places)
        for mine, tensorflows in zip(run(), _twice(take, x, *tf.unstack(tf.constant(places))), strict=True):
            assert mine.dtype == tensorflows.dtype
            np.testing.assert_array_equal(tf.cast(mine, tf.float32), tf.cast(tensorflows, tf.float32))


def test_an_index_out_of_range_is_moved_into_range() -> None:
    @tf.function(jit_compile=True, autograph=False)  # type: ignore[untyped-decorator]
    def run(i: Any) -> Any:
        with sliced.anywhere():
            return tf.constant(X)[:, i]

    for index, last in ((4, 3), (99, 3), (-5, 0)):  # errors in TensorFlow
        np.testing.assert_array_equal(run(tf.constant(index)), X[:, last])


@pytest.mark.parametrize("take", [lambda x, i: x[1, :i], lambda x, i: x[:i, i], lambda x, i: x[::i, 1]])
def test_a_length_that_the_step_computes_stays_tensorflows(take: Any) -> None:
    @tf.function(autograph=False)  # type: ignore[untyped-decorator]
    def run(i: Any) -> Any:
        with sliced.anywhere():
            return take(tf.constant(X), i)

    graph = run.get_concrete_function(tf.TensorSpec((), tf.int32)).graph
    assert "XlaDynamicSlice" not in [op.type for op in graph.get_operations()]
    np.testing.assert_array_equal(run(tf.constant(2)), take(X, 2))


def test_a_whole_batch_is_cropped_at_a_random_place_as_by_tensorflow() -> None:
    """`tf.image.random_crop` with the size of the batch by `tf.shape`."""

    @tf.function(autograph=False)  # type: ignore[untyped-decorator]
    def run(images: Any) -> Any:
        with sliced.anywhere():
            return tf.image.random_crop(images, [tf.shape(images)[0], 8, 9, 3], seed=3)

    compiled = run.get_concrete_function(tf.TensorSpec(IMAGES.shape))
    kinds = [op.type for op in compiled.graph.get_operations()]
    assert "XlaDynamicSlice" in kinds and "Slice" not in kinds
    made = np.asarray(compiled(tf.constant(IMAGES)))
    cuts = [IMAGES[:, i : i + 8, j : j + 9] for i in range(5) for j in range(5)]
    assert any(np.array_equal(made, cut) for cut in cuts)


def test_a_slice_of_known_places_or_up_to_an_end_stays_tensorflows() -> None:
    @tf.function(autograph=False)  # type: ignore[untyped-decorator]
    def run(place: Any) -> Any:
        with sliced.anywhere():
            return tf.slice(place, [1], [2]), tf.slice(place, place[:1], [-1])

    kinds = [op.type for op in run.get_concrete_function(tf.TensorSpec((4,), tf.int32)).graph.get_operations()]
    assert kinds.count("Slice") == 2 and not any("Dynamic" in kind for kind in kinds)
