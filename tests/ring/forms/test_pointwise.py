"""Convolutions with filters of one pixel as products of matrices, against TensorFlow's own."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

tf = pytest.importorskip("tensorflow")
keras = pytest.importorskip("keras")

from ringscope.ring.forms import pointwise  # noqa: E402


def _convolutions(traced: Any) -> int:
    return sum(node.type == "Conv2D" for node in traced.graph.get_operations())


def _with_gradients(function: Any, *given: Any) -> tuple[list[Any], int]:
    """What it gives, the gradients of the sum of its squares, and how many convolutions were traced for it."""

    @tf.function(autograph=False, jit_compile=True)
    def both(*given: Any) -> list[Any]:
        with tf.GradientTape() as tape:
            tape.watch(given)
            made = function(*given)
            squares = tf.reduce_sum(tf.square(tf.cast(made, tf.float64)))
        return [made, *tape.gradient(squares, given)]

    traced = both.get_concrete_function(*given)
    return [np.asarray(tf.cast(each, tf.float64)) for each in traced(*given)], _convolutions(traced)


@pytest.mark.parametrize("dtype, off", [("float32", 2e-6), ("float64", 1e-14), ("bfloat16", 1e-2)])
@pytest.mark.parametrize("padding", ["SAME", "VALID"])
@pytest.mark.parametrize("strides", [1, 2, (3, 2)])
def test_values_and_gradients_are_tensorflows(dtype: str, off: float, padding: str, strides: Any) -> None:
    random = np.random.default_rng(0)
    images = tf.cast(random.normal(size=(3, 7, 8, 5)), dtype)
    filters = tf.cast(random.normal(size=(1, 1, 5, 9)), dtype)

    def convolved(images: Any, filters: Any) -> Any:
        return tf.nn.conv2d(images, filters, strides, padding)

    own, counted = _with_gradients(convolved, images, filters)
    with pointwise.as_products():
        ours, left = _with_gradients(convolved, images, filters)
    assert (counted, left) == (1, 0)
    for mine, theirs in zip(ours, own, strict=True):
        assert mine.shape == theirs.shape
        np.testing.assert_allclose(mine, theirs, rtol=0, atol=off * np.abs(theirs).max())


@pytest.mark.parametrize(
    "layer, shape, left",
    [
        (lambda: keras.layers.Conv2D(6, 1), (4, 4, 3), 0),
        (lambda: keras.layers.Conv2D(6, 1, strides=2, padding="same", activation="relu"), (5, 5, 3), 0),
        (lambda: keras.layers.Conv1D(6, 1), (7, 3), 0),
        (lambda: keras.layers.SeparableConv2D(6, 3), (5, 5, 3), 0),
        (lambda: keras.layers.Conv2D(6, (1, 3)), (4, 4, 3), 1),
        (lambda: keras.layers.Conv2D(6, 3), (4, 4, 3), 1),
        (lambda: keras.layers.Conv2D(6, 1), (None, 4, 3), 1),
    ],
)
def test_layers_of_keras_give_the_same(layer: Any, shape: tuple[int | None, ...], left: int) -> None:
    made = layer()
    images = np.random.default_rng(1).normal(size=(2, *(size or 4 for size in shape))).astype(np.float32)
    made.build((None, *shape))
    plain = made(images)

    @tf.function(autograph=False, input_signature=[tf.TensorSpec((None, *shape))])
    def traced(images: Any) -> Any:
        return made(images)

    with pointwise.as_products():
        concrete = traced.get_concrete_function()
    np.testing.assert_allclose(concrete(images), plain, atol=1e-5)
    assert _convolutions(concrete) == left


def test_filters_of_a_group_of_channels_stay_convolutions() -> None:
    images = tf.zeros((2, 4, 4, 6))
    assert pointwise._is_of_one_pixel(images, tf.zeros((1, 1, 6, 9)))
    assert not pointwise._is_of_one_pixel(images, tf.zeros((1, 1, 2, 9)))


@pytest.mark.parametrize("strides, barriers", [(1, 0), (2, 1)])
def test_pixels_are_taken_before_the_product(strides: int, barriers: int) -> None:
    """XLA for GPUs ends the process if it plans to take them inside the product of such a map (a ResNet-50 of 512 x 512
    with a feature pyramid)."""

    @tf.function(autograph=False, jit_compile=True)
    def convolved(images: Any) -> Any:
        return tf.nn.conv2d(images, tf.ones([1, 1, 5, 9]), strides, "VALID")

    with pointwise.as_products():
        text = convolved.experimental_get_compiler_ir(tf.ones([2, 8, 8, 5]))(stage="hlo")
    assert text.count(" opt-barrier(") == barriers
    assert text.count(" dot(") == 1
