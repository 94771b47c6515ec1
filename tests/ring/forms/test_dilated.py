"""Convolutions with a dilation, compiled: Keras's outputs and gradients, and no pixel moved."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import layers

from ringscope.ring.forms import dilated
from tests.ring.traced import traced
from tests.tiers import few

LAYERS: dict[str, tuple[type[Any], tuple[int, ...], dict[str, Any]]] = {
    "of a row": (layers.Conv1D, (17, 3), {"filters": 4, "dilation_rate": 4}),
    "of a row, looking back": (layers.Conv1D, (17, 3), {"filters": 4, "dilation_rate": 2, "padding": "causal"}),
    "of an image": (layers.Conv2D, (13, 10, 3), {"filters": 4, "dilation_rate": 3}),
    "wider than the image": (layers.Conv2D, (13, 10, 3), {"filters": 4, "dilation_rate": 18}),
    "of one axis": (layers.Conv2D, (13, 10, 3), {"filters": 4, "dilation_rate": (1, 2)}),
    "of groups": (layers.Conv2D, (13, 10, 4), {"filters": 8, "dilation_rate": 2, "groups": 2}),
    "of a space": (layers.Conv3D, (8, 6, 9, 2), {"filters": 3, "dilation_rate": 2}),
    "of a space, unlike": (layers.Conv3D, (8, 6, 9, 2), {"filters": 3, "dilation_rate": (2, 1, 3)}),
    "by depth": (layers.DepthwiseConv2D, (13, 10, 3), {"dilation_rate": (2, 3), "depth_multiplier": 2}),
    "by depth, of a row": (layers.DepthwiseConv1D, (17, 3), {"dilation_rate": 3}),
    "by depth, in steps": (layers.DepthwiseConv2D, (13, 10, 3), {"dilation_rate": 2, "strides": 2}),
    "apart": (layers.SeparableConv2D, (13, 10, 3), {"filters": 4, "dilation_rate": 2}),
    "apart, of a row": (layers.SeparableConv1D, (17, 3), {"filters": 4, "dilation_rate": 2}),
    "larger": (layers.Conv2DTranspose, (6, 5, 3), {"filters": 4, "dilation_rate": 2}),
}
PADDINGS = [(name, padding) for name in LAYERS for padding in ("same", "valid")]
PADDINGS.remove(("wider than the image", "valid"))


def _model(name: str, **options: Any) -> tuple[Any, np.ndarray]:
    kind, shape, given = LAYERS[name]
    keras.utils.set_random_seed(5)
    inputs = keras.Input(shape)
    model = keras.Model(inputs, kind(kernel_size=3, **options | given)(inputs))
    return model, np.random.default_rng(0).normal(size=(3, *shape)).astype(np.float32)


def _assert_alike(model: Any, x: np.ndarray, near: float) -> None:
    plain, form = (traced(model, x, within) for within in (nullcontext, dilated.as_such))
    assert len(plain) == len(form) > 2
    for one, other in zip(plain, form, strict=True):
        np.testing.assert_allclose(other, one, atol=near * np.abs(one).max())


@pytest.mark.parametrize(("name", "padding"), few(PADDINGS))
def test_outputs_and_gradients_are_kerass(name: str, padding: str) -> None:
    _assert_alike(*_model(name, padding=padding), near=2e-5)


@pytest.mark.parametrize("name", few(["of an image", "of groups", "of a space", "by depth", "apart"], 4))
def test_in_bfloat16_they_are_kerass_up_to_rounding(name: str) -> None:
    _assert_alike(*_model(name, padding="same", dtype="mixed_bfloat16"), near=2e-2)


def _operations(model: Any, x: np.ndarray, within: Any) -> set[str]:
    @tf.function  # type: ignore[untyped-decorator]
    def run(x: Any) -> Any:
        with tf.GradientTape() as tape, within():
            total = tf.reduce_sum(tf.square(model(x, training=True)))
        return tape.gradient(total, model.trainable_variables)

    graph = run.get_concrete_function(tf.constant(x)).graph.as_graph_def()
    return {node.op for node in [*graph.node, *(n for f in graph.library.function for n in f.node_def)]}


@pytest.mark.parametrize("name", [name for name in LAYERS if name not in ("larger", "of a space, unlike")])
def test_no_pixel_is_moved(name: str) -> None:
    model, x = _model(name, **({} if name.endswith("back") else {"padding": "same"}))
    assert "SpaceToBatchND" in _operations(model, x, nullcontext)
    assert "SpaceToBatchND" not in _operations(model, x, dilated.as_such)
