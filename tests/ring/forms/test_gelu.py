"""GELU that keeps its slope alone, against Keras's own in XLA and against 64-bit arithmetic."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from contextlib import nullcontext
from itertools import product
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from ringscope.ring.forms import forms, gelu
from ringscope.ring.internals.frameworks import backend_ops
from tests.tiers import few

SPREAD = np.concatenate([np.linspace(-14, 14, 4001), [0.0, -0.0, 40, -40, 1e4, -1e4]])
# Two roundings: of the result, and of what it is computed in. Beyond x = 4 the square of x is rounded first.
ROUNDING = {"bfloat16": 2**-8, "float16": 2**-10, "float32": 2e-5, "float64": 1e-13}
LEAST = {"bfloat16": 1e-36, "float16": 2**-24, "float32": 1e-36, "float64": 1e-300}


def _derivatives(compute: Callable[[Any], Any], x: np.ndarray, dtype: str) -> list[np.ndarray]:
    """Value, first and second derivative at each x, compiled by XLA."""

    @tf.function(jit_compile=True, autograph=False)  # type: ignore[untyped-decorator]
    def run(x: Any) -> Any:
        with tf.GradientTape() as outer:
            outer.watch(x)
            with tf.GradientTape() as inner:
                inner.watch(x)
                y = compute(x)
            slope = inner.gradient(y, x)
        return y, slope, outer.gradient(slope, x)

    return [np.asarray(tf.cast(each, tf.float64)) for each in run(tf.cast(tf.constant(x), dtype))]


def _exact(x: np.ndarray) -> list[np.ndarray]:
    share = np.array([0.5 * math.erfc(-each / math.sqrt(2)) for each in x])
    density = np.exp(-(x**2) / 2) / math.sqrt(2 * math.pi)
    return [x * share, share + x * density, (2 - x**2) * density]


def _by_tanh(x: np.ndarray) -> list[np.ndarray]:
    y = np.clip(math.sqrt(8 / math.pi) * (x + 0.044715 * x**3), -700, 700)
    first, second = math.sqrt(8 / math.pi) * (1 + 3 * 0.044715 * x**2), math.sqrt(8 / math.pi) * 6 * 0.044715 * x
    share = 1 / (1 + np.exp(-y))  # (1 + tanh(y / 2)) / 2
    rest = share / (1 + np.exp(y))  # share * (1 - share)
    slope = rest * first
    return [x * share, share + x * slope, 2 * slope + x * (slope * (1 - 2 * share) * first + rest * second)]


KINDS = {"exact": (gelu.exact, _exact), "by tanh": (gelu.by_tanh, _by_tanh)}


@pytest.mark.parametrize(("dtype", "kind"), few(list(product(ROUNDING, KINDS))))
def test_value_and_slopes_are_those_of_64_bit_arithmetic(dtype: str, kind: str) -> None:
    ours, of_64_bits = KINDS[kind]
    x = np.asarray(tf.cast(tf.cast(tf.constant(SPREAD), dtype), tf.float64))
    value, slope, bend = _derivatives(ours, x, dtype)
    true = of_64_bits(x)
    np.testing.assert_allclose(value, true[0], rtol=ROUNDING[dtype], atol=LEAST[dtype])
    # A slope is a sum that ends near nothing at x = -0.75, what bends it a product with one that does at 1.41.
    least = 1e-7 if (dtype, kind) == ("float32", "by tanh") else 1e-6 * ROUNDING[dtype]
    np.testing.assert_allclose(slope, true[1], rtol=ROUNDING[dtype], atol=max(LEAST[dtype], least))
    near = 2 * ROUNDING[dtype] if kind == "by tanh" else ROUNDING[dtype]
    np.testing.assert_allclose(bend, true[2], rtol=ROUNDING[dtype], atol=near)


@pytest.mark.parametrize(("dtype", "kind"), few(list(product(ROUNDING, KINDS))))
def test_it_is_as_near_to_the_truth_as_keras_and_alike_where_nothing_is_finite(dtype: str, kind: str) -> None:
    compute, of_64_bits = KINDS[kind]

    def keras_own(x: Any) -> Any:
        return keras.ops.gelu(x, approximate=kind != "exact")

    x = np.asarray(tf.cast(tf.cast(tf.constant(SPREAD), dtype), tf.float64))
    for own, other, right in zip(
        _derivatives(compute, x, dtype), _derivatives(keras_own, x, dtype), of_64_bits(x), strict=True
    ):
        # by tanh Keras's own has no slope in float16 where the cube of x is infinite
        assert np.abs(own - right).max() <= np.nanmax(np.abs(other - right)) + ROUNDING[dtype] / 2
    odd = np.array([np.inf, -np.inf, np.nan])
    for own, other in zip(_derivatives(compute, odd, dtype)[:2], _derivatives(keras_own, odd, dtype)[:2], strict=True):
        np.testing.assert_array_equal(own, other)


WAYS: dict[str, Callable[[], list[Any]]] = {
    "named": lambda: [keras.layers.Dense(32, activation="gelu")],
    "function": lambda: [keras.layers.Dense(32, activation=keras.activations.gelu)],
    "layer": lambda: [keras.layers.Dense(32), keras.layers.Activation("gelu")],
    "lambda": lambda: [keras.layers.Dense(32, activation=lambda x: keras.activations.gelu(x, approximate=False))],
    "operation": lambda: [keras.layers.Dense(32), keras.layers.Lambda(lambda x: keras.ops.nn.gelu(x, False))],
    "by tanh": lambda: [keras.layers.Dense(32), keras.layers.Lambda(keras.ops.gelu)],
}


def _model(way: str) -> Any:
    keras.utils.set_random_seed(3)
    return keras.Sequential([keras.Input((16,)), *WAYS[way](), keras.layers.Dense(4)])


def _step(model: Any, *, light: bool) -> Any:
    """One step of SGD, compiled; returns the loss."""

    @tf.function(jit_compile=True, autograph=False)  # type: ignore[untyped-decorator]
    def step(x: Any) -> Any:
        with forms(model) if light else nullcontext(), tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.square(tf.cast(model(x), tf.float32) - 1))
        for gradient, variable in zip(tape.gradient(loss, model.trainable_variables), model.weights, strict=True):
            variable.assign_sub(0.1 * gradient)
        return loss

    return step


@pytest.mark.parametrize("way", few(WAYS))
def test_however_a_model_names_it_the_way_back_is_one_product(way: str) -> None:
    x = tf.random.stateless_normal((64, 16), (1, 2))
    made, trained = {}, {}
    for light in (False, True):
        model = _model(way)
        step = _step(model, light=light)
        made[light] = step.experimental_get_compiler_ir(x)(stage="hlo")
        for _ in range(5):
            step(x)
        trained[light] = model.get_weights()
    for light, plain in zip(trained[True], trained[False], strict=True):
        np.testing.assert_allclose(light, plain, rtol=1e-5, atol=1e-6)
    # XLA on a CPU takes the barriers away before it fuses, so that only what is asked of it can be told here.
    assert (made[True].count(" opt-barrier("), made[False].count(" opt-barrier(")) == (1, 0)
    (kept,) = re.findall(r"(\S+) = f32\[64,32\]\S* opt-barrier", made[True])
    assert re.findall(rf" (\w+)\([^=]*{re.escape(kept)}[,)]", made[True]) == ["multiply"]


def test_keras_refuses_whole_numbers_and_has_its_own_function_again_afterwards() -> None:
    own = backend_ops.nn.gelu
    for approximate in (True, False):
        with gelu.light(), pytest.raises(ValueError, match="floating point"):
            keras.ops.gelu(tf.constant([1, -2]), approximate)
    with gelu.light():
        assert backend_ops.nn.gelu is not own
        with pytest.raises(ZeroDivisionError), gelu.light():
            _ = 1 / 0
        assert backend_ops.nn.gelu is not own
    assert backend_ops.nn.gelu is own
