"""An LSTM over all steps of a sequence: one forward loop and one backward loop, for any recurrent product."""

from __future__ import annotations

from typing import Any, Protocol

from ...internals.frameworks import tf
from ..half_precision import wide_type
from .loop import State, at, gradients, loop, room, where


class Product(Protocol):
    """The product of a state (batch, ..., units) with the recurrent kernel, for all gates: (batch, ..., gates)."""

    def there(self, state: Any, recurrent: Any) -> Any: ...

    def back(self, part: Any, recurrent: Any) -> Any:
        """The gradient of the state. part: the gradient of the product."""

    def summed(self, states: Any, parts: Any) -> Any:
        """The gradient of the recurrent kernel over all steps, from the states (steps, batch, ..., units) and the
        gradients of the products, parts (steps, batch, ..., gates)."""


def lstm(
    cell: Any, product: Product, products: Any, start: Any, start_cell: Any, recurrent: Any, bias: Any, counts: Any
) -> Any:
    """(states (steps, batch, ..., units), the last state, the last cell state).

    cell: gives the activations. products: (steps, batch, ..., 4 units), the inputs' products. start, start_cell:
    (batch, ..., units). bias: (4 units,). counts: (steps, batch, 1), False at masked steps; None: no mask.
    """
    kind, wide = products.dtype, wide_type(products.dtype)
    steps = products.shape[0]

    def moved(sums: Any, before: Any) -> tuple[Any, Any]:
        """(next cell state, output)"""
        enter, keep, new, show = tf.split(sums, 4, axis=-1)
        enter, keep, show = map(cell.recurrent_activation, (enter, keep, show))
        after = keep * before + enter * cell.activation(new)
        return after, show * cell.activation(after)

    @tf.custom_gradient
    def run(products: Any, start: Any, start_cell: Any, recurrent: Any, bias: Any) -> Any:
        def step(t: Any, wide_cell: Any, state: Any) -> State:
            sums = sum(tf.cast(each, wide) for each in (at(products, t), product.there(state, recurrent), bias))
            next_cell, output = moved(sums, wide_cell)
            state = where(counts, t, tf.cast(output, kind), state)
            wide_cell = where(counts, t, next_cell, wide_cell)
            return (wide_cell, state), (tf.cast(wide_cell, kind), state, tf.cast(sums, kind))

        # The sums get their own stack: if they overwrote the products, XLA would copy the products first.
        empty = [room(shape, kind) for shape in ([steps, *start.shape], [steps, *start.shape], products.shape)]
        carried, (cells, states, kept) = loop(step, range(steps), (tf.cast(start_cell, wide), start), empty)
        last_cell, last = carried

        def gradient(d_states: Any, d_last: Any, d_last_cell: Any) -> tuple[Any, ...]:
            before = tf.concat([start[tf.newaxis], states[:-1]], axis=0)
            cells_before = tf.concat([start_cell[tf.newaxis], cells[:-1]], axis=0)

            def step(t: Any, d_cell: Any, d_state: Any) -> State:
                d_state += tf.cast(at(d_states, t), wide)
                none = tf.zeros_like(d_state)
                through = [where(counts, t, each, none) for each in (d_cell, d_state)]
                given = tf.cast(at(kept, t), wide), tf.cast(at(cells_before, t), wide)
                part, d_before = gradients(moved, given, through)
                part = tf.cast(part, kind)
                d_state_before = tf.cast(product.back(part, recurrent), wide)
                if counts is not None:
                    d_state_before += where(counts, t, none, d_state)
                return (where(counts, t, d_before, d_cell), d_state_before), [part]

            begin = tf.cast(d_last_cell, wide), tf.cast(d_last, wide)
            (d_cell, d_state), (parts,) = loop(step, range(steps - 1, -1, -1), begin, [room(kept.shape, kind)])
            d_bias = tf.reduce_sum(tf.cast(parts, wide), axis=list(range(parts.shape.rank - 1)))
            d_recurrent = product.summed(before, parts)
            return parts, tf.cast(d_state, kind), tf.cast(d_cell, kind), d_recurrent, tf.cast(d_bias, bias.dtype)

        return (states, last, tf.cast(last_cell, kind)), gradient

    return run(products, start, start_cell, recurrent, bias)
