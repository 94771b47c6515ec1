"""A simple recurrent layer over all steps of a sequence: one forward loop and one backward loop."""

from __future__ import annotations

from typing import Any

from ...internals.frameworks import tf
from ..half_precision import wide_type
from .loop import State, at, gradients, loop, room, where
from .lstm import Product


def simple_rnn(cell: Any, product: Product, products: Any, start: Any, recurrent: Any, bias: Any, counts: Any) -> Any:
    """(states (steps, batch, units), the last state).

    cell: gives the activation. products: (steps, batch, units), the inputs' products. start: (batch, units). bias:
    (units,). counts: (steps, batch, 1), False at masked steps; None: no mask.
    """
    kind, wide = products.dtype, wide_type(products.dtype)
    steps = products.shape[0]

    @tf.custom_gradient
    def run(products: Any, start: Any, recurrent: Any, bias: Any) -> Any:
        def step(t: Any, state: Any) -> State:
            sums = sum(tf.cast(each, wide) for each in (at(products, t), product.there(state, recurrent), bias))
            state = where(counts, t, tf.cast(cell.activation(sums), kind), state)
            return [state], (state, tf.cast(sums, kind))

        empty = [room(products.shape, kind) for _ in range(2)]
        (last,), (states, kept) = loop(step, range(steps), [start], empty)

        def gradient(d_states: Any, d_last: Any) -> tuple[Any, ...]:
            before = tf.concat([start[tf.newaxis], states[:-1]], axis=0)

            def step(t: Any, d_state: Any) -> State:
                d_state += tf.cast(at(d_states, t), wide)
                none = tf.zeros_like(d_state)
                through = where(counts, t, d_state, none)
                (part,) = gradients(cell.activation, [tf.cast(at(kept, t), wide)], through)
                part = tf.cast(part, kind)
                d_before = tf.cast(product.back(part, recurrent), wide)
                if counts is not None:
                    d_before += where(counts, t, none, d_state)
                return [d_before], [part]

            begin = [tf.cast(d_last, wide)]
            (d_start,), (parts,) = loop(step, range(steps - 1, -1, -1), begin, [room(kept.shape, kind)])
            d_bias = tf.reduce_sum(tf.cast(parts, wide), axis=[0, 1])
            return parts, tf.cast(d_start, kind), product.summed(before, parts), tf.cast(d_bias, bias.dtype)

        return (states, last), gradient

    return run(products, start, recurrent, bias)
