"""Keras's optimizers traced in fewer operations, against themselves: equal weights and states, with XLA and without."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from itertools import product
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from ringscope.ring.forms import optimizers
from tests.tiers import few

SHAPES = [(3, 4), (4,), (), (2, 3, 2)]
OPTIMIZERS: dict[str, Callable[[], Any]] = {
    "Adam": lambda: keras.optimizers.Adam(0.01),
    "AdamW": lambda: keras.optimizers.AdamW(keras.optimizers.schedules.CosineDecay(0.05, 4), weight_decay=0.1),
    "AdamW, some not decayed, norms clipped": lambda: _some_decayed(keras.optimizers.AdamW(0.01, clipnorm=0.3)),
    "Adam with means of the weights": lambda: keras.optimizers.Adam(0.01, use_ema=True, ema_overwrite_frequency=2),
    "Adam, every other step": lambda: keras.optimizers.Adam(0.01, gradient_accumulation_steps=2),
    "Adam, amsgrad": lambda: keras.optimizers.Adam(0.01, amsgrad=True, weight_decay=0.1),
    "SGD": lambda: keras.optimizers.SGD(0.1, global_clipnorm=1.0),
    "SGD, momentum": lambda: keras.optimizers.SGD(0.1, momentum=0.9, weight_decay=0.01),
    "SGD, Nesterov": lambda: keras.optimizers.SGD(0.1, momentum=0.9, nesterov=True),
    "scaled": lambda: keras.optimizers.LossScaleOptimizer(keras.optimizers.Adam(0.01), initial_scale=4.0),
    "RMSprop": lambda: keras.optimizers.RMSprop(0.01, weight_decay=0.1),
}
SHORT = {name for name in OPTIMIZERS if "amsgrad" not in name and name != "RMSprop"}


def _some_decayed(optimizer: Any) -> Any:
    optimizer.exclude_from_weight_decay(var_names=["v1"])
    return optimizer


def _trained(make: Callable[[], Any], *, short: bool, compiled: bool, dtype: str = "float32") -> tuple[list[Any], int]:
    """(weights and states after five steps, operations of a step)."""
    random = np.random.default_rng(0)
    with keras.name_scope("model"):
        variables = [keras.Variable(random.normal(size=s), dtype=dtype, name=f"v{i}") for i, s in enumerate(SHAPES)]
    optimizer = make()
    optimizer.build(variables)

    @tf.function(jit_compile=compiled, autograph=False)  # type: ignore[untyped-decorator]
    def step(*gradients: Any) -> None:
        with optimizers.short(optimizer) if short else nullcontext():
            optimizer.apply(list(gradients), variables)

    for _ in range(5):
        step(*(tf.constant(random.normal(size=shape), dtype) for shape in SHAPES))
    graph = step.get_concrete_function(*(tf.TensorSpec(shape, dtype) for shape in SHAPES)).graph.as_graph_def()
    operations = len(graph.node) + sum(len(function.node_def) for function in graph.library.function)
    return [np.asarray(tf.cast(v, tf.float64)) for v in (*variables, *optimizer.variables)], operations


@pytest.mark.parametrize(("name", "compiled"), few(product(OPTIMIZERS, [False, True])))
def test_five_steps_end_alike(name: str, compiled: bool) -> None:
    keras_own, many = _trained(OPTIMIZERS[name], short=False, compiled=compiled)
    ours, few = _trained(OPTIMIZERS[name], short=True, compiled=compiled)
    for own, theirs in zip(ours, keras_own, strict=True):
        np.testing.assert_allclose(own, theirs, rtol=3e-7, atol=1e-9)
    assert few < many if name in SHORT or "RMSprop" in name else few <= many


@pytest.mark.parametrize("dtype", ["float64", "bfloat16"])
def test_variables_of_other_types_are_updated_as_by_keras(dtype: str) -> None:
    for name in ("AdamW", "SGD, Nesterov"):
        keras_own, _ = _trained(OPTIMIZERS[name], short=False, compiled=False, dtype=dtype)
        ours, _ = _trained(OPTIMIZERS[name], short=True, compiled=False, dtype=dtype)
        for own, theirs in zip(ours, keras_own, strict=True):
            np.testing.assert_array_equal(own, theirs)


@pytest.mark.parametrize(("name", "each"), {"Adam": 1, "AdamW": 2, "SGD, momentum": 2, "SGD, Nesterov": 1}.items())
def test_a_weight_more_adds_an_operation_for_its_update_and_one_for_its_decay(name: str, each: int) -> None:
    def operations(weights: int) -> int:
        variables = [keras.Variable(np.ones((2, size), "float32")) for size in range(1, weights + 1)]
        optimizer = OPTIMIZERS[name]()
        optimizer.build(variables)

        def step() -> None:
            with optimizers.short(optimizer):
                optimizer.apply([tf.ones(v.shape) for v in variables], variables)

        graph = tf.function(step, autograph=False).get_concrete_function().graph
        slow = {"Sqrt"}  # TensorFlow translates it for XLA by passes of its own
        assert not slow & {node.op for body in graph.as_graph_def().library.function for node in body.node_def}
        return sum("Op" in op.type or "Apply" in op.type or "Call" in op.type for op in graph.get_operations())

    assert operations(12) - operations(3) == 9 * each


def test_rows_of_an_embedding_take_keras_way() -> None:
    def trained(short: bool) -> np.ndarray:
        table, optimizer = keras.Variable(np.ones((5, 2), "float32")), keras.optimizers.Adam(0.1)
        optimizer.build([table])
        rows = tf.IndexedSlices(tf.constant([[1.0, 2.0], [3.0, 4.0]]), tf.constant([1, 3]), tf.constant([5, 2]))
        with optimizers.short(optimizer) if short else nullcontext():
            optimizer.apply([rows], [table])
        return np.asarray(table)

    np.testing.assert_array_equal(trained(True), trained(False))


def test_an_optimizer_of_the_users_own_stays_as_it_is() -> None:
    class Half(keras.optimizers.Adam):  # type: ignore[misc]
        def assign_sub(self, variable: Any, value: Any) -> None:
            super().assign_sub(variable, value / 2)

    class Other(keras.optimizers.SGD):  # type: ignore[misc]
        def update_step(self, gradient: Any, variable: Any, learning_rate: Any) -> None:
            variable.assign(gradient)

    changed = keras.optimizers.Adam()
    changed.update_step = lambda *_: None
    for optimizer in (Half(), changed):
        before = set(vars(optimizer))
        with optimizers.short(optimizer):
            assert set(vars(optimizer)) == before
    other = Other(weight_decay=0.1)
    with pytest.raises(ZeroDivisionError), optimizers.short(other):
        assert "_backend_update_step" not in vars(other)
        _ = 1 / 0
    assert "_apply_weight_decay" not in vars(other)
