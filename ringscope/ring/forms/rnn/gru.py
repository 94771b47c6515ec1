"""A GRU over all steps of a sequence: one forward loop and one backward loop."""

from __future__ import annotations

from typing import Any

from ...internals.frameworks import tf
from ..half_precision import wide_type
from .loop import State, at, gradients, loop, room, where
from .lstm import Product


def gru(cell: Any, product: Product, products: Any, start: Any, recurrent: Any, bias: Any, counts: Any) -> Any:
    """(states (steps, batch, units), the last state), with the reset gate applied after the recurrent product.

    cell: gives the activations. products: (steps, batch, 3 units), the inputs' products. start: (batch, units). bias:
    (2, 3 units), for the products of the inputs and of the states. counts: (steps, batch, 1), False at masked steps;
    None: no mask.
    """
    kind, wide = products.dtype, wide_type(products.dtype)
    steps, (batch, units) = products.shape[0], start.shape

    def summed(own: Any, inner: Any, bias: Any) -> Any:
        """The sums (batch, 4 units) for the update gate, the reset gate, and the candidate: its part from the state,
        then from the inputs."""
        own, inner = (
            tf.split(tf.cast(each, wide) + tf.cast(of_it, wide), 3, axis=1)
            for each, of_it in ((own, bias[0]), (inner, bias[1]))
        )
        return tf.concat([own[0] + inner[0], own[1] + inner[1], inner[2], own[2]], axis=1)

    def moved(sums: Any, before: Any) -> Any:
        update, reset, inner, new = tf.split(sums, 4, axis=1)
        update, reset = map(cell.recurrent_activation, (update, reset))
        return update * before + (1 - update) * cell.activation(new + reset * inner)

    @tf.custom_gradient
    def run(products: Any, start: Any, recurrent: Any, bias: Any) -> Any:
        def step(t: Any, wide_state: Any, state: Any) -> State:
            sums = summed(at(products, t), product.there(state, recurrent), bias)
            wide_state = where(counts, t, moved(sums, wide_state), wide_state)
            state = tf.cast(wide_state, kind)
            return (wide_state, state), (state, tf.cast(sums, kind))

        empty = [room([steps, batch, n * units], kind) for n in (1, 4)]
        (_, last), (states, kept) = loop(step, range(steps), (tf.cast(start, wide), start), empty)

        def gradient(d_states: Any, d_last: Any) -> tuple[Any, ...]:
            before = tf.concat([start[tf.newaxis], states[:-1]], axis=0)

            def step(t: Any, d_state: Any) -> State:
                d_state += tf.cast(at(d_states, t), wide)
                through = where(counts, t, d_state, tf.zeros_like(d_state))
                given = tf.cast(at(kept, t), wide), tf.cast(at(before, t), wide)
                part, d_before = gradients(moved, given, through)
                part = tf.cast(part, kind)
                d_state = where(counts, t, d_before, d_state)
                return [d_state + product.back(part[:, : 3 * units], recurrent)], [part]

            empty = [room([steps, batch, 4 * units], kind)]
            (d_start,), (parts,) = loop(step, range(steps - 1, -1, -1), [tf.cast(d_last, wide)], empty)
            d_products, d_inners = _of_inputs(parts, units), parts[..., : 3 * units]
            total = tf.reduce_sum(tf.cast(parts, wide), axis=[0, 1])
            d_bias = tf.stack([_of_inputs(total, units), total[: 3 * units]])
            d_recurrent = product.summed(before, d_inners)
            return d_products, tf.cast(d_start, kind), d_recurrent, tf.cast(d_bias, bias.dtype)

        return (states, last), gradient

    return run(products, start, recurrent, bias)


def _of_inputs(parts: Any, units: int) -> Any:
    """The gradients of the inputs' products (update, reset, candidate), from gradients (..., 4 units) in the order of
    `summed`."""
    return tf.concat([parts[..., : 2 * units], parts[..., 3 * units :]], axis=-1)
