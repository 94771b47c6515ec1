"""Bilinear resizing in mixed precision, compiled by XLA, against Keras's own in float32, uncompiled."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import layers, ops

from harness.ring.forms import forms, resized


def _enlarged() -> keras.Model:
    x = inputs = keras.Input((6, 6, 3))
    for filters in (8, 4):
        x = layers.Conv2D(filters, 3, padding="same")(x)
        x = layers.UpSampling2D(2, interpolation="bilinear")(x * x)
    return keras.Model(inputs, ops.image.resize(x, (9, 5)))


def _gradients(model: keras.Model, *, compiled: bool, form: bool) -> list[np.ndarray]:
    @tf.function(jit_compile=compiled, autograph=False)  # type: ignore[untyped-decorator]
    def step(x: Any) -> Any:
        with forms(model) if form else nullcontext(), tf.GradientTape() as tape:
            loss = tf.reduce_sum(tf.square(tf.cast(model(x, training=True), tf.float32)))
        return [loss, *tape.gradient(loss, model.trainable_variables)]

    x = tf.constant(np.random.default_rng(0).normal(size=(2, 6, 6, 3)), tf.float32)
    return [np.asarray(each) for each in step(x)]


@pytest.fixture(params=["mixed_bfloat16", "mixed_float16"])
def model(request: pytest.FixtureRequest) -> Any:
    before = keras.config.dtype_policy()
    keras.config.set_dtype_policy(request.param)
    keras.utils.set_random_seed(0)
    yield _enlarged()
    keras.config.set_dtype_policy(before)


def test_gradients_go_through_it_as_they_do_in_float32(model: keras.Model) -> None:
    near = 2e-2  # roundings of 8 bits; uncompiled, TensorFlow's CPU kernels sum gradients of kernels in 16 bits
    keras.config.set_dtype_policy("float32")
    exact = _enlarged()
    exact.set_weights(model.get_weights())
    plain = _gradients(exact, compiled=False, form=False)
    for mine, theirs in zip(_gradients(model, compiled=True, form=True), plain, strict=True):
        np.testing.assert_allclose(mine, theirs, atol=near * np.abs(theirs).max())


def test_without_the_form_xla_refuses_it(model: keras.Model) -> None:
    """Where a TensorFlow compiles it, the form may go."""
    with pytest.raises(tf.errors.OpError, match="mixed precision is disallowed|different precisions|must match"):
        _gradients(model, compiled=True, form=False)


def test_images_of_float32_and_of_integers_are_resized_as_they_were() -> None:
    for images in (
        np.arange(48, dtype=np.float32).reshape(1, 4, 4, 3),
        np.arange(48, dtype=np.uint8).reshape(1, 4, 4, 3),
    ):
        own = tf.image.resize(images, (7, 3))
        with resized.wide():
            np.testing.assert_array_equal(tf.image.resize(images, (7, 3)), own)
