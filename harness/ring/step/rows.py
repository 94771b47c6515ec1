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

from ..exchange import hvd, tf

SHARE = 0.5  # of the table's bytes, that rows may take at most
# A row's number travels as two of float32, which is exact below 2^24 and divided by the ranks on its way.
SPLIT = 1 << 12
NUMBERS = 2


class Rows:
    """Which gradients travel as rows; none unless `wanted`. averages: whether sums are divided by the ranks' count."""

    def __init__(self, wanted: bool, *, averages: bool) -> None:
        self._wanted, self._averages = wanted, averages
        self._tables: dict[int, tuple[tuple[int, ...], int]] = {}  # by place: shape, rows of a rank

    def pack(self, gradients: Sequence[Any], variables: Sequence[Any], *, alike: bool) -> list[Any]:
        """All of them dense, None stays None; in the place of such an embedding's what travels. alike: the ranks'
        batches are of one shape in each step, without which their rows would be of unlike count."""
        self._tables = {}
        packed = []
        for i, (gradient, variable) in enumerate(zip(gradients, variables, strict=True)):
            if self._wanted and alike and are_fewer(gradient, variable.shape):
                self._tables[i] = tuple(variable.shape), gradient.indices.shape[0]
                packed.append(_places(gradient, variable.shape[0]))
            else:
                packed.append(None if gradient is None else tf.convert_to_tensor(gradient))
        return packed

    def unpack(self, gradients: Sequence[Any]) -> list[Any]:
        """Every table's gradient in the place of its rows'."""
        found = list(gradients)
        for i, (shape, count) in self._tables.items():
            found[i] = self._table(found[i], shape, count)
        return found

    def _table(self, together: Any, shape: tuple[int, ...], count: int) -> Any:
        values, numbers = together[:, :-NUMBERS], together[:, -NUMBERS:]
        high, low = tf.unstack(tf.cast(tf.round(numbers * (hvd.size() if self._averages else 1)), tf.int32), axis=1)
        indices = tf.expand_dims(high * SPLIT + low, 1)
        table = tf.zeros([shape[0], math.prod(shape[1:])], together.dtype)
        for own in (slice(rank * count, (rank + 1) * count) for rank in range(hvd.size())):
            table = tf.tensor_scatter_nd_add(table, indices[own], values[own])
        return tf.reshape(table, shape)


def are_fewer(gradient: Any, shape: Sequence[int]) -> bool:
    """Whether it is rows of a table, and all ranks' are so much less than the table that they are worth it."""
    if not isinstance(gradient, tf.IndexedSlices):
        return False
    rows, kind = gradient.indices.shape[0], gradient.values.dtype
    if kind != tf.float32 or rows is None or not gradient.values.shape.is_fully_defined():
        return False
    width = math.prod(shape[1:])
    return shape[0] < 1 << 31 and rows * hvd.size() * (width + NUMBERS) <= SHARE * shape[0] * width


def _places(own: Any, length: int) -> Any:
    """(rows of all ranks, width + 2): this rank's rows in its places, zeros in the others."""
    rows = own.indices.shape[0]
    indices = tf.cast(own.indices, tf.int32)
    numbers = tf.stack([indices // SPLIT, indices % SPLIT], axis=1)
    values = tf.concat([_once(own.values, indices, length), tf.cast(numbers, tf.float32)], axis=1)
    before = hvd.rank() * rows
    return tf.pad(values, [[before, (hvd.size() - 1) * rows - before], [0, 0]])


def _once(values: Any, indices: Any, length: int) -> Any:
    """Each index's rows added up in the place of its first, zeros in the others. length: of the table."""
    count = indices.shape[0]
    first = tf.tensor_scatter_nd_min(tf.fill([length], count), tf.expand_dims(indices, 1), tf.range(count))
    return tf.math.unsorted_segment_sum(tf.reshape(values, [count, -1]), tf.gather(first, indices), count)
