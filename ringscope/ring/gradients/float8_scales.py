"""Variables that Keras overwrites with their gradient: float8's scales, and the largest values that these come from.

Each rank finds a value for its own batch. The joined batch's value is the largest of all ranks', never their mean:
Keras takes the largest too where it accumulates gradients.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..exchange import name_in_graph, on_device_of, outside_scopes
from ..internals.frameworks import hvd, tf

__all__ = ["largest_of_ranks", "places"]


def places(variables: Sequence[Any]) -> list[int]:
    """Where among these such variables are."""
    return [i for i, variable in enumerate(variables) if getattr(variable, "overwrite_with_gradient", False)]


def largest_of_ranks(values: Sequence[Any], ranks: Any = None) -> list[Any]:
    """The largest of all ranks' values, number by number. ranks: a process set, all ranks unless given."""
    among = {} if ranks is None else {"process_set": ranks}
    with outside_scopes(), on_device_of(values[0]):
        flat = tf.concat([tf.reshape(tf.cast(value, tf.float32), [-1]) for value in values], axis=0)
        together = hvd.allreduce(flat, op=hvd.Max, name=name_in_graph("largest"), **among)
        parts = tf.split(together, [tf.size(value) for value in values], num=len(values))
        return [tf.reshape(part, tf.shape(value)) for part, value in zip(parts, values, strict=True)]
