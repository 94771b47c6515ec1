"""The axes of attention as people write it out, brought to the four of the fused kernel.

Scores have three axes (batch, queries, keys), four (batch, heads, queries, keys), or five (batch, groups, heads of a
group, queries, keys), where the heads of a group share one head of keys. Keras multiplies five axes by four: (batch,
groups, heads of a group * queries, keys).
"""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from ..internals.frameworks import tf


def before_swap(matrices: Any) -> Any | None:
    """The matrices before an operation swapped their last two axes; None if another operation made them."""
    rank = matrices.shape.rank
    if rank is None or rank < 2 or matrices.op.type != "Transpose":
        return None
    order = [*range(rank - 2), rank - 1, rank - 2]
    return matrices.op.inputs[0] if np.array_equal(tf.get_static_value(matrices.op.inputs[1]), order) else None


def turned(matrices: Any) -> Any:
    """The matrices with their last two axes swapped; if they were swapped, that is dropped instead."""
    swapped, rank = before_swap(matrices), matrices.shape.rank
    return tf.transpose(matrices, [*range(rank - 2), rank - 1, rank - 2]) if swapped is None else swapped


def heads_last(tensor: Any) -> Any:
    """(batch, heads, length, size), or without heads (batch, length, size), as (batch, length, heads, size)."""
    return tf.transpose(tensor, [0, 2, 1, 3]) if tensor.shape.rank == 4 else tensor[:, :, tf.newaxis]


def merged(tensor: Any) -> Any:
    """(batch, groups, heads, length, size) as (batch, groups * heads, length, size); with fewer axes unchanged."""
    if tensor.shape.rank != 5 or not tensor.shape.is_fully_defined():
        return tensor
    batch, groups, heads, *matrix = tensor.shape
    return tf.reshape(tensor, [batch, groups * heads, *matrix])


def joins_queries(joined: Any, tensor: Any) -> bool:
    """True if `joined`, (batch, groups, heads * queries, keys), has the sizes of `tensor`, (batch, groups, heads,
    queries, keys)."""
    if tensor.shape.rank != 5 or not tensor.shape.is_fully_defined():
        return False
    batch, groups, heads, queries, keys = tensor.shape
    return bool(joined.shape.as_list() == [batch, groups, heads * queries, keys])


def of_four(tensor: Any, shape: Any) -> Any:
    """A mask of scores of this shape, or numbers added to them, with four axes: batch, heads, queries, keys (or 1)."""
    sizes = [*[1] * (shape.rank - tensor.shape.rank), *tensor.shape]
    if shape.rank == 5 and sizes[1:3] != [1, 1]:
        sizes[1:3] = shape[1:3]
        tensor = tf.broadcast_to(tensor, sizes)
    return tf.reshape(tensor, [sizes[0], prod(sizes[1:-2]), *sizes[-2:]])
