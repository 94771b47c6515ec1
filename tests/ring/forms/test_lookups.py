"""Lookups of whole numbers compiled by XLA, against TensorFlow's hash tables."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from ringscope.ring.forms import lookups
from tests.ring.forms.compiling import compiled


@pytest.mark.parametrize("size", [1, 2, 3, 4, 31, 32, 33])
@pytest.mark.parametrize("kinds", [("int64", "int64"), ("int32", "float32")])
def test_each_key_finds_its_value_and_no_other_does(size: int, kinds: tuple[str, str]) -> None:
    random = np.random.default_rng(size)
    known = random.choice(np.arange(-200, 200) * 3, size, replace=False).astype(kinds[0])
    values = random.integers(0, 99, size).astype(kinds[1])
    table = tf.lookup.StaticHashTable(tf.lookup.KeyValueTensorInitializer(known, values), default_value=-7)
    keys = tf.constant(np.concatenate([known, known + 1, [np.iinfo(kinds[0]).min, np.iinfo(kinds[0]).max]]))
    keys = tf.reshape(tf.cast(keys, kinds[0]), [2, -1])
    np.testing.assert_array_equal(compiled(lookups.halving, lambda keys: table.lookup(keys), keys), table.lookup(keys))


LAYERS = {
    "plain": {},
    "several for others": {"num_oov_indices": 3},
    "masked": {"mask_token": 0},
    "as many numbers": {"output_mode": "multi_hot"},
    "back": {"invert": True},
}


@pytest.mark.parametrize("options", LAYERS.values(), ids=LAYERS)
def test_layers_of_keras_give_the_same(options: dict[str, Any]) -> None:
    layer = keras.layers.IntegerLookup(vocabulary=[12, 7, 99, 1000], **options)
    there = [1, 2, 3] if "invert" in options else [12, 7, 99]
    others = [] if "invert" in options else [5, 0, 100_000]
    given = tf.constant([[*there, *others]] * 2, tf.int64)
    np.testing.assert_array_equal(compiled(lookups.halving, layer, given), layer(given))
