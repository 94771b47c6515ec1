"""Dilated convolutions as one operation, where TensorFlow rearranges pixels on all devices but TPUs.

TensorFlow moves each phase of the dilation into the batch, convolves without dilation, and moves the pixels back. With
32 x 32 pixels and a dilation of 18, XLA then gets 4 x 4 maps, three quarters of them zeros: five times the products for
the input's gradient, and two more writes of each map. XLA and cuDNN support dilation themselves, with equal results and
gradients.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from types import SimpleNamespace
from typing import Any

from ..internals.frameworks import tf
from ..internals.laid_over import laid_over


@contextmanager
def as_such() -> Iterator[None]:
    """Within this context, the convolutions of `tf.nn`, which Keras's layers call, keep their dilation, as on TPUs."""
    from tensorflow.python.ops import nn_impl, nn_ops

    here, own, own_separable = nn_ops.device_context, tf.nn.convolution, tf.nn.separable_conv2d

    def convolution(
        input: Any,
        filters: Any,
        strides: Any = None,
        padding: Any = "VALID",
        data_format: str | None = None,
        dilations: Any = None,
        name: str | None = None,
    ) -> Any:
        """`tf.nn.convolution` that keeps its dilation. 3-D convolutions with unequal dilations stay as TensorFlow
        traces them, since version 2.21 swaps two dilations in the shape."""
        is_uneven = isinstance(dilations, (list, tuple)) and len(dilations) == 3 and len({*dilations}) > 1
        with laid_over(nn_ops, device_context=here) if is_uneven else nullcontext():
            return own(input, filters, strides, padding, data_format, dilations, name)

    def separable_conv2d(
        input: Any,
        depthwise_filter: Any,
        pointwise_filter: Any,
        strides: Any,
        padding: Any,
        data_format: str | None = None,
        dilations: Any = None,
        name: str | None = None,
    ) -> Any:
        """Depthwise, then pointwise convolution, because TensorFlow rearranges pixels for `separable_conv2d` even on
        TPUs."""
        if dilations is None or max(dilations) == 1:
            return own_separable(
                input, depthwise_filter, pointwise_filter, strides, padding, data_format, dilations, name
            )
        by_depth = tf.nn.depthwise_conv2d(input, depthwise_filter, strides, padding, data_format, dilations)
        return tf.nn.conv2d(by_depth, pointwise_filter, 1, "VALID", data_format or "NHWC")

    asked = SimpleNamespace(enclosing_tpu_context=lambda: "as for TPUs")
    with (
        laid_over(nn_ops, device_context=asked),
        laid_over(nn_impl, device_context=asked),
        laid_over(tf.nn, convolution=convolution, separable_conv2d=separable_conv2d),
    ):
        yield
