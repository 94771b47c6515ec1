"""Products of matrices that are no multiples of 8: Keras's outputs and gradients, in multiples where XLA computes."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from ringscope.ring.forms import padded_products, products
from tests.ring.traced import products as made
from tests.ring.traced import traced
from tests.tiers import few

SIZES = [(13, 24), (16, 10), (13, 10), (1, 3), (16, 24)]


def _model(inputs: int, outputs: int, around: tuple[int, ...] = (), **options: Any) -> Any:
    keras.utils.set_random_seed(5)
    given = keras.Input((*around, inputs))
    return keras.Model(given, keras.layers.Dense(outputs, activation="tanh", **options)(given))


@pytest.fixture
def _everywhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """Products of all sizes and types: those of float32 tell more than rounding lets those of bfloat16."""
    monkeypatch.setattr(padded_products, "LEAST", 0)
    monkeypatch.setattr(padded_products, "NARROW", (tf.float32, tf.bfloat16, tf.float16))


@pytest.mark.usefixtures("_everywhere")
@pytest.mark.parametrize(
    ("inputs", "outputs", "around"), few(((*size, around) for size in SIZES for around in [(), (5,), (2, 3)]), 4)
)
def test_outputs_and_gradients_are_kerass(inputs: int, outputs: int, around: tuple[int, ...]) -> None:
    model = _model(inputs, outputs, around)
    x = np.random.default_rng(0).normal(size=(4, *around, inputs)).astype("float32")
    plain, form = (traced(model, x, within) for within in (nullcontext, padded_products.multiples))
    assert len(plain) == len(form) == 4
    for one, other in zip(plain, form, strict=True):
        assert one.shape == other.shape
        np.testing.assert_allclose(other, one, atol=1e-5 * np.abs(one).max())


@pytest.mark.usefixtures("_everywhere")
def test_a_projection_by_einsum_is_kerass_too() -> None:
    keras.utils.set_random_seed(5)
    given = keras.Input((6, 13))
    model = keras.Model(given, keras.layers.EinsumDense("abc,cd->abd", (None, 10), bias_axes="d")(given))
    x = np.random.default_rng(0).normal(size=(4, 6, 13)).astype("float32")
    plain, form = (traced(model, x, within) for within in (nullcontext, products.flat))
    for one, other in zip(plain, form, strict=True):
        np.testing.assert_allclose(other, one, atol=1e-5 * np.abs(one).max())


@pytest.mark.parametrize("dtype", ["mixed_bfloat16", "mixed_float16"])
def test_large_products_are_computed_in_multiples_there_and_back(dtype: str) -> None:
    model = _model(525, 1001, dtype=dtype)
    dots = made(model, np.ones((512, 525), "float32"), padded_products.multiples)
    assert dots == [(512, 528), (512, 1008), (528, 1008)]


def test_others_stay_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    x, own = np.ones((4, 13), "float32"), [(4, 10), (4, 13), (13, 10)]
    assert made(_model(13, 10, dtype="mixed_bfloat16"), x, padded_products.multiples) == own
    monkeypatch.setattr(padded_products, "LEAST", 0)
    assert made(_model(13, 10), x, padded_products.multiples) == own


@pytest.mark.usefixtures("_everywhere")
def test_what_is_no_product_with_a_matrix_is_kerass_own() -> None:
    random = np.random.default_rng(0)
    a, b = (random.normal(size=size).astype("float32") for size in ((3, 5), (5,)))
    batched = [random.normal(size=size).astype("float32") for size in ((2, 3, 5), (2, 5, 7))]
    with padded_products.multiples():
        np.testing.assert_allclose(keras.ops.matmul(a, b), a @ b, rtol=1e-5)
        np.testing.assert_allclose(keras.ops.matmul(b, a.T), b @ a.T, rtol=1e-5)
        np.testing.assert_allclose(keras.ops.matmul(*batched), np.matmul(*batched), rtol=1e-5)
        sparse = tf.sparse.from_dense(a)
        np.testing.assert_allclose(keras.ops.matmul(sparse, a.T), a @ a.T, rtol=1e-5)
        whole = keras.ops.matmul(np.ones((2, 3), "int8"), np.ones((3, 2), "int8"))
        assert np.all(keras.ops.convert_to_numpy(whole) == 3)
