"""One class in each row, found in labels that a script has made of it by operations, and nothing else."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from ringscope.ring.forms import one_hot

CLASSES = 7
GIVEN = np.array([[0, 3, 6], [-1, 7, 2]], np.int32)


FOUND: dict[str, Callable[[Any], Any]] = {
    "plain": lambda classes: tf.one_hot(classes, CLASSES),
    "with numbers of its own": lambda classes: tf.one_hot(classes, CLASSES, 0.9, 0.02),
    "of whole numbers": lambda classes: tf.cast(tf.one_hot(classes, CLASSES, dtype=tf.int32), tf.float32),
    "smoothed by hand": lambda classes: 0.9 * tf.one_hot(classes, CLASSES) + 0.1 / CLASSES,
    "smoothed as by Keras": lambda classes: (
        keras.ops.one_hot(classes, CLASSES) * (1.0 - 0.1) + 0.1 / keras.ops.cast(7, "float32")
    ),
    "less a number": lambda classes: (tf.one_hot(classes, CLASSES) - 0.25) / tf.constant(3.0),
}
NOT: dict[str, Callable[[Any], Any]] = {
    "along another axis": lambda classes: tf.one_hot(classes, CLASSES, axis=1),
    "two of them": lambda classes: tf.one_hot(classes, CLASSES) + tf.one_hot(classes + 1, CLASSES),
    "a number less them": lambda classes: 1.0 - tf.one_hot(classes, CLASSES),
    "weighted by class": lambda classes: tf.one_hot(classes, CLASSES) * tf.range(1.0, CLASSES + 1),
    "no one-hot": lambda classes: tf.cast(classes, tf.float32)[..., tf.newaxis] * tf.ones(CLASSES),
}


@pytest.mark.parametrize("way", [*FOUND, *NOT])
def test_shares_are_found_where_each_row_has_one_class(way: str) -> None:
    found: list[bool] = []

    @tf.function(autograph=False)  # type: ignore[untyped-decorator]
    def run(classes: Any) -> Any:
        shares = (FOUND | NOT)[way](classes)
        made = one_hot.found(shares)
        found.append(made is not None)
        return shares, shares if made is None else tf.one_hot(made.classes, CLASSES, made.on, made.off)

    shares, again = run(tf.constant(GIVEN))
    assert found == [way in FOUND]
    np.testing.assert_array_equal(shares, again)


def test_an_eager_tensor_is_left_alone() -> None:
    assert one_hot.found(tf.one_hot(GIVEN, CLASSES)) is None
