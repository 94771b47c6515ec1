"""Layers in XLA's forms against Keras's own: the same outputs, gradients and moving statistics."""

from __future__ import annotations

import itertools
from contextlib import nullcontext
from functools import partial
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from ringscope.ring.forms import choice
from ringscope.ring.forms import forms as every_form
from ringscope.ring.forms import layers as xla
from tests.ring.traced import traced
from tests.tiers import few


def test_forms_that_are_named_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    own, own_dropout = tf.nn.convolution, keras.src.backend.random.dropout
    with every_form(_model((4, 4, 3))):
        assert tf.nn.convolution is not own and keras.src.backend.random.dropout is not own_dropout
    monkeypatch.setenv(choice.WITHOUT, "gelu,dilated")
    with every_form(_model((4, 4, 3))):
        assert tf.nn.convolution is own and keras.src.backend.random.dropout is not own_dropout
    assert tf.nn.convolution is own and keras.src.backend.random.dropout is own_dropout


def _trained(model: Any, x: np.ndarray, *, forms: bool) -> list[np.ndarray]:
    """Output, gradients by input and by weights of a random linear loss, and what the call leaves in the weights."""
    start = model.get_weights()
    made = traced(model, x, partial(xla.forms, model) if forms else nullcontext)
    left = model.get_weights()
    model.set_weights(start)
    return [np.asarray(a, np.float32) for a in [*made, *left]]


def _assert_same(model: Any, x: np.ndarray, tolerance: float = 2e-5) -> None:
    for plain, form in zip(_trained(model, x, forms=False), _trained(model, x, forms=True), strict=True):
        scale = np.abs(plain).max() + 1e-6
        np.testing.assert_allclose(form / scale, plain / scale, atol=tolerance)


def _model(shape: tuple[int | None, ...], *layers: Any) -> Any:
    keras.utils.set_random_seed(3)
    return keras.Sequential([keras.Input(shape), *layers])


def _formed(model: Any) -> int:
    with xla.forms(model):
        return sum(bool({"convolution_op", "call"} & set(layer.__dict__)) for layer in model.layers)


CONVOLUTIONS = [
    *((2, 7, padding, size) for padding in ("valid", "same") for size in (19, 20)),
    *((2, 3, "same", size) for size in (20, 21)),
    *((3, 2, padding, size) for padding in ("valid", "same") for size in (19, 20, 21)),
]


@pytest.mark.parametrize(("stride", "kernel", "padding", "size"), few(CONVOLUTIONS))
def test_a_folded_convolution_is_the_convolution(stride: int, kernel: int, padding: str, size: int) -> None:
    model = _model((size, size + 4, 3), keras.layers.Conv2D(5, kernel, strides=stride, padding=padding))
    assert _formed(model) == 1
    _assert_same(model, np.random.default_rng(0).normal(size=(2, size, size + 4, 3)).astype("float32"))


POOLS = [*itertools.product((2, 3), (2, 3), ("valid", "same"), (9, 10)), (1, 3, "same", 9)]


@pytest.mark.parametrize(("stride", "pool", "padding", "size"), few(POOLS))
def test_max_pooling_by_shifts_is_max_pooling(stride: int, pool: int, padding: str, size: int) -> None:
    model = _model((size, size + 3, 2), keras.layers.MaxPooling2D(pool, strides=stride, padding=padding))
    assert _formed(model) == 1
    x = np.random.default_rng(0).normal(size=(2, size, size + 3, 2)).astype("float32")
    _assert_same(model, x, tolerance=1e-6)


class Standardized(keras.layers.Conv2D):
    def convolution_op(self, inputs: Any, kernel: Any) -> Any:
        return super().convolution_op(inputs, kernel - tf.reduce_mean(kernel))


class Doubled(keras.layers.MaxPooling2D):
    def call(self, inputs: Any) -> Any:
        return 2 * super().call(inputs)


def _given(layer: Any, name: str) -> Any:
    own = getattr(layer, name)
    vars(layer)[name] = lambda *inputs: 3 * own(*inputs)
    return layer


OWN = {
    "a class of convolutions": lambda: Standardized(4, 3, strides=2),
    "a class of pools": lambda: Doubled(2),
    "one convolution": lambda: _given(keras.layers.Conv2D(4, 3, strides=2), "convolution_op"),
    "one pool": lambda: _given(keras.layers.MaxPooling2D(2), "call"),
}


