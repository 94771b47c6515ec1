"""Gradient accumulation: the mean gradient of several calls is applied by one update."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ..internals.frameworks import tf
from ..models import SUMS

Update = Callable[[Sequence[Any], Any], None]
"""(gradients, variables) -> the variables are updated."""


def aggregated(update: Update, every: int, state: dict[Any, Any], largest: Callable[[Any], Sequence[int]]) -> Update:
    """Call `update` once in `every` calls for the same variables, with the mean of their gradients; sparse gradients
    become dense.

    state: holds the number of calls and the sums for each list of variables, empty at first. largest: variables ->
    places of gradients whose maximum is kept instead of their mean.
    """

    def add(gradients: Sequence[Any], variables: Any) -> None:
        key = tuple(id(each) for each in variables or ())
        if key not in state:
            with tf.init_scope():
                sums = [
                    None if g is None else tf.Variable(tf.zeros(g.shape, _wide(g.dtype)), name=SUMS) for g in gradients
                ]
                state[key] = tf.Variable(0, dtype=tf.int64, trainable=False), sums
        calls, sums = state[key]
        greatest = set(largest(variables))
        for i, (total, gradient) in enumerate(zip(sums, gradients, strict=True)):
            if total is not None:
                one = tf.cast(tf.convert_to_tensor(gradient), total.dtype)
                total.assign(tf.maximum(total, one) if i in greatest else total + one)

        def flush() -> None:
            kept = enumerate(sums)
            update([t if t is None else tf.identity(t) if i in greatest else t / every for i, t in kept], variables)
            for total in sums:
                if total is not None:
                    total.assign(tf.zeros_like(total))

        # All ranks count the same calls, so that they take the same branch and their exchanges match.
        tf.cond(calls.assign_add(1) % every == 0, flush, lambda: None)

    return add


def _wide(kind: Any) -> Any:
    """The type in which gradients of several steps are summed: float32 for 16-bit types, whose 8 or 11 significant bits
    lose small summands."""
    return tf.float32 if kind.size < tf.float32.size else kind
