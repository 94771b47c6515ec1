"""Variables that Keras overwrites with their gradient: float8's scales and their history of largest values (amax).

Each rank computes them from its own batch. The joined batch's value is the maximum over ranks, never the mean; Keras
also takes the maximum where it accumulates gradients.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..exchange import name_in_graph, on_device_of, outside_scopes
from ..internals.frameworks import hvd, tf


def places(variables: Sequence[Any]) -> list[int]:
    """The places of the variables that are overwritten with their gradients."""
    return [i for i, variable in enumerate(variables) if getattr(variable, "overwrite_with_gradient", False)]


def largest_of_ranks(values: Sequence[Any], ranks: Any = None) -> list[Any]:
    """The maximum over ranks of each number in each tensor. ranks: a Horovod process set; None: all ranks."""
    among = {} if ranks is None else {"process_set": ranks}
    with outside_scopes(), on_device_of(values[0]):
        flat = tf.concat([tf.reshape(tf.cast(value, tf.float32), [-1]) for value in values], axis=0)
        together = hvd.allreduce(flat, op=hvd.Max, name=name_in_graph("largest"), **among)
        parts = tf.split(together, [tf.size(value) for value in values], num=len(values))
        return [tf.reshape(part, tf.shape(value)) for part, value in zip(parts, values, strict=True)]
