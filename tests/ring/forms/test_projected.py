"""Projected images compiled by XLA against TensorFlow's own kernel, uncompiled: its values and its gradients."""

from __future__ import annotations

from contextlib import nullcontext
from itertools import product
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from ringscope.ring.forms import projected

pytestmark = pytest.mark.ci  # seconds each; no other code leans on these forms

MODES = ["CONSTANT", "REFLECT", "WRAP", "NEAREST"]
TYPES = ["bfloat16", "float16", "float64", "uint8", "int32"]
SIZES = [(13, 20, 13, 20), (9, 6, 12, 5), (1, 7, 4, 4), (6, 1, 6, 1)]
INTERPOLATIONS = ["BILINEAR", "NEAREST"]
# Two modes between four pixels (Keras's layers below have the others), and each type of number in one way; others now
# and then.
CASES = [("float32", mode, how) for how, mode in product(INTERPOLATIONS, MODES)]
CASES += [(dtype, "CONSTANT", how) for k, dtype in enumerate(TYPES) for how in INTERPOLATIONS[:: 1 - k % 2 * 2]]
IN_CI = {CASES[0], *CASES[3:5], *CASES[8::2]}


def _transforms(random: np.random.Generator, batch: int, *, projective: bool) -> np.ndarray:
    """Turned, stretched and moved, by up to three times an image's size, so that each fill is asked for."""
    angle, stretch = random.uniform(-0.6, 0.6, batch), random.uniform(0.6, 1.4, (batch, 2))
    away = random.uniform(-4, 4, (batch, 2)) * np.array([1, 1, 10, 10][:batch])[:, np.newaxis]
    by_depth = random.uniform(-5e-3, 5e-3, (batch, 2)) * projective
    numbers = [np.cos(angle) * stretch[:, 0], -np.sin(angle), away[:, 0], np.sin(angle)]
    numbers += [np.cos(angle) * stretch[:, 1], away[:, 1], by_depth[:, 0], by_depth[:, 1]]
    return np.stack(numbers, 1).astype(np.float32)


def _made(images: Any, transforms: Any, after: tuple[int, int], *how: Any, form: bool) -> list[np.ndarray]:
    """New pixels, and what comes back of a gradient that differs by place."""

    @tf.function(jit_compile=form, autograph=False)  # type: ignore[untyped-decorator]
    def run(images: Any, transforms: Any) -> Any:
        interpolation, mode, fill = how
        with projected.gathered() if form else nullcontext(), tf.GradientTape() as tape:
            tape.watch(images)
            made = tf.raw_ops.ImageProjectiveTransformV3(
                images=images,
                transforms=transforms,
                output_shape=list(after),
                fill_value=fill,
                interpolation=interpolation,
                fill_mode=mode,
            )
        if images.dtype in (tf.bfloat16, tf.uint8, tf.int32):  # for which TensorFlow has no gradient
            return [made]
        weights = tf.cast(tf.reshape(tf.sin(tf.range(tf.size(made), dtype=tf.float32)), tf.shape(made)), made.dtype)
        return [made, tape.gradient(made, images, weights)]

    return [np.asarray(tf.cast(each, tf.float64)) for each in run(images, tf.constant(transforms))]


def _assert_alike(mine: list[np.ndarray], theirs: list[np.ndarray], *, at_most: float, share: float) -> None:
    """A place on the edge between two pixels may round to the other: of `share` of the pixels at most."""
    for form, own in zip(mine, theirs, strict=True):
        apart = np.abs(form - own) > at_most * max(1.0, np.abs(own).max())
        assert form.shape == own.shape and apart.mean() <= share


@pytest.mark.parametrize(
    ("dtype", "mode", "interpolation"),
    [pytest.param(*case, marks=[pytest.mark.exhaustive] * (case not in IN_CI)) for case in CASES],
)
def test_pixels_and_gradients_are_tensorflows(dtype: str, mode: str, interpolation: str) -> None:
    random = np.random.default_rng(0)
    for rows, columns, *after in SIZES if dtype == "float32" else SIZES[:1]:
        images = tf.cast(tf.constant(random.uniform(0, 255, (4, rows, columns, 3))), dtype)
        transforms = _transforms(random, 4, projective=rows == SIZES[0][0])
        given = images, transforms, tuple(after), interpolation, mode, 7.5
        mine, theirs = (_made(*given, form=form) for form in (True, False))
        whole = not images.dtype.is_floating  # cut to a whole number, one rounding apart
        at_most = 1.01 / 255 if whole else {2: 8e-3, 4: 5e-5, 8: 5e-5}[images.dtype.size]
        _assert_alike(mine, theirs, at_most=at_most, share=2e-3)


