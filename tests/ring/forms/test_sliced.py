"""Slices at a place that the step computes: Keras's results and gradients, and no second compilation."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from ringscope.ring.forms import augmented, sliced

IMAGES = np.random.default_rng(0).uniform(0, 255, (4, 12, 13, 3)).astype(np.float32)
PLACES = ((0, 0), (4, 4), (3, 1))  # first rows and columns of a crop of 8 x 9


@pytest.mark.parametrize("policy", ["float32", "bfloat16"])
@pytest.mark.parametrize("given", ["channels_last", "channels_first", "one image"])
def test_a_random_crop_takes_what_keras_takes(given: str, policy: str) -> None:
    images = {"channels_last": IMAGES, "channels_first": np.moveaxis(IMAGES, 3, 1), "one image": IMAGES[0]}[given]
    form = "channels_first" if given == "channels_first" else "channels_last"
    layer = keras.layers.RandomCrop(8, 9, data_format=form, dtype=policy)
    place, images = tf.Variable([0, 0]), tf.constant(images)

    def cut(first: Any) -> Any:
        with tf.GradientTape() as tape:
            tape.watch(images)
            made = layer.transform_images(images, (first[0], first[1]))
            total = tf.reduce_sum(tf.square(tf.cast(made, tf.float32)))
        return made, tape.gradient(total, images)

    @tf.function(jit_compile=True, autograph=False)  # type: ignore[untyped-decorator]
    def run() -> Any:
        with augmented.compiled(), sliced.anywhere():
            return cut(place + 0)

    for first in PLACES:
        place.assign(first)
        for mine, kerass in zip(run(), cut(tf.constant(first)), strict=True):
            assert mine.dtype == kerass.dtype
            np.testing.assert_array_equal(tf.cast(mine, tf.float32), tf.cast(kerass, tf.float32))


def test_a_slice_of_known_places_or_up_to_an_end_stays_tensorflows() -> None:
    @tf.function(autograph=False)  # type: ignore[untyped-decorator]
    def run(place: Any) -> Any:
        with sliced.anywhere():
            return tf.slice(place, [1], [2]), tf.slice(place, place[:1], [-1])

    kinds = [op.type for op in run.get_concrete_function(tf.TensorSpec((4,), tf.int32)).graph.get_operations()]
    assert kinds.count("Slice") == 2 and not any("Dynamic" in kind for kind in kinds)
