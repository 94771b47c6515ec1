"""Heads of keys and values that a layer repeats for its groups of queries, as they are before they are repeated.

cuDNN's attention takes fewer heads of keys than of queries. Where a layer repeats them first, as Keras's
`GroupQueryAttention` and most Llamas do, XLA writes the repeated keys and values, keeps them for the backward pass, and
sums their gradients over each group: compiled for an H100, 768 MiB in a Llama of 12 layers with 16 heads, 4 of keys.
"""

from __future__ import annotations

from typing import Any

from ..internals.frameworks import tf

REPEATS = ("Tile", "BroadcastTo")


def once(key: Any, value: Any) -> tuple[Any, Any]:
    """(key, value) with each head once, if a `repeat` has made neighbouring copies of the heads of both; else
    unchanged. key and value: (batch, length, heads, size)."""
    one, other = _before(key), _before(value)
    if one is None or other is None or one.shape[2] != other.shape[2]:
        return key, value
    return one, other


def _before(tensor: Any, axis: int = 2) -> Any | None:
    """The tensor, in the same order of axes, before its entries along the axis were repeated; None if they were not."""
    op = getattr(tensor, "op", None)
    if op is None or not tensor.shape.is_fully_defined() or tensor.shape.rank != 4:
        return None
    if op.type in ("Identity", "Cast"):
        found = _before(op.inputs[0], axis)
        return None if found is None else tf.cast(found, tensor.dtype)
    if op.type == "Transpose":
        order = tf.get_static_value(op.inputs[1])
        found = None if order is None else _before(op.inputs[0], int(order[axis]))
        return None if found is None else tf.transpose(found, order)
    if op.type != "Reshape" or op.inputs[0].op.type not in REPEATS:
        return None
    wide, (narrow, *_) = op.inputs[0].shape.as_list(), op.inputs[0].op.inputs
    single = [*wide[: axis + 1], 1, *wide[axis + 2 :]]
    joined = [*wide[:axis], wide[axis] * wide[axis + 1], *wide[axis + 2 :]] if len(wide) == 5 else None
    if joined != tensor.shape.as_list() or narrow.shape.as_list() != single:
        return None
    return tf.reshape(narrow, [size for place, size in enumerate(single) if place != axis + 1])
