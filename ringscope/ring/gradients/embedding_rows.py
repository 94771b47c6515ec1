"""An embedding's gradient as the rows that a batch has looked up, as it travels in a compiled step.

A table of a million items has as large a gradient, of which a batch touches some rows. So what all ranks sum is a
tensor with a place for every row of every rank: each fills its own places, with the row and its number, and all of them
make the table of it. Rows of one number are added up before, by the rank that has them: their sum stands in the place
of the first, and zeros in the others. So the ranks add at most one number of each rank to a place of the table, rank by
rank: the same bits on all of them, though a GPU adds rows in any order.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from ..internals.frameworks import hvd, tf
from .types import as_computed

SHARE = 0.5  # of the table's bytes, that rows may take at most


class Rows:
    """Which gradients travel as rows; none unless `wanted`. averages: whether sums are divided by the ranks' count.
    keeps: rows that were computed in bfloat16, added up in float32, travel as bfloat16, as tables made of them do."""

    def __init__(self, wanted: bool, *, averages: bool, keeps: bool) -> None:
        self._wanted, self._averages, self._keeps = wanted, averages, keeps
        self._tables: dict[int, tuple[tuple[int, ...], int]] = {}  # by place: shape, rows of a rank

    def pack(self, gradients: Sequence[Any], variables: Sequence[Any], *, alike: bool) -> list[Any]:
        """All of them dense, None stays None; in the place of such an embedding's what travels. alike: the ranks'
        batches are of one shape in each step, without which their rows would be of unlike count."""
        self._tables = {}
        packed = []
        for i, (gradient, variable) in enumerate(zip(gradients, variables, strict=True)):
            kind = self._sent_as(gradient)
            if self._wanted and alike and are_fewer(gradient, variable.shape, kind):
                self._tables[i] = tuple(variable.shape), gradient.indices.shape[0]
                packed.append(_places(gradient, variable.shape[0], kind))
            else:
                packed.append(None if gradient is None else tf.cast(tf.convert_to_tensor(gradient), kind))
        return packed

    def _sent_as(self, gradient: Any) -> Any:
        if self._keeps and isinstance(gradient, tf.IndexedSlices):
            return as_computed(gradient.values).dtype
        return None if gradient is None else gradient.dtype

    def unpack(self, gradients: Sequence[Any]) -> list[Any]:
        """Every table's gradient in the place of its rows'."""
        found = list(gradients)
        for i, (shape, count) in self._tables.items():
            found[i] = self._table(found[i], shape, count)
        return found

    def _table(self, together: Any, shape: tuple[int, ...], count: int) -> Any:
        bits, digits = digits_of(together.dtype)
        table = tf.zeros([shape[0], math.prod(shape[1:])])
        for rank in range(hvd.size()):
            own = tf.cast(together[rank * count : (rank + 1) * count], tf.float32)
            numbers = tf.cast(tf.round(own[:, -digits:] * (hvd.size() if self._averages else 1)), tf.int32)
            indices = tf.reduce_sum(tf.bitwise.left_shift(numbers, _shifts(bits, digits)), axis=1, keepdims=True)
            table = tf.tensor_scatter_nd_add(table, indices, own[:, :-digits])
        return tf.reshape(table, shape)


def digits_of(kind: Any) -> tuple[int, int]:
    """(bits of a digit, number of digits) for a row's number, below 2^31, which travels beside it. The digits are small
    enough to be exact in this type after a division by the ranks on the way."""
    return (6, 6) if kind == tf.bfloat16 else (16, 2)


def _shifts(bits: int, digits: int) -> Any:
    return tf.range(digits) * bits


def are_fewer(gradient: Any, shape: Sequence[int], kind: Any) -> bool:
    """True if the gradient is rows of a table, and sending all ranks' rows takes at most half the bytes of the table.
    kind: the type that either would travel as."""
    if not isinstance(gradient, tf.IndexedSlices):
        return False
    rows = gradient.indices.shape[0]
    if gradient.dtype != tf.float32 or rows is None or not gradient.values.shape.is_fully_defined():
        return False
    width = math.prod(shape[1:])
    return shape[0] < 1 << 31 and rows * hvd.size() * (width + digits_of(kind)[1]) <= SHARE * shape[0] * width


def _places(own: Any, length: int, kind: Any) -> Any:
    """(rows of all ranks, width and digits): this rank's rows in its places, zeros in the others. kind: their type."""
    rows, (bits, digits) = own.indices.shape[0], digits_of(kind)
    indices = tf.cast(own.indices, tf.int32)
    numbers = tf.bitwise.right_shift(tf.expand_dims(indices, 1), _shifts(bits, digits)) & ((1 << bits) - 1)
    values = tf.concat([tf.cast(_once(own.values, indices, length), kind), tf.cast(numbers, kind)], axis=1)
    before = hvd.rank() * rows
    return tf.pad(values, [[before, (hvd.size() - 1) * rows - before], [0, 0]])


def _once(values: Any, indices: Any, length: int) -> Any:
    """Each index's rows added up in the place of its first, zeros in the others. length: of the table."""
    count = indices.shape[0]
    first = tf.tensor_scatter_nd_min(tf.fill([length], count), tf.expand_dims(indices, 1), tf.range(count))
    return tf.math.unsorted_segment_sum(tf.reshape(values, [count, -1]), tf.gather(first, indices), count)
