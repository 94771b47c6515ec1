"""Tensors that a graph computes from constants alone: evaluated as the graph computes them, or not at all."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python.framework import op_def_registry

from ringscope.ring.forms import constants
from tests.tiers import few


@pytest.mark.parametrize("kind", constants.KINDS)
def test_every_argument_of_a_kind_is_an_operand_or_a_setting(kind: str) -> None:
    definition = op_def_registry.get(kind)
    operands = [constants.OPERANDS.get(each.name, each.name) for each in definition.input_arg]
    others = [name for name in inspect.signature(getattr(tf.raw_ops, kind)).parameters if name not in operands]
    assert {constants.SETTINGS.get(name, name) for name in others} <= {"name", *(each.name for each in definition.attr)}


MASKS: dict[str, Callable[[Any], Any]] = {
    "expanded": lambda m: tf.expand_dims(m & (m | True), 1),
    "squeezed": lambda m: tf.squeeze(tf.reshape(m & True, [1, 4, 1, 4]), [0, 2]),
    "squeezed of all": lambda m: tf.squeeze(tf.reshape(m & True, [1, 4, 1, 4])),
    "of any": lambda m: tf.reduce_any(m & True, 1, keepdims=True),
    "summed up": lambda m: tf.cumsum(tf.cast(m & True, tf.int32), axis=1, exclusive=True, reverse=True),
    "cut": lambda m: (m & True)[:, tf.newaxis, 1:3],
    "by where": lambda m: tf.where(m & True, 0.0, -1e9),
    "tiled": lambda m: tf.tile((m & True)[tf.newaxis], [2, 1, 1]),
    "turned": lambda m: tf.transpose(tf.cast(m & True, tf.float32) / 3 - 1),
}


@pytest.mark.parametrize("name", few(MASKS, 4))
def test_a_mask_of_constants_is_evaluated_as_the_graph_does(name: str) -> None:
    found: list[Any] = []

    @tf.function(autograph=False)  # type: ignore[untyped-decorator]
    def run() -> Any:
        made = MASKS[name](tf.range(4)[:, tf.newaxis] >= tf.range(4))
        found.append(constants.value(made))
        return made

    made = run().numpy()
    np.testing.assert_array_equal(found[0], made)
    assert found[0].dtype == made.dtype and found[0].shape == made.shape


def test_what_depends_on_an_argument_is_unknown() -> None:
    found: list[Any] = []

    @tf.function(autograph=False)  # type: ignore[untyped-decorator]
    def run(x: Any) -> Any:
        found.append(constants.value(tf.expand_dims(x >= tf.range(4), 0)))
        return x

    run(tf.constant(2))
    assert found == [None]


LATER = np.triu(np.ones((1, 4, 4), bool), 1)
# of a padding mask that tracing does not know, (2, 4) of 0 and 1, and a causal one
HIDDEN: dict[str, tuple[Callable[[Any, Any], Any], bool]] = {
    "as KerasHub merges them": (lambda p, c: tf.cast(tf.minimum(p[:, None], tf.cast(c, tf.int32)), tf.bool), True),
    "of numbers above a half": (lambda p, c: tf.cast(p[:, None] * tf.cast(c, tf.int32), tf.float32) > 0.5, True),
    "with an axis of heads": (lambda p, c: (tf.cast(p, tf.bool)[:, None] & c)[:, None], True),
    "of padding alone": (lambda p, c: tf.cast(p, tf.bool)[:, None] & tf.ones_like(c), False),
    "of what is hidden otherwise": (lambda p, c: tf.maximum(p[:, None], tf.cast(c, tf.int32)), False),
    "in the other order": (lambda p, c: tf.minimum(p[:, None], tf.cast(c, tf.int32))[:, ::-1, ::-1], False),
    "of numbers above -1": (lambda p, c: tf.minimum(p[:, None], tf.cast(c, tf.int32)) > -1, False),
}


@pytest.mark.parametrize("name", HIDDEN)
def test_a_mask_that_is_merged_with_a_causal_one_hides_later_keys(name: str) -> None:
    made, hides = HIDDEN[name]
    found: list[bool] = []

    @tf.function(autograph=False)  # type: ignore[untyped-decorator]
    def run(padding: Any) -> Any:
        mask = made(padding, tf.constant(~LATER) & True)
        found.append(constants.hides_later(mask))
        return tf.reshape(tf.cast(mask, tf.bool), [2, 4, 4])

    lets = run(tf.constant([[1, 1, 1, 0], [0, 1, 1, 1]])).numpy()
    assert found == [hides] and (lets & LATER).any() != hides
