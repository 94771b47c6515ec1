"""Samples of arrays of any kind: NumPy, pandas, SciPy, dense, sparse and ragged tensors."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np

from profiles.ground.errors import RingscopeError

from ..internals.frameworks import tf

BATCH = 32  # Keras's default batch size


def length(array: Any) -> int:
    """The number of samples of an array; sparse matrices and ragged tensors have a shape, but no len()."""
    if isinstance(array, tf.RaggedTensor):
        return int(array.nrows())
    shape = getattr(array, "shape", None)
    return len(array) if shape is None else int(shape[0])


def are_arrays(*parts: Any) -> bool:
    """True if Keras treats all parts as arrays. parts: in any structure, or None."""
    from keras.src.trainers.data_adapters.array_data_adapter import can_convert_arrays

    return bool(can_convert_arrays(tuple(parts)))


def as_long(*parts: Any) -> bool:
    """True if all arrays hold the same number of samples. parts: arrays in any structure, or None."""
    leaves = [leaf for part in parts for leaf in keras.tree.flatten(part)]
    return len({length(leaf) for leaf in leaves if len(getattr(leaf, "shape", None) or ())}) <= 1


def every(array: Any, rank: int, size: int) -> Any:
    """Samples rank, rank + size, ... of an array, equally many on all ranks. Raises RingscopeError if there are
    none."""
    samples = length(array)
    usable = samples // size * size
    if not usable:
        raise RingscopeError(f"too few samples for {size} ranks ({samples}); give more, or start fewer ranks")
    return take(array, range(rank, usable, size))


def take(array: Any, rows: range) -> Any:
    """The samples at these rows, as an array of the same kind."""
    if isinstance(array, tf.SparseTensor):
        return _of_sparse(array, rows)
    if hasattr(array, "tocsr"):
        return array.tocsr()[rows.start : rows.stop : rows.step]
    part = slice(rows.start, rows.stop, rows.step)
    if hasattr(array, "iloc"):
        return array.iloc[part]
    return array[part] if hasattr(array, "shape") else np.asarray(array)[part]


def _of_sparse(array: Any, rows: range) -> Any:
    indices = array.indices.numpy()
    kept = np.isin(indices[:, 0], np.fromiter(rows, np.int64))
    own = indices[kept].copy()
    own[:, 0] = (own[:, 0] - rows.start) // rows.step
    shape = [len(rows), *array.dense_shape.numpy()[1:]]
    return tf.SparseTensor(own, tf.boolean_mask(array.values, kept), shape)
