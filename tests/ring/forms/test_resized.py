"""Resizing compiled by XLA, in mixed precision too, against TensorFlow's own kernel in float32, uncompiled."""

from __future__ import annotations

from contextlib import nullcontext
from itertools import product
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import layers, ops
from tensorflow.python.ops import gen_image_ops

from ringscope.ring.forms import forms, resized
from tests.tiers import few


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


@pytest.mark.parametrize(("rows", "columns"), few([(12, 12), (9, 5), (4, 3)]))
@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_bilinear_results_and_gradients_are_kerass_without_its_masks(dtype: str, rows: int, columns: int) -> None:
    most = float(tf.dtypes.as_dtype(dtype).max)
    x = np.random.default_rng(0).normal(size=(2, 6, 6, 3)) * 10
    x[0, :3, :3], x[0, 4:, 4:] = most, -most  # where a sum that is rounded up would leave the type's range
    given = tf.cast(tf.constant(x), dtype)

    def run(given: Any) -> Any:
        with tf.GradientTape() as tape:
            tape.watch(given)
            made = ops.image.resize(given, (rows, columns), interpolation="bilinear")
            wave = tf.cast(tf.reshape(tf.sin(tf.range(tf.size(made), dtype=tf.float32)), tf.shape(made)), dtype)
            total = tf.reduce_sum(made * wave)
        return made, tape.gradient(total, given)

    theirs = run(given)
    with resized.by_own_weights():
        compiled = tf.function(run, jit_compile=True, autograph=False)
        ours = compiled(given)
        text = compiled.experimental_get_compiler_ir(given)(stage="hlo")
    assert ours[0].dtype == given.dtype and not {"minimum", "compare", "clamp"} & set(text.replace("(", " ").split())
    for own, right in zip(ours, theirs, strict=True):
        own, right = (np.asarray(tf.cast(each, tf.float64)) for each in (own, right))
        assert np.isfinite(right).all()
        np.testing.assert_allclose(own, right, rtol=2**-7, atol=2**-6)


@pytest.mark.parametrize(
    ("policy", "dtype", "stored"),
    [("mixed_bfloat16", "float32", 2), ("mixed_bfloat16", "bfloat16", 0), ("float32", "float32", 0)],
)
def test_float32_logits_of_a_mixed_precision_model_and_their_gradient_are_stored(
    policy: str, dtype: str, stored: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keras.config, "dtype_policy", lambda: keras.DTypePolicy(policy))
    random = np.random.default_rng(0)
    given, labels = tf.cast(random.normal(size=(2, 4, 4, 3)), dtype), tf.constant(random.integers(0, 3, (2, 16, 16)))

    def run(given: Any, labels: Any) -> Any:
        with tf.GradientTape() as tape:
            tape.watch(given)
            logits = tf.cast(layers.UpSampling2D(4, interpolation="bilinear", dtype=dtype)(given), tf.float32)
            loss = keras.losses.sparse_categorical_crossentropy(labels, logits, from_logits=True)
        return loss, tape.gradient(loss, given)

    theirs = run(given, labels)
    with resized.by_own_weights():
        compiled = tf.function(run, jit_compile=True, autograph=False)
        ours = compiled(given, labels)
        text = compiled.experimental_get_compiler_ir(given, labels)(stage="hlo")
    assert text.count(" opt-barrier(") == stored
    for own, right in zip(ours, theirs, strict=True):
        own, right = (np.asarray(tf.cast(each, tf.float64)) for each in (own, right))
        np.testing.assert_allclose(own, right, atol=1e-5 if dtype == "float32" else 3e-2)


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
        with resized.by_own_weights():
            np.testing.assert_allclose(tf.image.resize(images, (7, 3)), own, rtol=1e-6)


METHODS = ["bilinear", "nearest", "bicubic", "area", "lanczos3", "lanczos5", "gaussian", "mitchellcubic"]


@pytest.mark.parametrize(("batch", "antialias", "method"), few(product([2, None], [False, True], METHODS)))
def test_all_methods_give_pixels_and_gradients_of_tensorflows_kernels(
    method: str, antialias: bool, batch: int | None
) -> None:
    random = np.random.default_rng(0)
    sizes = [(6, 5, 15, 3), (9, 4, 4, 9), (7, 7, 21, 14)]
    images = [random.uniform(0, 255, (2, rows, columns, 3)).astype(np.float32) for rows, columns, *_ in sizes]
    back = [random.normal(size=(2, *after, 3)).astype(np.float32) for _, _, *after in sizes]

    def step(*images: Any) -> Any:
        results = []
        for image, gradient in zip(images, back, strict=True):
            with tf.GradientTape() as tape:
                tape.watch(image)
                result = tf.image.resize(image, gradient.shape[1:3], method=method, antialias=antialias)
            results += [result] if method == "area" else [result, tape.gradient(result, image, gradient)]
        return results

    def formed(*images: Any) -> Any:
        with resized.by_own_weights():
            return step(*images)

    signature = [tf.TensorSpec((batch, *image.shape[1:]), tf.float32) for image in images]
    compiled = tf.function(formed, jit_compile=True, autograph=False, input_signature=signature)
    for mine, theirs in zip(compiled(*images), step(*map(tf.constant, images)), strict=True):
        np.testing.assert_allclose(mine, theirs, atol=2e-5 * max(1, np.abs(theirs).max()))


