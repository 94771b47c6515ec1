"""Depthwise convolutions over small maps: Keras's outputs and gradients, by windows that XLA takes for a gradient's."""

from __future__ import annotations

import re
from contextlib import nullcontext
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from ringscope.ring.forms import depthwise
from tests.ring.traced import traced
from tests.tiers import few


def _model(kind: str, size: tuple[int, int, int], kernel: int, padding: str, **options: Any) -> Any:
    keras.utils.set_random_seed(5)
    inputs = keras.Input(size)
    if kind == "groups":
        layer: Any = keras.layers.Conv2D(size[2] * 2, kernel, groups=size[2], padding=padding, **options)
    else:
        layer = keras.layers.DepthwiseConv2D(kernel, padding=padding, **options)
    return keras.Model(inputs, layer(inputs))


def _windows(model: Any, x: Any, within: Any) -> list[tuple[int, ...]]:
    """The windows of all convolutions of the way back, as XLA is given them."""

    @tf.function(jit_compile=True)  # type: ignore[untyped-decorator]
    def run(x: Any) -> Any:
        with tf.GradientTape() as tape, within():
            total = tf.reduce_sum(tf.square(model(x, training=True)))
        return tape.gradient(total, model.trainable_variables)

    text = run.experimental_get_compiler_ir(tf.constant(x))(stage="hlo")
    return [tuple(map(int, size.split("x"))) for size in re.findall(r"convolution\(.*window=\{size=(\d+x\d+)", text)]


FILTERS = [
    ((7, 7, 6), 7, "same"),
    ((4, 3, 6), 7, "same"),
    ((4, 3, 3), 4, "same"),
    ((9, 9, 4), 5, "valid"),
    ((6, 20, 4), 5, "valid"),
    ((7, 12, 4), 7, "same"),
    ((2, 2, 4), 2, "same"),
]


@pytest.mark.parametrize(
    ("kind", "size", "kernel", "padding"),
    few((kind, *one) for kind in ("groups", "depthwise") for one in FILTERS),
)
def test_the_gradients_are_kerass(kind: str, size: tuple[int, int, int], kernel: int, padding: str) -> None:
    model = _model(kind, size, kernel, padding)
    x = np.random.default_rng(0).normal(size=(3, *size)).astype("float32")
    plain, form = (traced(model, x, within) for within in (nullcontext, depthwise.filters))
    assert len(plain) == len(form) == 4
    for one, other in zip(plain, form, strict=True):
        np.testing.assert_allclose(other, one, atol=2e-5 * np.abs(one).max())


@pytest.mark.parametrize("kind", ["groups", "depthwise"])
def test_in_bfloat16_they_are_kerass_up_to_rounding(kind: str) -> None:
    model = _model(kind, (7, 7, 6), 7, "same", dtype="mixed_bfloat16")
    x = np.random.default_rng(0).normal(size=(3, 7, 7, 6)).astype("float32")
    plain, form = (traced(model, x, within) for within in (nullcontext, depthwise.filters))
    for one, other in zip(plain, form, strict=True):
        np.testing.assert_allclose(other, one, atol=2e-2 * np.abs(one).max())
    assert (8, 8) in _windows(model, x, depthwise.filters)


@pytest.mark.parametrize("kind", ["groups", "depthwise"])
def test_the_map_of_gradients_is_larger_than_the_filter(kind: str) -> None:
    model = _model(kind, (7, 7, 6), 7, "same")
    x = np.zeros((3, 7, 7, 6), "float32")
    assert (8, 8) not in _windows(model, x, nullcontext)
    assert (8, 8) in _windows(model, x, depthwise.filters)


@pytest.mark.parametrize(
    ("size", "options"),
    [
        ((8, 8, 6), {}),  # larger as it is
        ((13, 13, 6), {"strides": 2}),
        ((7, 7, 6), {"dilation_rate": 2}),
    ],
)
def test_what_xla_tells_apart_by_itself_stays_kerass(size: tuple[int, int, int], options: dict[str, Any]) -> None:
    model = _model("depthwise", size, 7, "same", **options)
    x = np.zeros((2, *size), "float32")
    assert _windows(model, x, depthwise.filters) == _windows(model, x, nullcontext)


def test_a_convolution_of_one_channel_or_of_all_stays_kerass() -> None:
    for channels, groups in ((1, 1), (4, 1), (4, 2)):
        inputs = keras.Input((5, 5, channels))
        model = keras.Model(inputs, keras.layers.Conv2D(4, 5, padding="same", groups=groups)(inputs))
        x = np.zeros((2, 5, 5, channels), "float32")
        assert _windows(model, x, depthwise.filters) == _windows(model, x, nullcontext)