@pytest.mark.parametrize("own", OWN)
def test_a_method_that_a_script_has_written_anew_is_computed_as_it_is_written(own: str) -> None:
    model = _model((9, 9, 3), OWN[own]())
    _assert_same(model, np.random.default_rng(0).normal(size=(2, 9, 9, 3)).astype("float32"))


def test_of_equal_pixels_the_first_gets_the_gradient_as_in_tensorflows_own_kernel() -> None:
    layer, x = (
        keras.layers.MaxPooling2D(3, strides=2),
        tf.constant(np.random.default_rng(0).integers(0, 2, (4, 9, 11, 3))),
    )
    x = tf.cast(x, tf.float32)
    gradients = []
    for pool in (layer, lambda x: xla.max_pooling(layer, layer, x)):
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = pool(x)
            loss = tf.reduce_sum(y * tf.reshape(tf.range(tf.size(y), dtype=tf.float32), y.shape))
        gradients.append(tape.gradient(loss, x))
    np.testing.assert_array_equal(gradients[1], gradients[0])


@pytest.mark.parametrize(("axis", "mean"), few(itertools.product([-1, 1], [0.0, 3.0])))
def test_moments_in_one_pass_are_the_moments(mean: float, axis: int) -> None:
    model = _model((6, 7, 4), keras.layers.BatchNormalization(axis=axis))
    assert _formed(model) == 1
    rng = np.random.default_rng(0)
    model.layers[0].moving_mean.assign(rng.normal(size=model.layers[0].moving_mean.shape))
    _assert_same(model, rng.normal(mean, 2.0, size=(8, 6, 7, 4)).astype("float32"))


def test_moments_far_from_zero_stay_exact_once_the_moving_mean_is_near() -> None:
    model = _model((16,), keras.layers.BatchNormalization())
    model.layers[0].moving_mean.assign(np.full(16, 9_999.0))
    x = np.random.default_rng(0).normal(10_000, 1.0, size=(256, 16)).astype("float32")
    y = _trained(model, x, forms=True)[0]
    exact = x.astype("float64") - x.astype("float64").mean(0)
    np.testing.assert_allclose(y, exact / np.sqrt(x.astype("float64").var(0) + 1e-3), atol=2e-3)


def test_what_has_no_form_is_left_alone() -> None:
    model = _model(
        (16, 16, 3),
        keras.layers.Conv2D(4, 3),
        keras.layers.Conv2D(8, 3, strides=2),
        keras.layers.MaxPooling2D(5),
        keras.layers.LayerNormalization(),
    )
    model.layers[1].data_format = "channels_first"
    assert _formed(model) == 0


def test_the_model_is_itself_again_afterwards() -> None:
    model = _model((16, 16, 3), keras.layers.Conv2D(4, 3, strides=2), keras.layers.BatchNormalization())
    before = [dict(layer.__dict__) for layer in model.layers]
    with pytest.raises(ZeroDivisionError), xla.forms(model):
        raise ZeroDivisionError
    assert [set(layer.__dict__) for layer in model.layers] == [set(kept) for kept in before]


def test_forms_within_forms_leave_the_model_as_it_was() -> None:
    model = _model((16, 16, 3), keras.layers.MaxPooling2D(2))
    with xla.forms(model), xla.forms(model):
        pass
    assert "call" not in model.layers[0].__dict__


def test_a_picture_of_unknown_size_and_a_mask_take_the_plain_way() -> None:
    model = _model((None, None, 3), keras.layers.Conv2D(4, 3, strides=2), keras.layers.MaxPooling2D(3))
    _assert_same(model, np.random.default_rng(0).normal(size=(2, 17, 18, 3)).astype("float32"))
    layer = keras.layers.BatchNormalization()
    layer.build((4, 3, 2))
    x, mask = np.ones((4, 3, 2), "float32"), np.array([[True, False, True]] * 4)
    plain = layer(x, training=True, mask=mask)
    with xla.forms(_holder(layer)):
        np.testing.assert_array_equal(layer(x, training=True, mask=mask), plain)


def _holder(layer: Any) -> Any:
    model = keras.Sequential()
    model.add(layer)
    return model
