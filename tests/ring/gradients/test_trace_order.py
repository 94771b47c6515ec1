"""What the rest of a backward pass begins with: doubled there, every gradient that is computed later is doubled."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

tf = pytest.importorskip("tensorflow")
keras = pytest.importorskip("keras")
traced = pytest.importorskip("ringscope.ring.gradients.overlap.trace_order")
pytestmark = pytest.mark.train

LAYERS = 5


def _straight(x: Any, dense: list[Any]) -> Any:
    for layer in dense:
        x = layer(x)
    return x


def _around(x: Any, dense: list[Any]) -> Any:
    """Each layer with a path around it, and another around three of them."""
    kept = x
    for i, layer in enumerate(dense):
        x = x + layer(x)
        if i == 3:
            x = x * keras.ops.sigmoid(kept)
    return x


def _gradients(net: Any, x: Any, variables: list[Any], cut_at: int | None) -> list[Any]:
    """Traced; with what crosses the place where the gradient of `cut_at` is made taken twice from there on."""

    @tf.function(autograph=False)
    def step(x: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(tf.sin(net(x)))
        gradients = tape.gradient(loss, variables)
        if cut_at is not None:
            graph = traced.Traced(len(tf.compat.v1.get_default_graph().get_operations()))
            cut = [graph.made_at(gradient) for gradient in gradients][cut_at]
            tensors = graph.crossing(graph.backward, cut)
            assert tensors
            graph.lead(tensors, [2 * tensor for tensor in tensors], cut)
        return gradients

    return [gradient.numpy() for gradient in step(x)]


@pytest.mark.parametrize("net", [_straight, _around])
@pytest.mark.parametrize("cut_at", range(1, LAYERS))
def test_all_that_is_computed_later_comes_from_what_crosses(net: Any, cut_at: int) -> None:
    keras.utils.set_random_seed(cut_at)
    dense = [keras.layers.Dense(8, activation="tanh", use_bias=False) for _ in range(LAYERS)]
    x = tf.random.normal([4, 8])
    net(x, dense)
    variables = [layer.kernel.value for layer in dense]
    before, after = (_gradients(lambda x: net(x, dense), x, variables, cut) for cut in (None, cut_at))
    for i, (one, other) in enumerate(zip(before, after, strict=True)):
        np.testing.assert_array_equal(other, one * (2 if i < cut_at else 1))


def test_a_weight_that_is_used_twice_is_made_with_the_last_of_its_parts() -> None:
    dense = [keras.layers.Dense(8, activation="tanh", use_bias=False) for _ in range(3)]

    def net(x: Any) -> Any:
        return _straight(x, [dense[0], dense[1], dense[2], dense[1]])

    x = tf.random.normal([4, 8])
    net(x)
    variables = [layer.kernel.value for layer in dense]
    before, after = (_gradients(net, x, variables, cut) for cut in (None, 1))
    np.testing.assert_array_equal(after[0], 2 * before[0])
    for later in (1, 2):
        np.testing.assert_array_equal(after[later], before[later])


def test_a_gradient_that_is_changed_after_the_tape_is_made_at_the_end() -> None:
    kernel = tf.Variable(tf.ones([3, 3]))

    @tf.function(autograph=False)
    def step(x: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(x @ kernel)
        gradient = tape.gradient(loss, kernel)
        ended = len(tf.compat.v1.get_default_graph().get_operations())
        graph = traced.Traced(ended)
        handed_on = tf.reshape(tf.cast(gradient, tf.float16), [-1])
        assert graph.made_at(handed_on) == graph.made_at(gradient)
        assert graph.made_at(tf.concat([handed_on, handed_on], 0)) == ended - 1
        return gradient

    step(tf.ones([2, 3]))
