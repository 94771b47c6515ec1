"""Augmentation that XLA has no kernels for: gamma-distributed numbers by their moments, Keras's layers compiled."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from ringscope.ring.forms import augmented, projected

pytestmark = pytest.mark.ci  # seconds each; no other code leans on these forms


def _drawn(alpha: float, dtype: str = "float32", seed: int = 3) -> np.ndarray:
    @tf.function(jit_compile=True, autograph=False)  # type: ignore[untyped-decorator]
    def run() -> Any:
        with augmented.compiled():
            return tf.random.stateless_gamma([200_000], seed=[seed, 5], alpha=alpha, dtype=dtype)

    return np.asarray(run()).astype(float)


@pytest.mark.parametrize("alpha", [0.2, 1.0, 3.7])
def test_numbers_are_distributed_as_gamma_distributions_are(alpha: float) -> None:
    made, own = _drawn(alpha), np.random.default_rng(0).gamma(alpha, size=200_000)
    assert (made >= 0).all()
    error = np.sqrt(alpha / made.size)
    assert abs(made.mean() - alpha) < 5 * error and abs(made.var() - alpha) < 0.03 * (1 + alpha)
    shares = [0.02, 0.1, 0.3, 0.5, 0.7, 0.9, 0.99]  # of which each is told to 0.001
    for share, place in zip(shares, np.quantile(own, shares), strict=True):
        assert abs((made < place).mean() - share) < 0.006
    assert abs(np.corrcoef(made[1:], made[:-1])[0, 1]) < 0.012
    assert abs(np.corrcoef(made, _drawn(alpha, seed=4))[0, 1]) < 0.012


def test_what_they_depend_on_has_no_gradient_and_says_so() -> None:
    alpha = tf.Variable(2.0)
    with augmented.compiled(), tf.GradientTape() as tape:
        made = tf.random.stateless_gamma([3], seed=[1, 2], alpha=alpha)
    with pytest.raises(NotImplementedError, match="alpha"):
        tape.gradient(made, alpha)


def _compiled(layer: Any, given: Any) -> Any:
    @tf.function(jit_compile=True, autograph=False)  # type: ignore[untyped-decorator]
    def run(given: Any) -> Any:
        with augmented.compiled(), projected.gathered():
            return layer(given, training=True)

    return run(given)


@pytest.mark.parametrize("name", ["MixUp", "CutMix"])
def test_layers_that_mix_samples_and_their_labels_are_compiled(name: str) -> None:
    random = np.random.default_rng(0)
    images, labels = random.uniform(0, 255, (8, 12, 12, 3)).astype(np.float32), np.eye(8, dtype=np.float32)
    made = _compiled(getattr(keras.layers, name)(seed=1), {"images": images, "labels": labels})
    shares = np.asarray(made["labels"])
    np.testing.assert_allclose(shares.sum(axis=1), 1, atol=1e-5)
    assert np.isfinite(made["images"]).all() and ((shares > 0.01) & (shares < 0.99)).any()


# RandAugment holds more layers, of which each is compiled by itself above, below or in test_projected.py.
@pytest.mark.parametrize("name", ["AugMix", pytest.param("RandAugment", marks=pytest.mark.exhaustive)])
def test_layers_that_take_several_others_are_compiled(name: str) -> None:
    images = np.random.default_rng(0).uniform(0, 255, (4, 12, 12, 3)).astype(np.float32)
    made = _compiled(getattr(keras.layers, name)(value_range=(0, 255), seed=1), images)
    assert np.isfinite(made).all() and np.abs(made - images).max() > 1


def test_equalized_images_are_kerass() -> None:
    images = np.random.default_rng(0).uniform(0, 255, (4, 12, 12, 3)).astype(np.float32)
    layer = keras.layers.Equalization(value_range=(0, 255))
    np.testing.assert_allclose(_compiled(layer, images), layer(images, training=True), atol=1e-3)
