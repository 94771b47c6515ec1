"""Operations that are traced without stacks of their own: the same graph, and errors that come all the same."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from ringscope.ring.forms import bare


def _traced(within: Any) -> Any:
    @tf.function(autograph=False)  # type: ignore[untyped-decorator]
    def squares(x: Any) -> Any:
        with within(), tf.GradientTape() as tape:
            tape.watch(x)
            numbers = tf.debugging.check_numerics(x, "x")
            y = tf.reduce_sum(numbers**2)
        return tape.gradient(y, x)

    return squares.get_concrete_function(tf.TensorSpec([3, 3]))


def _lines(concrete: Any) -> set[int]:
    """Of this file, where the operations of the gradient, and before it, were made."""
    operations = concrete.graph.get_operations()
    frames = [frame for each in operations if each.type in ("CheckNumerics", "Sum") for frame in each.traceback]
    return {frame.lineno for frame in frames if frame.filename == __file__ and frame.name == "squares"}


def test_a_graph_is_the_same_without() -> None:
    plain, without = (_traced(within) for within in (nullcontext, bare.of_one_stack))
    assert plain.graph.as_graph_def().node == without.graph.as_graph_def().node
    assert len(_lines(without)) < len(_lines(plain))


def test_an_error_still_names_the_operation() -> None:
    with pytest.raises(tf.errors.InvalidArgumentError, match="CheckNumerics"):
        _traced(bare.of_one_stack)(tf.fill([3, 3], np.nan))


def test_a_tensor_of_another_graph_is_still_told() -> None:
    kept = []

    @tf.function(autograph=False)  # type: ignore[untyped-decorator]
    def keeps(x: Any) -> Any:
        with bare.of_one_stack():
            kept.append(x + 1)
        return x

    keeps(tf.constant(1.0))
    with pytest.raises(TypeError, match="out of scope"):
        tf.function(lambda: kept[0] + 1, autograph=False)()
