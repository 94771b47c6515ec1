"""Normalisations and softmax over the last axis, computed of rows, against Keras's and TensorFlow's own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import ops

from ringscope.ring.forms import last_axis

Function = Callable[[Any], Any]

SCALE, SHIFT = np.linspace(0.5, 2, 6, dtype=np.float32), np.linspace(-1, 1, 6, dtype=np.float32)
LAST: dict[str, Function] = {
    "layer normalisation": lambda x: ops.layer_normalization(x, SCALE, SHIFT),
    "its layer": keras.layers.LayerNormalization(),
    "its layer, axes in a list": keras.layers.LayerNormalization(axis=[3]),
    "RMS normalisation": lambda x: ops.rms_normalization(x, SCALE),
    "its own layer": keras.layers.RMSNormalization(),
    "softmax": ops.softmax,
    "softmax of the layer": lambda x: keras.layers.Softmax()(x, mask=x > -1),
    "log softmax": ops.log_softmax,
}
OTHER: dict[str, Function] = {
    "another axis": lambda x: ops.softmax(x, axis=2),
    "two axes": lambda x: ops.layer_normalization(x, axis=[2, 3]),
    "all axes": lambda x: ops.softmax(x, axis=None),
    "three axes": lambda x: ops.rms_normalization(x[0]),
    "by name": lambda x: tf.nn.softmax(logits=x),
    "axis by place": lambda x: tf.nn.softmax(x, 3),
}


def _with_gradient(function: Function, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """What it gives, and the gradient of a sum of it in which each number has a weight of its own."""

    @tf.function(jit_compile=True, autograph=False)  # type: ignore[untyped-decorator]
    def run(x: Any) -> Any:
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = function(x)
            loss = tf.reduce_sum(y * _weights(y))
        return y, tape.gradient(loss, x)

    y, gradient = run(tf.constant(x))
    return y.numpy(), gradient.numpy()


def _weights(y: Any) -> Any:
    return tf.constant(np.random.default_rng(1).normal(size=y.shape), y.dtype)


def _axes_of(function: Function, x: np.ndarray, *kinds: str) -> set[int]:
    """How many axes what operations of these kinds take has, where the function is traced."""
    graph = tf.function(function, autograph=False).get_concrete_function(tf.constant(x)).graph
    return {each.inputs[0].shape.rank for each in graph.get_operations() if each.type in kinds}


KINDS = "Softmax", "LogSoftmax", "Mean"


@pytest.fixture
def x() -> np.ndarray:
    return np.random.default_rng(0).normal(size=(2, 5, 3, 6)).astype(np.float32)


@pytest.mark.parametrize("name", LAST)
def test_over_the_last_axis_of_four_they_are_of_rows_and_the_same(name: str, x: np.ndarray) -> None:
    own = _with_gradient(LAST[name], x)
    with last_axis.rows():
        assert _axes_of(LAST[name], x, *KINDS) == {2}
        lined = _with_gradient(LAST[name], x)
    for mine, theirs in zip(lined, own, strict=True):
        assert mine.shape == theirs.shape
        np.testing.assert_allclose(mine, theirs, atol=2e-6)


@pytest.mark.parametrize("name", OTHER)
def test_others_stay_as_they_are(name: str, x: np.ndarray) -> None:
    own = _axes_of(OTHER[name], x, *KINDS, "Reshape")
    with last_axis.rows():
        assert _axes_of(OTHER[name], x, *KINDS, "Reshape") == own


def test_an_unknown_batch_stays_unknown_and_other_unknown_sizes_are_left() -> None:
    with last_axis.rows():
        for shape, axes in (((None, 5, 3, 6), 2), ((2, None, 3, 6), 4)):
            traced = tf.function(ops.softmax, autograph=False).get_concrete_function(tf.TensorSpec(shape, tf.float32))
            (softmax,) = (each for each in traced.graph.get_operations() if each.type == "Softmax")
            assert softmax.inputs[0].shape.rank == axes
            assert traced.structured_outputs.shape.as_list() == list(shape)


@pytest.mark.parametrize("softmax", [ops.softmax, lambda x: tf.nn.softmax(x)])
def test_a_loss_of_shares_takes_their_logits_as_it_does_without(softmax: Function, x: np.ndarray) -> None:
    """Keras's does: of shares alone the loss of what is far off ends at the logarithm of 1e-7."""
    far, labels = tf.constant(100 * x), np.argmin(x, axis=-1)

    @tf.function(autograph=False)  # type: ignore[untyped-decorator]
    def loss() -> Any:
        return keras.losses.SparseCategoricalCrossentropy(reduction=None)(labels, softmax(far))

    own = loss().numpy()
    assert own.max() > 100
    with last_axis.rows():
        np.testing.assert_allclose(tf.function(loss.python_function, autograph=False)().numpy(), own, rtol=1e-5)


def test_numbers_of_16_bits_stay_so(x: np.ndarray) -> None:
    narrow = tf.cast(x, tf.bfloat16)
    with last_axis.rows():
        assert ops.layer_normalization(narrow, SCALE, SHIFT).dtype == tf.bfloat16
        assert ops.softmax(narrow).dtype == tf.bfloat16
