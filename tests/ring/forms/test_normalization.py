"""Batch normalisation in its form against Keras's own: outputs, gradients, moving statistics; when it stays Keras's."""

from __future__ import annotations

from contextlib import nullcontext
from functools import partial
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from ringscope.ring.forms import layers as xla
from ringscope.ring.forms import normalization
from tests.ring.traced import traced
from tests.tiers import few

CASES: list[tuple[dict[str, Any], tuple[int, ...]]] = [
    ({}, (6, 7, 4)),
    ({"axis": 1, "momentum": 0.6}, (3, 5, 7)),
    ({"scale": False}, (9, 4)),
    ({"center": False, "epsilon": 0.1}, (5,)),
    ({"scale": False, "center": False}, (2, 3, 4, 5)),
    ({"axis": 2}, (3, 5, 7)),
]


def _model(shape: tuple[int | None, ...], policy: str, **options: Any) -> Any:
    keras.utils.set_random_seed(3)
    layer = keras.layers.BatchNormalization(dtype=policy, **options)
    model = keras.Sequential([keras.Input(shape), layer])
    random = np.random.default_rng(1)
    for weight in layer.weights:
        weight.assign(random.uniform(0.5, 2.0, weight.shape))
    return model


def _both(model: Any, x: np.ndarray) -> list[list[np.ndarray]]:
    """Outputs, gradients, and what the call leaves in the weights; Keras's own and the form's."""
    start, made = model.get_weights(), []
    for context in (nullcontext, partial(xla.forms, model)):
        given = traced(model, x, context)
        made.append([np.asarray(each, np.float64) for each in [*given, *model.get_weights()]])
        model.set_weights(start)
    return made


@pytest.mark.parametrize("policy", ["float32", "mixed_bfloat16", "mixed_float16"])
@pytest.mark.parametrize("case", few(range(len(CASES))))
def test_it_is_kerass_normalisation(case: int, policy: str) -> None:
    options, shape = CASES[case]
    model = _model(shape, policy, **options)
    x = np.random.default_rng(0).normal(1.5, 2.0, (8, *shape)).astype("float32")
    tolerance = {"float32": 2e-5, "mixed_bfloat16": 2e-2, "mixed_float16": 4e-3}[policy]
    for plain, form in zip(*_both(model, x), strict=True):
        scale = np.abs(plain).max() + 1e-6
        np.testing.assert_allclose(form / scale, plain / scale, atol=tolerance)


@pytest.mark.parametrize("axis", [-1, 1])
def test_inputs_far_from_the_first_moving_mean_lose_no_digits(axis: int) -> None:
    """As prices and years are: the variance is not the difference of two large numbers."""
    x = np.random.default_rng(0).normal(10_000.0, 1.0, (16, 6, 5)).astype("float32")
    layer = keras.layers.BatchNormalization(axis=axis, epsilon=1e-6)
    model = keras.Sequential([keras.Input(x.shape[1:]), layer])
    others = tuple(each for each in range(3) if each != axis % 3)
    mean, variance = (each(x.astype("float64"), axis=others, keepdims=True) for each in (np.mean, np.var))
    made = traced(model, x, partial(xla.forms, model))[0]
    np.testing.assert_allclose(made, (x - mean) / np.sqrt(variance), atol=5e-3)
    np.testing.assert_allclose(layer.moving_variance, 0.99 + 0.01 * variance.ravel(), rtol=1e-5)


def test_maps_and_batches_of_open_sizes_are_normalised() -> None:
    model = _model((None, None, 4), "float32")
    found = []

    @tf.function(jit_compile=True, input_signature=[tf.TensorSpec([None, None, None, 4])])
    def step(x: Any) -> Any:
        with tf.GradientTape() as tape, xla.forms(model):
            tape.watch(x)
            y = model(x, training=True)
            loss = tf.reduce_sum(tf.sin(3 * y))
        return [y, *tape.gradient(loss, [x, *model.trainable_variables])]

    start = model.get_weights()
    for size in (5, 8):
        x = np.random.default_rng(size).normal(2.0, 1.0, (3, size, size + 1, 4)).astype("float32")
        found = step(x)
        with tf.GradientTape() as tape:
            given = tf.constant(x)
            tape.watch(given)
            model.set_weights(start)
            y = model(given, training=True)
            loss = tf.reduce_sum(tf.sin(3 * y))
        for plain, form in zip([y, *tape.gradient(loss, [given, *model.trainable_variables])], found, strict=True):
            np.testing.assert_allclose(form, plain, rtol=2e-4, atol=2e-4)
        model.set_weights(start)


def test_layers_of_one_kind_are_traced_once() -> None:
    shape = (4, 4, 8)
    model = keras.Sequential([keras.Input(shape), *(keras.layers.BatchNormalization() for _ in range(6))])

    def operations(depth: int) -> int:
        @tf.function(jit_compile=True)
        def step(x: Any) -> Any:
            with tf.GradientTape() as tape, xla.forms(model):
                loss = x
                for layer in model.layers[:depth]:
                    loss = layer(loss, training=True)
                loss = tf.reduce_sum(tf.square(loss))
            return tape.gradient(loss, [weight for each in model.layers[:depth] for weight in each.trainable_variables])

        return len(step.get_concrete_function(tf.TensorSpec([2, *shape])).graph.get_operations())

    # the call and its gradient, four readings, their four placeholders, two assignments, and what belongs to them
    assert (operations(6) - operations(2)) / 4 <= 18


class Own(keras.layers.BatchNormalization):
    def _moments(self, inputs: Any, mask: Any) -> Any:
        mean, variance = super()._moments(inputs, mask)
        return mean, 4 * variance


def test_what_differs_from_kerass_is_left_alone() -> None:
    layers = keras.layers.BatchNormalization
    changed, corrected = layers(), layers()
    changed._moments = lambda inputs, mask: (0.0, 1.0)
    corrected.renorm = True
    assert normalization.fits(layers())
    for layer in (Own(), changed, layers(synchronized=True), corrected, keras.layers.LayerNormalization()):
        assert not normalization.fits(layer)


@pytest.mark.parametrize("how", ["frozen", "inference", "mask"])
def test_statistics_that_are_not_the_batchs_and_masks_take_kerass_way(how: str) -> None:
    model = _model((5, 4), "float32")
    layer = model.layers[0]
    layer.trainable = how != "frozen"
    x = tf.constant(np.random.default_rng(0).normal(1.0, 2.0, (8, 5, 4)).astype("float32"))
    options: dict[str, Any] = {"training": how != "inference"}
    if how == "mask":
        options["mask"] = tf.constant(np.random.default_rng(1).random((8, 5)) < 0.6)
    start = model.get_weights()
    plain = [layer(x, **options).numpy(), *model.get_weights()]
    model.set_weights(start)
    with xla.forms(model):
        form = [layer(x, **options).numpy(), *model.get_weights()]
    for one, other in zip(plain, form, strict=True):
        np.testing.assert_array_equal(one, other)
