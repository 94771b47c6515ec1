"""Send an embedding's gradient as the rows that a batch has looked up, in a compiled step.

The dense gradient of a table with a million rows is as large as the table, and a batch touches few of them. So ranks
sum a tensor with room for the rows of all ranks: each rank fills in its own rows with their row numbers, and afterwards
every rank builds the table's gradient from the sum. Each rank first sums its rows of equal number: the sum stands in
the place of the first of them, and zeros stand in the others. So ranks add at most one value per rank to a row of the
table, rank by rank: all ranks get the same bits, although a GPU sums rows in any order.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from ..internals.frameworks import hvd, tf
from .types import as_computed

SHARE = 0.5  # rows are sent if they take at most this share of the table's bytes


class Rows:
    """Decides which gradients travel as rows; none unless `wanted`. averages: True if sums are divided by the number of
    ranks. keeps: True if rows that were computed in bfloat16 travel as bfloat16, as dense gradients do; they are summed
    in float32."""

    def __init__(self, wanted: bool, *, averages: bool, keeps: bool) -> None:
        self._wanted, self._averages, self._keeps = wanted, averages, keeps
        # place of a gradient -> shape of its table, rows per rank
        self._tables: dict[int, tuple[tuple[int, ...], int]] = {}

    def pack(self, gradients: Sequence[Any], variables: Sequence[Any], *, alike: bool) -> list[Any]:
        """The tensors that travel, all dense, in the gradients' order; None stays None. alike: True if the ranks'
        batches have one shape in each step, and so equally many rows."""
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
        """The tensors summed over ranks, with each table's gradient built from its rows."""
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
    """(bits of a digit, number of digits) for a row number below 2^31, which travels as digits beside its row. A
    digit is so small that it stays exact in this type, even when it is divided by the number of ranks on the way."""
    return (6, 6) if kind == tf.bfloat16 else (16, 2)


def _shifts(bits: int, digits: int) -> Any:
    return tf.range(digits) * bits


def are_fewer(gradient: Any, shape: Sequence[int], kind: Any) -> bool:
    """True if the gradient is sparse and all ranks' rows take at most `SHARE` of the table's bytes. kind: the type in
    which the gradient would travel."""
    if not isinstance(gradient, tf.IndexedSlices):
        return False
    rows = gradient.indices.shape[0]
    if gradient.dtype != tf.float32 or rows is None or not gradient.values.shape.is_fully_defined():
        return False
    width = math.prod(shape[1:])
    return shape[0] < 1 << 31 and rows * hvd.size() * (width + digits_of(kind)[1]) <= SHARE * shape[0] * width


def _places(own: Any, length: int, kind: Any) -> Any:
    """The tensor that this rank sends, (rows of all ranks, width + digits): its rows in its own places, zeros
    elsewhere. kind: the tensor's type."""
    rows, (bits, digits) = own.indices.shape[0], digits_of(kind)
    indices = tf.cast(own.indices, tf.int32)
    numbers = tf.bitwise.right_shift(tf.expand_dims(indices, 1), _shifts(bits, digits)) & ((1 << bits) - 1)
    values = tf.concat([tf.cast(_once(own.values, indices, length), kind), tf.cast(numbers, kind)], axis=1)
    before = hvd.rank() * rows
    return tf.pad(values, [[before, (hvd.size() - 1) * rows - before], [0, 0]])


def _once(values: Any, indices: Any, length: int) -> Any:
    """Rows of equal index summed in the place of the first, zeros in the others. length: rows of the table."""
    count = indices.shape[0]
    first = tf.tensor_scatter_nd_min(tf.fill([length], count), tf.expand_dims(indices, 1), tf.range(count))
    return tf.math.unsorted_segment_sum(tf.reshape(values, [count, -1]), tf.gather(first, indices), count)
