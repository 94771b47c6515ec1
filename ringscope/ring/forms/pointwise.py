"""Convolutions with 1 x 1 filters as matrix products, for which XLA does not need to time many algorithms.

For each distinct convolution and each of its gradients XLA builds and times some 70 algorithms of cuDNN, which takes
half a second or more. Three quarters of the distinct convolutions of an EfficientNetB4, and nine tenths of a
DenseNet-121's, have 1 x 1 filters. For a matrix product, which gives equal sums, cuBLAS at once proposes its few best
algorithms.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any

from ..internals.frameworks import tf
from ..internals.laid_over import laid_over
from .barriers import forward_apart
from .padded_products import product


def as_products() -> AbstractContextManager[None]:
    """Within this context, convolutions of `tf.nn` with 1 x 1 filters, which Keras's layers call, become matrix
    products."""
    from tensorflow.python.ops import gen_nn_ops

    own = gen_nn_ops.conv2d

    def conv2d(
        input: Any,
        filter: Any,
        strides: Sequence[int],
        padding: str,
        use_cudnn_on_gpu: bool = True,
        explicit_paddings: Sequence[int] = (),
        data_format: str = "NHWC",
        dilations: Sequence[int] = (1, 1, 1, 1),
        name: str | None = None,
    ) -> Any:
        images, filters = tf.convert_to_tensor(input), tf.convert_to_tensor(filter)
        if padding in ("SAME", "VALID") and data_format == "NHWC" and _is_of_one_pixel(images, filters):
            return _multiplied(images, filters, strides)
        given = list(explicit_paddings), data_format, list(dilations)
        return own(input, filter, strides, padding, use_cudnn_on_gpu, *given, name)

    return laid_over(gen_nn_ops, conv2d=conv2d)


def _is_of_one_pixel(images: Any, filters: Any) -> bool:
    """True if each filter covers one pixel of all channels, and all sizes except the batch's are known."""
    known = images.shape.rank == 4 and images.shape[1:].is_fully_defined() and filters.shape.is_fully_defined()
    alike = images.dtype == filters.dtype and images.dtype.is_floating
    return bool(known and alike and filters.shape[:3].as_list() == [1, 1, images.shape[3]])


def _multiplied(images: Any, filters: Any, strides: Sequence[int]) -> Any:
    down, across = strides[1:3]
    # Without the barrier XLA ends the process when it plans to take every second pixel inside a product, of a map whose
    # other pixels are used elsewhere.
    taken = images if down == across == 1 else forward_apart(images[:, ::down, ::across])
    return product(taken, filters[0, 0])
