"""16-bit floating-point types: forms convert such numbers to float32 to compute with them."""

from __future__ import annotations

from typing import Any

from ..internals.frameworks import tf

NARROW = (tf.bfloat16, tf.float16)


def wide_type(kind: Any) -> Any:
    """The type in which to compute with numbers of type `kind`: float32 for 16-bit types, else the type itself."""
    return tf.float32 if kind in NARROW else kind


def times_transposed(left: Any, right: Any) -> Any:
    """left . right^T: (..., m, n) from (..., m, k) and (..., n, k). The result of 16-bit operands is float32, so that
    it is not rounded."""
    if left.dtype not in NARROW:
        return tf.matmul(left, right, transpose_b=True)
    return summed_over(left, right, -1, -1)


def summed_over(left: Any, right: Any, of_left: int, of_right: int) -> Any:
    """The product of 16-bit (..., m, n) matrices, summed over one axis of each, in float32; only for XLA."""
    from tensorflow.compiler.tf2xla.python import xla
    from tensorflow.compiler.xla import xla_data_pb2

    rank = left.shape.rank
    axes = xla_data_pb2.DotDimensionNumbers(
        lhs_batch_dimensions=range(rank - 2),
        rhs_batch_dimensions=range(rank - 2),
        lhs_contracting_dimensions=[of_left % rank],
        rhs_contracting_dimensions=[of_right % rank],
    )
    return xla.dot_general(left, right, axes, preferred_element_type=tf.float32)
