"""Heads of float32 over bfloat16: near to float32's results, and taken where a user's model has such a head alone."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from ringscope.ring import say
from ringscope.ring.forms import choice, padded_products, pointwise, resized, wide
from tests.ring.traced import products, traced
from tests.tiers import few


@pytest.fixture(autouse=True)
def _as_on_a_gpu(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(wide, "is_tf32", lambda: True)
    monkeypatch.setattr(padded_products, "LEAST", 0)
    before = keras.config.dtype_policy()
    keras.config.set_dtype_policy("mixed_bfloat16")
    yield
    keras.config.set_dtype_policy(before)


def _model(words: int = 42, head: Any = "float32", *, bias: bool = True) -> Any:
    keras.utils.set_random_seed(7)
    inputs = keras.Input((9, 24))
    x = keras.layers.LayerNormalization()(inputs)
    return keras.Model(inputs, keras.layers.Dense(words, dtype=head, use_bias=bias)(x))


def _x() -> np.ndarray:
    return np.random.default_rng(0).normal(size=(64, 9, 24)).astype(np.float32)


@pytest.mark.parametrize("words", few([42, 48, 7]))
def test_logits_and_gradients_are_nearer_to_float32s_than_those_of_a_head_of_bfloat16(words: int) -> None:
    model, narrow, x = _model(words), _model(words, head="mixed_bfloat16"), _x()
    narrow.set_weights(model.get_weights())
    plain, form = (traced(model, x, within) for within in (nullcontext, padded_products.multiples))
    assert form[0].dtype == np.float32 and form[0].shape == (64, 9, words)
    for exact, mine, theirs in zip(plain, form, traced(narrow, x, nullcontext), strict=True):
        size = np.linalg.norm(exact)
        assert np.linalg.norm(mine - exact) < 1.1 * np.linalg.norm(theirs - exact) + 1e-5 * size
    assert 0 < np.linalg.norm(form[0] - plain[0]) < 4e-3 * np.linalg.norm(plain[0])  # bfloat16 has 8 bits


def test_sums_and_logits_are_not_rounded_to_bfloat16() -> None:
    """Of weights that bfloat16 has the logits are float32's to its own rounding."""
    model, x = _model(bias=False), _x()
    (*others, kernel) = model.get_weights()
    model.set_weights([*others, np.round(kernel * 64) / 64])
    plain, form = (traced(model, x, within)[0] for within in (nullcontext, padded_products.multiples))
    np.testing.assert_allclose(form, plain, atol=1e-6 * np.abs(plain).max())


def test_a_models_loss_is_nearer_to_float32s_than_with_logits_of_bfloat16() -> None:
    model, narrow, x = _model(), _model(head="mixed_bfloat16"), _x()
    narrow.set_weights(model.get_weights())
    labels = np.random.default_rng(1).integers(0, 42, (64, 9))

    def losses(model: Any, within: Any) -> np.ndarray:
        logits = tf.cast(traced(model, x, within)[0], tf.float32)
        return np.asarray(tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits))

    exact = losses(model, nullcontext)
    mine, theirs = (np.abs(losses(each, padded_products.multiples) - exact).mean() for each in (model, narrow))
    assert mine < 0.8 * theirs


@pytest.mark.parametrize("filters", few([21, 24]))
def test_a_convolution_of_one_pixel_is_such_a_head(filters: int) -> None:
    """A segmentation's, over maps that were enlarged before it."""

    def model(head: Any) -> Any:
        keras.utils.set_random_seed(7)
        inputs = keras.Input((6, 5, 24))
        x = keras.layers.LayerNormalization()(inputs)
        x = keras.layers.UpSampling2D(2, interpolation="bilinear")(x)
        return keras.Model(inputs, keras.layers.Conv2D(filters, 1, dtype=head)(x))

    x = np.random.default_rng(0).normal(size=(8, 6, 5, 24)).astype(np.float32)
    wide_head, narrow = model("float32"), model("mixed_bfloat16")
    narrow.set_weights(wide_head.get_weights())
    plain, form = (traced(wide_head, x, within) for within in (resized.by_own_weights, _with_products))
    assert form[0].dtype == np.float32 and form[0].shape == (8, 12, 10, filters)
    for exact, mine, theirs in zip(plain, form, traced(narrow, x, _with_products), strict=True):
        assert np.linalg.norm(mine - exact) < 1.1 * np.linalg.norm(theirs - exact) + 1e-5 * np.linalg.norm(exact)
    assert 0 < np.linalg.norm(form[0] - plain[0]) < 4e-3 * np.linalg.norm(plain[0])
    assert set(_multiplied(wide_head, x, _with_products)) == {"bf16"}


@contextmanager
def _with_products() -> Iterator[None]:
    with resized.by_own_weights(), pointwise.as_products():
        yield


def _multiplied(model: Any, x: Any = None, within: Any = padded_products.multiples) -> list[str]:
    """The types of the operands of all products, as XLA is given them."""

    @tf.function(jit_compile=True, autograph=False)  # type: ignore[untyped-decorator]
    def run(x: Any) -> Any:
        with tf.GradientTape() as tape, within():
            total = tf.reduce_sum(tf.square(model(x, training=True)))
        return tape.gradient(total, model.trainable_variables)

    text = run.experimental_get_compiler_ir(tf.constant(_x() if x is None else x))(stage="hlo")
    return re.findall(r" dot\((\w+)\[", text)


def test_only_a_head_of_float32_in_a_model_of_mixed_bfloat16_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    assert set(_multiplied(_model())) == {"bf16"}
    of_float32 = keras.Sequential([keras.Input((9, 24)), keras.layers.Dense(8, dtype="float32")])
    assert set(_multiplied(of_float32)) == {"f32"}  # its inputs are no bfloat16 numbers
    monkeypatch.setenv(choice.WITHOUT, "wide")
    assert set(_multiplied(_model())) == {"f32"}
    monkeypatch.delenv(choice.WITHOUT)
    keras.config.set_dtype_policy("float32")  # the user's own casts
    inputs = keras.Input((9, 24))
    x = keras.layers.LayerNormalization(dtype="mixed_bfloat16")(inputs)
    assert set(_multiplied(keras.Model(inputs, keras.layers.Dense(8)(x)))) == {"f32"}


def test_heads_of_odd_widths_that_stay_float32_are_multiplied_in_multiples_of_4(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv(choice.WITHOUT, "wide")
    x = np.zeros((64, 9, 24), np.float32)
    assert sorted(products(_model(42), x, padded_products.multiples)) == [(24, 44), (576, 24), (576, 44)]
    assert products(_model(44), x, padded_products.multiples) == products(_model(44), x, nullcontext)
    monkeypatch.setattr(wide, "is_tf32", lambda: False)
    assert products(_model(42), x, padded_products.multiples) == products(_model(42), x, nullcontext)


def test_a_product_in_bfloat16_is_said_once(capfd: pytest.CaptureFixture[str]) -> None:
    say._said.discard(wide.SAID)
    traced(_model(), _x(), padded_products.multiples)
    traced(_model(), _x(), padded_products.multiples)
    assert capfd.readouterr().err.count(wide.SAID) == 1
