"""Equal constants of whole numbers as one tensor of a graph: equal results, and none shared that must not be."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from ringscope.ring.forms import shared

GIVEN = [
    *(3, True, 3.0, np.int32(3), np.int64(3), np.uint8(3), 2**40),
    *([3], (3,), [3, 4], [np.int32(3), 4], [np.int64(3), 4], [True, 4], [3.0, 4], [], [[3, 4], [5, 6]]),
    list(range(20)),
    *(np.array([3]), np.array([3, 4], np.int32), np.array([[3, 4]], np.int32), np.array([3.0], np.float32)),
]


def _constants(concrete: Any) -> list[Any]:
    return [each for each in concrete.graph.get_operations() if each.type == "Const"]


@pytest.mark.parametrize("compiled", [False, True])
def test_constants_have_their_own_types_shapes_and_values(compiled: bool) -> None:
    types = [None, tf.int32, tf.int64, tf.float32, tf.uint8]

    def made() -> list[Any]:
        found = []
        for dtype in types * 2:
            for value in GIVEN:
                try:
                    found.append(tf.identity(tf.constant(value, dtype)))
                except (TypeError, ValueError):
                    found.append(tf.constant("refused") if not compiled else tf.constant(-1))
        return found

    def within() -> list[Any]:
        with shared.constants():
            return made()

    plain, with_shared = (tf.function(each, autograph=False, jit_compile=compiled)() for each in (made, within))
    for one, other in zip(plain, with_shared, strict=True):
        assert one.dtype == other.dtype and one.shape == other.shape
        np.testing.assert_array_equal(one.numpy(), other.numpy())


def _turned(i: Any, y: Any) -> Any:
    return i + 1, tf.reshape(y[:, ::-1], [4, 6, 8]) * 2


def _trained(within: Any) -> tuple[list[np.ndarray], int]:
    """(a loss and its gradients, constants in the graph)."""
    random = np.random.default_rng(0)
    x, w = (tf.constant(random.normal(size=shape), tf.float32) for shape in ((4, 6, 8), (8, 8)))

    @tf.function(autograph=False, jit_compile=True)  # type: ignore[untyped-decorator]
    def step(x: Any, w: Any) -> Any:
        with within():
            with tf.GradientTape() as tape:
                tape.watch([x, w])
                y = x
                for _ in range(3):
                    y = tf.reshape(tf.matmul(tf.reshape(y, [24, 8]), w), [4, 6, 8])
                    y = tf.transpose(tf.nn.softmax(tf.transpose(y, [0, 2, 1])), [0, 2, 1]) - tf.reduce_mean(y, [0, 1])
                y = tf.while_loop(lambda i, _: i < 3, _turned, (0, y), maximum_iterations=3)[1]
                loss = tf.reduce_sum(y[:, 1:, 3] ** 2)
            return loss, *tape.gradient(loss, [x, w])

    return [each.numpy() for each in step(x, w)], len(_constants(step.get_concrete_function(x, w)))


def test_a_step_gives_the_same_numbers_with_less_constants() -> None:
    (plain, many), (numbers, few) = _trained(nullcontext), _trained(shared.constants)
    for one, other in zip(plain, numbers, strict=True):
        np.testing.assert_array_equal(one, other)
    assert few < many / 2


def test_a_tape_watches_one_constant_and_no_equal_one() -> None:
    @tf.function(autograph=False)  # type: ignore[untyped-decorator]
    def slope() -> Any:
        with shared.constants(), tf.GradientTape() as tape:
            watched, equal = tf.constant(3.0), tf.constant(3.0)
            tape.watch(watched)
            made = watched * equal
        return tape.gradient(made, watched)

    assert slope().numpy() == 3


def test_a_function_within_the_step_has_constants_of_its_own() -> None:
    @tf.function(autograph=False)  # type: ignore[untyped-decorator]
    def step(x: Any) -> Any:
        with shared.constants():
            outer = tf.reshape(x, [2, 3])
            inner = tf.function(lambda y: tf.reshape(y * 2, [2, 3]), autograph=False)
            return outer + inner(x) + tf.reshape(inner(outer), [2, 3])

    np.testing.assert_array_equal(step(tf.range(6)).numpy(), np.arange(6).reshape(2, 3) * 5)
