"""Recurrent layers as ring's loop and as Keras's own: what both give, and how near to each other and to 64 bits."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import nullcontext
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import layers

from ringscope.ring.forms import layers as xla

Given = Mapping[str, np.ndarray]
Builder = Callable[[Any], list[Any]]


def narrow(x: np.ndarray) -> np.ndarray:
    """As bfloat16 has them, so that no type that a model computes in rounds what it is given."""
    return x if x.dtype == bool else np.asarray(tf.cast(tf.cast(tf.constant(x), "bfloat16"), "float64"))


def model_of(build: Builder, given: Given, spread: float, dtype: str = "float32") -> Any:
    """Of inputs as these. spread: of the weights."""
    keras.utils.set_random_seed(3)
    keras.config.set_dtype_policy(dtype)
    try:
        inputs = {
            name: keras.Input(each.shape[1:], each.shape[0], dtype="bool" if each.dtype == bool else None, name=name)
            for name, each in given.items()
        }
        model = keras.Model(inputs, build(inputs))
    finally:
        keras.config.set_dtype_policy("float32")
    random = np.random.default_rng(1)
    for variable in model.trainable_variables:
        variable.assign(narrow(random.normal(0, spread, variable.shape)))
    return model


def tensors(given: Given, kind: str) -> dict[str, Any]:
    return {name: tf.constant(narrow(x), None if x.dtype == bool else kind) for name, x in given.items()}


def step_of(model: Any, *, form: bool) -> Callable[[Any], tuple[list[Any], list[Any]]]:
    """(outputs, gradients by what is given and by weights) of a sum in which each number has a weight of its own."""

    def step(given: Any) -> tuple[list[Any], list[Any]]:
        numbers = [each for each in given.values() if each.dtype != tf.bool]
        with tf.GradientTape() as tape:
            tape.watch(numbers)
            with xla.forms(model) if form else nullcontext():
                outputs = tf.nest.flatten(model(given, training=True))
            wide = [tf.reshape(tf.cast(each, tf.float64), [-1]) for each in outputs]
            loss = sum(tf.reduce_sum(each * np.sin(1 + np.arange(each.shape[0]))) for each in wide)
        sources = [*numbers, *model.trainable_variables]
        return outputs, [each for each in tape.gradient(loss, sources) if each is not None]

    return step


def run(model: Any, given: Given, *, form: bool, compiled: bool) -> list[np.ndarray]:
    """Outputs, then gradients; what the call draws from is left as it was."""
    kept = [(variable, variable.numpy()) for variable in model.non_trainable_variables]
    step = tf.function(step_of(model, form=form), jit_compile=compiled, autograph=False)
    outputs, gradients = step(tensors(given, model.layers[0].dtype))
    for variable, value in kept:
        variable.assign(value)
    return [np.asarray(tf.cast(each, tf.float64)) for each in [*outputs, *gradients]]


def check_is_kerass(model: Any, given: Given, monkeypatch: pytest.MonkeyPatch, *, compiled: bool = False) -> None:
    """The loop's outputs and gradients are those of Keras's own, which it does not call. compiled: Keras's too."""
    plain = run(model, given, form=False, compiled=compiled)

    def refused(*_: Any, **__: Any) -> None:
        raise AssertionError("Keras's own loop was taken")

    monkeypatch.setattr(layers.RNN, "inner_loop", refused)
    form = run(model, given, form=True, compiled=True)
    assert len(form) == len(plain) > len(model.outputs) + len(model.trainable_variables)
    for own, keras_own in zip(form, plain, strict=True):
        assert np.abs(keras_own).max() > 0
        np.testing.assert_allclose(own, keras_own, rtol=1e-5, atol=1e-5 * np.abs(keras_own).max())


def check_is_as_near(model: Callable[[str], Any], given: Given, dtype: str, *, chance: float = 1.0) -> None:
    """The loop of a model of this type is as near to 64-bit arithmetic as Keras's own: all of its numbers together, and
    each of its tensors. model: of a type. chance: so much farther one of them may be."""
    true = run(model("float64"), given, form=False, compiled=False)
    typed = model(dtype)
    form, plain = (run(typed, given, form=form, compiled=form) for form in (True, False))

    def distances(numbers: list[np.ndarray]) -> np.ndarray:
        norm = np.linalg.norm
        return np.array([norm(each - right) / norm(right) for each, right in zip(numbers, true, strict=True)])

    own, kerass = distances(form), distances(plain)
    assert np.linalg.norm(own) <= np.linalg.norm(kerass) or own.max() < 1e-14
    assert np.all((own <= chance * kerass) | (own < 1e-14)), own / kerass
