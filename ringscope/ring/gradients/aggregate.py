"""The mean of several calls' gradients, applied once for all of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ..internals.frameworks import tf

Update = Callable[[Sequence[Any], Any], None]
"""(gradients, variables) -> the variables are updated."""


def aggregated(update: Update, every: int, state: dict[str, Any], largest: Callable[[Any], Sequence[int]]) -> Update:
    """Call `update` once in `every` calls, with the mean of their gradients; sparse ones become dense.

    state: where the sums are kept, empty at first. largest: variables -> the gradients of which the largest counts.
    """

    def add(gradients: Sequence[Any], variables: Any) -> None:
        if not state:
            with tf.init_scope():
                state["calls"] = tf.Variable(0, dtype=tf.int64, trainable=False)
                state["sums"] = [
                    None if g is None else tf.Variable(tf.zeros(g.shape, _wide(g.dtype))) for g in gradients
                ]
        greatest = set(largest(variables))
        for i, (total, gradient) in enumerate(zip(state["sums"], gradients, strict=True)):
            if total is not None:
                one = tf.cast(tf.convert_to_tensor(gradient), total.dtype)
                total.assign(tf.maximum(total, one) if i in greatest else total + one)

        def flush() -> None:
            kept = enumerate(state["sums"])
            update([t if t is None else tf.identity(t) if i in greatest else t / every for i, t in kept], variables)
            for total in state["sums"]:
                if total is not None:
                    total.assign(tf.zeros_like(total))

        # Every rank counts the same calls, so all take the same branch and the exchange inside it matches.
        tf.cond(state["calls"].assign_add(1) % every == 0, flush, lambda: None)

    return add


def _wide(kind: Any) -> Any:
    """The type of a sum of several steps: one of 8 or 11 bits would lose what a step adds."""
    return tf.float32 if kind.size < tf.float32.size else kind