@pytest.mark.parametrize("dtype", ["uint8", "int32", "float16", "float64"])
def test_the_nearest_pixel_keeps_its_type(dtype: str) -> None:
    images = tf.cast(tf.constant(np.random.default_rng(0).uniform(0, 255, (2, 6, 5, 3))), dtype)

    @tf.function(jit_compile=True, autograph=False)  # type: ignore[untyped-decorator]
    def run(images: Any) -> Any:
        with resized.by_own_weights():
            return tf.image.resize(images, (9, 3), method="nearest")

    np.testing.assert_array_equal(run(images), tf.image.resize(images, (9, 3), method="nearest"))


def test_what_comes_back_of_a_larger_image_is_no_scatter() -> None:
    @tf.function(jit_compile=True, autograph=False)  # type: ignore[untyped-decorator]
    def back(image: Any) -> Any:
        with resized.by_own_weights(), tf.GradientTape() as tape:
            tape.watch(image)
            result = tf.reduce_sum(tf.square(tf.image.resize(image, (16, 16))))
        return tape.gradient(result, image)

    assert "scatter" not in back.experimental_get_compiler_ir(tf.zeros((1, 4, 4, 2)))(stage="optimized_hlo")


# Rows before and after: centres that meet, by odd factors and between them, and some that do not.
ROWS = [(4, 12), (5, 9), (6, 10), (7, 21), (9, 4), (10, 18), (4, 10), (5, 13), (6, 18), (8, 14), (8, 1), (3, 3), (4, 8)]


def _resized_rows(*, compiled: bool, form: bool, **centres: bool) -> list[np.ndarray]:
    """Images of all sizes, and what comes back to them of different gradients."""
    random = np.random.default_rng(0)
    images = [tf.constant(random.normal(size=(2, before, 3, 2)), tf.float32) for before, _ in ROWS]
    back = [tf.constant(random.normal(size=(2, after, 5, 2)), tf.float32) for _, after in ROWS]

    @tf.function(jit_compile=compiled, autograph=False)  # type: ignore[untyped-decorator]
    def step(images: Any, back: Any) -> Any:
        results = []
        with resized.by_own_weights() if form else nullcontext():
            for image, gradient in zip(images, back, strict=True):
                with tf.GradientTape() as tape:
                    tape.watch(image)
                    result = gen_image_ops.resize_bilinear(image, gradient.shape[1:3], **centres)
                results += [result, tape.gradient(result, image, gradient)]
        return results

    return [each.numpy() for each in step(images, back)]


@pytest.mark.parametrize("centres", [{"half_pixel_centers": True}, {}, {"align_corners": True}], ids=str)
def test_new_pixels_on_old_ones_are_tensorflows(centres: dict[str, bool]) -> None:
    plain = _resized_rows(compiled=False, form=False, **centres)
    for mine, theirs in zip(_resized_rows(compiled=True, form=True, **centres), plain, strict=True):
        np.testing.assert_allclose(mine, theirs, atol=1e-5)


def test_without_the_form_xla_takes_the_next_pixels_weights() -> None:
    """Where a TensorFlow does not, the form may go (tensorflow/tensorflow#118344)."""
    plain, xlas = (_resized_rows(compiled=compiled, form=False, half_pixel_centers=True) for compiled in (False, True))
    assert max(np.abs(mine - theirs).max() for mine, theirs in zip(xlas, plain, strict=True)) > 0.1


def test_a_pixel_spoils_none_that_is_not_made_of_it() -> None:
    """Of seven rows made three, the first is made of two and the second of one: its other weight, zero, reads none."""
    image = np.ones((1, 7, 7, 1), np.float32)
    image[0, 0] = np.nan

    @tf.function(jit_compile=True, autograph=False)  # type: ignore[untyped-decorator]
    def smaller(image: Any) -> Any:
        with resized.by_own_weights():
            return tf.image.resize(image, (3, 3))

    np.testing.assert_array_equal(smaller(image), tf.image.resize(image, (3, 3)))
