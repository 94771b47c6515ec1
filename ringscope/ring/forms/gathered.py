"""Rows that each sample takes from its own: `keras.ops.take_along_axis` with one index per row, `tf.gather(...,
batch_dims=1)`.

The gradient of such rows is a scatter, which adds each number to memory by itself, and for `take_along_axis` Keras
gathers single numbers. Here whole rows are gathered, and the gradient of 16-bit rows is a product with a matrix that
has a 1 for each index: BERT's masked words and the patches that a masked autoencoder keeps are such rows.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from math import prod
from typing import Any

from ..internals.frameworks import backend_ops, keras, tf
from ..internals.laid_over import laid_over

MOST = 2048  # rows of a sample; with more the product would take longer than the scatter


@contextmanager
def rows() -> Iterator[None]:
    """Within this context, rows are taken in this form; their values are equal."""
    from tensorflow.python.ops import gen_array_ops

    own, keras_own = gen_array_ops.gather_v2, backend_ops.numpy.take_along_axis

    def gather(params: Any, indices: Any, axis: Any, batch_dims: int = 0, name: str | None = None) -> Any:
        at = tf.get_static_value(axis)
        is_taken = at is not None and at == batch_dims == 1 and _fits(params, indices)
        return taken(params, indices, own) if is_taken else own(params, indices, axis, batch_dims, name)

    def along(x: Any, indices: Any, axis: int | None = None) -> Any:
        x, indices = keras.ops.convert_to_tensor(x), keras.ops.convert_to_tensor(indices)
        if axis != 1 or not _are_rows(x, indices):
            return keras_own(x, indices, axis)
        at = tf.reshape(indices, [-1, indices.shape[1]])
        return tf.gather(x, tf.where(at < 0, at + x.shape[1], at), axis=1, batch_dims=1)

    with laid_over(gen_array_ops, gather_v2=gather), laid_over(backend_ops.numpy, take_along_axis=along):
        yield


def _are_rows(x: Any, indices: Any) -> bool:
    """True if each index (batch, count, 1, ...) stands for a row of x (batch, rows, ...)."""
    if x.shape.rank is None or x.shape.rank < 3 or indices.shape.rank != x.shape.rank:
        return False
    batch, count, *ones = indices.shape
    return batch == x.shape[0] and None not in (batch, count, x.shape[1]) and set(ones) == {1}


def _fits(x: Any, indices: Any) -> bool:
    known = isinstance(x, tf.Tensor) and isinstance(indices, tf.Tensor) and x.dtype in (tf.bfloat16, tf.float16)
    known = known and x.shape.is_fully_defined() and indices.shape.is_fully_defined()
    return known and x.shape.rank > 2 and indices.shape.rank == 2 and x.shape[1] <= MOST


def taken(x: Any, indices: Any, gather: Any) -> Any:
    """(batch, count, ...): for each index the row of its sample. x: (batch, rows, ...). indices: (batch, count)."""

    @tf.custom_gradient
    def run(x: Any) -> Any:
        def gradient(upstream: Any) -> Any:
            ones = tf.one_hot(indices, x.shape[1], dtype=x.dtype)
            flat = tf.reshape(upstream, [x.shape[0], indices.shape[1], prod(x.shape[2:])])
            return tf.reshape(tf.matmul(ones, flat, transpose_a=True), x.shape)

        return gather(x, indices, 1, batch_dims=1), gradient

    return run(x)
