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
    from tensorflow.compiler.tf2xla.python import xla
    from tensorflow.compiler.xla import xla_data_pb2

    *stacked, _, summed = range(left.shape.rank)
    axes = xla_data_pb2.DotDimensionNumbers(
        lhs_batch_dimensions=stacked,
        rhs_batch_dimensions=stacked,
        lhs_contracting_dimensions=[summed],
        rhs_contracting_dimensions=[summed],
    )
    return xla.dot_general(left, right, axes, preferred_element_type=tf.float32)