def test_one_transform_is_all_images_and_no_image_is_itself() -> None:
    images = np.random.default_rng(0).uniform(size=(3, 8, 8, 2)).astype(np.float32)
    transforms = _transforms(np.random.default_rng(1), 1, projective=True) * [1, 1, 0.1, 1, 1, 0.1, 1, 1]
    given = tf.constant(images), transforms.astype(np.float32), (8, 8), "BILINEAR", "CONSTANT", 0.0
    _assert_alike(_made(*given, form=True), _made(*given, form=False), at_most=1e-5, share=0)
    same = np.array([[1, 0, 0, 0, 1, 0, 0, 0]], np.float32)
    made, back = _made(tf.constant(images), same, (8, 8), "BILINEAR", "REFLECT", 0.0, form=True)
    np.testing.assert_array_equal(made, images.astype(np.float64))
    assert np.abs(back).max() > 0.9


def test_sizes_that_only_xla_knows_are_read_too() -> None:
    own = tf.raw_ops.ImageProjectiveTransformV3
    images = np.random.default_rng(0).uniform(size=(3, 9, 8, 2)).astype(np.float32)
    transforms = _transforms(np.random.default_rng(1), 3, projective=False) * np.float32(0.5)

    def run(images: Any, transform: Any) -> Any:
        how = {"fill_value": 0.5, "interpolation": "BILINEAR", "fill_mode": "REFLECT"}
        return transform(images=images, transforms=transforms, output_shape=tf.shape(images)[1:-1], **how)

    signature = [tf.TensorSpec((None, None, None, 2), tf.float32)]

    @tf.function(jit_compile=True, autograph=False, input_signature=signature)  # type: ignore[untyped-decorator]
    def compiled(images: Any) -> Any:
        with projected.gathered():
            return run(images, tf.raw_ops.ImageProjectiveTransformV3)

    np.testing.assert_allclose(compiled(images), run(images, own), atol=1e-5)


# Of one strength only, so that what is drawn is the same.
LAYERS: dict[str, dict[str, Any]] = {
    "RandomRotation": {"factor": (0.1, 0.1), "fill_mode": "constant"},
    "RandomZoom": {"height_factor": (0.2, 0.2), "width_factor": (-0.3, -0.3), "interpolation": "nearest"},
    "RandomTranslation": {"height_factor": (0.2, 0.2), "width_factor": (-0.3, -0.3), "fill_mode": "wrap"},
}


@pytest.mark.parametrize("name", LAYERS)
@pytest.mark.parametrize("data_format", ["channels_last", pytest.param("channels_first", marks=pytest.mark.exhaustive)])
def test_kerass_layers_train_compiled_as_they_do_uncompiled(name: str, data_format: str) -> None:
    layer = getattr(keras.layers, name)(**LAYERS[name], data_format=data_format)
    images = np.random.default_rng(0).uniform(0, 255, (4, 12, 12, 12)).astype(np.float32)

    def run(images: Any) -> Any:
        return layer(images, training=True)

    def formed(images: Any) -> Any:
        with projected.gathered():
            return run(images)

    plain = tf.function(run, autograph=False)(images)
    compiled = tf.function(formed, autograph=False, jit_compile=True)(images)
    assert np.mean(np.abs(compiled - plain) > 1e-3) <= 2e-3
    with pytest.raises(tf.errors.OpError, match="ImageProjectiveTransformV3"):
        tf.function(run, autograph=False, jit_compile=True)(images)


@pytest.mark.parametrize(
    "layer",
    [keras.layers.RandomPerspective(1.0, 0.4, seed=1), keras.layers.RandomShear((0.3, 0.4), (0.3, 0.4))],
    ids=lambda layer: type(layer).__name__,
)
def test_layers_that_draw_all_they_do_are_compiled(layer: Any) -> None:
    images = np.random.default_rng(0).uniform(0, 255, (4, 12, 12, 3)).astype(np.float32)

    @tf.function(jit_compile=True, autograph=False)  # type: ignore[untyped-decorator]
    def run(images: Any) -> Any:
        with projected.gathered():
            return layer(images, training=True)

    made = run(images)
    assert np.isfinite(made).all() and np.abs(made - images).max() > 1
