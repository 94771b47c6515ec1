"""Dropout in recurrent layers: one mask of the inputs and one of the states for all steps; the gates share them or have
their own."""

from __future__ import annotations

from typing import Any

from ...internals.frameworks import tf
from ..half_precision import times_transposed
from .lstm import Product


def masks_of(made: Any) -> Any:
    """A cell's masks as (n, batch, inputs or units); n is the number of gates, or 1 if the gates share a mask."""
    return tf.stack(made) if isinstance(made, list) else made[tf.newaxis]


def of_inputs(x: Any, kernel: Any, masks: Any) -> Any:
    """The product of the inputs (steps, batch, inputs), masked for each gate, with their kernel: (steps, batch,
    gates)."""
    steps, batch, inputs = x.shape
    gates = zip(tf.unstack(masks), tf.split(kernel, masks.shape[0], axis=1), strict=True)
    products = [tf.matmul(tf.reshape(x * mask, [-1, inputs]), each) for mask, each in gates]
    return tf.reshape(tf.concat(products, axis=1), [steps, batch, -1])


class OfDropped(Product):
    """The recurrent product of states, masked for each gate. masks: (n, batch, units)."""

    def __init__(self, masks: Any) -> None:
        self._masks = masks

    def there(self, state: Any, recurrent: Any) -> Any:
        return self._joined(tf.matmul(self._masks * state, self._apart(recurrent)))

    def back(self, part: Any, recurrent: Any) -> Any:
        seen = times_transposed(self._apart(part), self._apart(recurrent))
        return tf.reduce_sum(seen * tf.cast(self._masks, seen.dtype), axis=0)

    def summed(self, states: Any, parts: Any) -> Any:
        seen = self._masks[:, tf.newaxis] * states  # (n, steps, batch, units)
        seen, parts = (tf.reshape(each, [each.shape[0], -1, each.shape[-1]]) for each in (seen, self._apart(parts)))
        return self._joined(tf.matmul(seen, parts, transpose_a=True))

    def _apart(self, gates: Any) -> Any:
        """(..., gates) as (n, ..., gates / n)."""
        return tf.stack(tf.split(gates, self._masks.shape[0], axis=-1))

    def _joined(self, gates: Any) -> Any:
        return tf.concat(tf.unstack(gates), axis=-1)
