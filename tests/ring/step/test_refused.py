"""What is said of a step that XLA refuses: which layer it is, and what that costs."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from ringscope.ring.step import choose
from ringscope.ring.step.head import Head


def _model() -> Any:
    inputs = keras.Input((4,), dtype="int32")
    x = keras.layers.Hashing(9, name="sorted_in")(inputs)
    x = keras.layers.Embedding(9, 3, name="sorted")(x)
    return keras.Model(inputs, keras.layers.Dense(2)(keras.layers.Flatten()(x)))


def test_the_layer_that_xla_has_no_kernel_for_is_named_with_its_price() -> None:
    model = _model()
    compiled = tf.function(lambda x: model(x, training=True), jit_compile=True, autograph=False)
    with pytest.raises(tf.errors.OpError) as refused:
        compiled(np.zeros((2, 4), np.int32))
    said = choose.price(Head(model), str(refused.value))
    assert "sorted_in (Hashing)" in said and choose.COST in said and "Embedding" not in said


@pytest.mark.parametrize(
    ("path", "named"),
    [
        ("functional_1/sorted_1/embedding_lookup", ["Embedding"]),
        ("functional_1/sorted_in_1_2/x", ["Hashing"]),
        ("functional_1/sorted_out/x", []),
        ("gradient_tape/x", []),
    ],
)
def test_a_name_is_a_layers_with_a_number_or_without(path: str, named: list[str]) -> None:
    layers = [layer for layer in _model()._flatten_layers() if layer.name.startswith("sorted")]
    assert [type(layer).__name__ for layer in choose._on(path, layers)] == named


def test_an_error_that_names_no_layer_has_no_price() -> None:
    assert choose.price(Head(_model()), "batches of two shapes") == ""
