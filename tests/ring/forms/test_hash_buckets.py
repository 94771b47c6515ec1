"""Hashing of integers compiled by XLA, against Keras's own by strings."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from ringscope.ring.forms import hash_buckets
from tests.ring.forms.compiling import compiled
from tests.tiers import few

MANY = 2**62 - 57  # buckets, so that nearly all bits of the hash are compared


def _of_strings(values: np.ndarray, buckets: int) -> np.ndarray:
    return tf.strings.to_hash_bucket_fast(tf.as_string(values), buckets).numpy()  # type: ignore[no-any-return]


def test_numbers_of_each_length_have_the_hash_of_their_strings() -> None:
    random = np.random.default_rng(0)
    edges = [sign * (10**power + more) for power in range(19) for more in (-1, 0, 1) for sign in (-1, 1)]
    drawn = [random.integers(-(10**power), 10**power, 300) for power in range(1, 19)]
    values = np.concatenate([edges, [np.iinfo(np.int64).min, np.iinfo(np.int64).max], *drawn]).astype(np.int64)
    assert {len(str(value)) for value in values} == set(range(1, 21))
    got = compiled(hash_buckets.of_digits, lambda values: hash_buckets.bucket(values, MANY), values)
    np.testing.assert_array_equal(got, _of_strings(values, MANY))


@pytest.mark.parametrize("kind", ["int8", "int16", "int32", "uint8", "uint16", "uint32", "uint64"])
def test_integers_of_each_type_get_the_bins_of_their_digits(kind: str) -> None:
    ends = np.iinfo(kind)
    values = np.array([ends.min, ends.max, ends.max // 2, 0, 1, 7, 10, 99], kind)
    got = compiled(hash_buckets.of_digits, lambda values: hash_buckets.bucket(values, MANY), values)
    np.testing.assert_array_equal(got, _of_strings(values, MANY))


LAYERS: dict[str, dict[str, Any]] = {
    "plain": {},
    "one bin": {"num_bins": 1, "mask_value": 0},
    "masked": {"mask_value": 0},
    "narrow": {"dtype": "int32"},
    "one hot": {"output_mode": "one_hot"},
    "several hot": {"output_mode": "multi_hot", "mask_value": -3},
}


SHAPES = [(4, 3), (4, 1), (5,)]
# Each layer of one shape, and the others now and then.
CASES = [(name, SHAPES[(k + more) % 3]) for k, name in enumerate(LAYERS) for more in range(3)]


@pytest.mark.parametrize(("name", "shape"), few(CASES), ids=str)
def test_layers_of_keras_give_the_same(name: str, shape: tuple[int, ...]) -> None:
    layer = keras.layers.Hashing(**{"num_bins": 7, **LAYERS[name]})
    given = tf.constant(np.random.default_rng(1).integers(-4, 5, shape))
    got, own = compiled(hash_buckets.of_digits, layer, given), layer(given)
    np.testing.assert_array_equal(got, own)
    assert got.dtype == own.dtype.as_numpy_dtype


@pytest.mark.parametrize(
    ("options", "given"),
    [({"salt": 3}, [1, 2]), ({}, [1.0, 2.0]), ({}, ["a", "b"])],
    ids=["salted", "floating-point", "strings"],
)
def test_others_are_left_to_keras(options: dict[str, Any], given: list[Any]) -> None:
    layer = keras.layers.Hashing(9, **options)
    own = layer(tf.constant([given]))
    with hash_buckets.of_digits():
        np.testing.assert_array_equal(layer(tf.constant([given])), own)
