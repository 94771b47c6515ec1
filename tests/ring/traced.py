"""A model's call compiled by XLA, as it is or traced in a form: what it gives, and all gradients."""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import numpy as np
import tensorflow as tf


def traced(model: Any, inputs: Any, within: Callable[[], AbstractContextManager[Any]]) -> list[np.ndarray]:
    """Outputs, and the gradients by input and by weights of a loss that weighs each output differently, in float32.

    within: makes the context in which the model is called.
    """

    @tf.function(jit_compile=True)  # type: ignore[untyped-decorator]
    def run(inputs: Any) -> Any:
        with tf.GradientTape() as tape:
            tape.watch(inputs)
            with within():
                out = model(inputs, training=True)
            weights = tf.reshape(tf.sin(tf.range(tf.size(out), dtype=tf.float32)), tf.shape(out))
            loss = tf.reduce_sum(tf.cast(out, tf.float32) * weights)
        return [out, *tape.gradient(loss, [inputs, *model.trainable_variables])]

    return [np.asarray(tf.cast(each, tf.float32)) for each in run(tf.constant(inputs))]


def products(model: Any, inputs: Any, within: Callable[[], AbstractContextManager[Any]]) -> list[tuple[int, ...]]:
    """The shapes of what all matrix products there and back come to, as XLA is given them."""

    @tf.function(jit_compile=True)  # type: ignore[untyped-decorator]
    def run(inputs: Any) -> Any:
        with tf.GradientTape() as tape, within():
            tape.watch(inputs)
            total = tf.reduce_sum(tf.square(model(inputs, training=True)))
        return tape.gradient(total, [inputs, *model.trainable_variables])

    text = run.experimental_get_compiler_ir(tf.constant(inputs))(stage="hlo")
    return sorted(tuple(map(int, size.split(","))) for size in re.findall(r"\[([\d,]+)\]\S* dot\(", text))
