"""Functions of the user's that tf.function decorates, traced as parts of a step."""

from __future__ import annotations

from typing import Any

import pytest

tf = pytest.importorskip("tensorflow")
pytest.importorskip("horovod.tensorflow")

from ringscope.ring.step.one_program import functions_inlined  # noqa: E402


def _halved(x: Any) -> Any:
    if tf.reduce_sum(x) > 0:
        x = x / 2
    for _ in tf.range(3):
        x += 1
    return x


def test_its_conditions_and_loops_on_tensors_stay_those_of_the_graph() -> None:
    decorated = tf.function(_halved)

    @tf.function(autograph=False)
    def step(x: Any) -> Any:
        with functions_inlined():
            return decorated(x)

    for x in (tf.constant([4.0, 2.0]), tf.constant([-4.0, -2.0])):
        assert step(x).numpy().tolist() == _halved(x).numpy().tolist()
    assert not any("Partitioned" in op.type for op in step.get_concrete_function(x).graph.get_operations())


def test_without_autograph_a_condition_on_a_tensor_is_refused_as_by_tensorflow() -> None:
    @tf.function(autograph=False)
    def step(x: Any) -> Any:
        with functions_inlined():
            return tf.function(_halved, autograph=False)(x)

    with pytest.raises(tf.errors.OperatorNotAllowedInGraphError):
        step(tf.constant([1.0]))
