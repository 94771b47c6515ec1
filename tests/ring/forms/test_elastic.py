"""Keras's RandomElasticTransform in its form: the same pixels as by Keras's own layer, which XLA refuses."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from ringscope.ring.forms import elastic, forms
from tests.tiers import few

pytestmark = pytest.mark.ci  # seconds each; no other code leans on this form
DRAWS = 6  # batches, each of which has another blur


def _batches(images: np.ndarray, *, formed: bool, **options: Any) -> list[np.ndarray]:
    layer = keras.layers.RandomElasticTransform(factor=1.0, scale=1.0, seed=3, **options)

    @tf.function(autograph=False)  # type: ignore[untyped-decorator]
    def run(given: Any) -> Any:
        with elastic.at_once() if formed else nullcontext():
            return layer(given, training=True)

    return [np.asarray(tf.cast(run(tf.constant(images)), tf.float32)) for _ in range(DRAWS)]


def _both(images: np.ndarray, **options: Any) -> list[list[np.ndarray]]:
    """Without XLA, which draws other random numbers."""
    return [_batches(images, formed=formed, **options) for formed in (False, True)]


def _images(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).uniform(0, 255, shape).astype(np.float32)


MODES = ["constant", "nearest", "wrap", "reflect"]
# Each mode in one way, and in the other now and then.
CASES = [(mode, ("bilinear", "nearest")[(k + more) % 2]) for k, mode in enumerate(MODES) for more in range(2)]


@pytest.mark.parametrize(("mode", "interpolation"), few(CASES, 2))
def test_pixels_are_kerass(mode: str, interpolation: str) -> None:
    images = _images(2, 61, 47, 3)
    own, made = _both(images, fill_mode=mode, interpolation=interpolation, fill_value=40.0)
    for kerass, each in zip(own, made, strict=True):
        if interpolation == "nearest":  # at the border between two pixels rounding decides
            assert (np.abs(kerass - each) < 1e-3).mean() > 0.999
        else:
            np.testing.assert_allclose(each, kerass, atol=0.05)
    assert np.abs(made[0] - images).max() > 50 and np.abs(made[0] - made[1]).max() > 50


def test_pixels_are_kerass_with_channels_first_too() -> None:
    images = _images(2, 3, 40, 44)
    own, made = _both(images, data_format="channels_first")
    np.testing.assert_allclose(made, own, atol=0.05)


def test_in_bfloat16_pixels_are_within_4_of_kerass_on_average() -> None:
    images = _images(2, 64, 64, 3)
    own, made = _both(images, dtype="bfloat16")
    apart = [np.abs(kerass - each).mean() for kerass, each in zip(own, made, strict=True)]
    assert max(apart) < 4


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_xla_compiles_it_among_all_forms_and_each_batch_is_moved_otherwise(dtype: str) -> None:
    images = _images(2, 40, 44, 3)
    layer = keras.layers.RandomElasticTransform(factor=1.0, scale=1.0, seed=3, dtype=dtype)
    model = keras.Sequential([keras.Input(images.shape[1:]), layer])

    @tf.function(jit_compile=True, autograph=False)  # type: ignore[untyped-decorator]
    def run(given: Any) -> Any:
        with forms(model):
            return tf.cast(model(given, training=True), tf.float32)

    first, second = (np.asarray(run(tf.constant(images))) for _ in range(2))
    assert np.isfinite(first).all() and np.abs(first - images).max() > 20 and np.abs(first - second).max() > 20
