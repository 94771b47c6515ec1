"""Convolutions with a dilation as such, which TensorFlow computes by moving pixels on all devices but TPUs.

It spreads the images over a batch for each phase of the dilation, convolves these without one, and puts them together
again. At 32 x 32 pixels and a dilation of 18 XLA is so given maps of 4 x 4, three quarters of them zeros: five times
the products for the gradient of the input, and each map written twice more. XLA and cuDNN have the dilation itself;
results and gradients are the same.
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
    """While it lasts, `tf.nn`'s convolutions, which Keras's layers call, are traced as for TPUs, by their dilation."""
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
        """Of a space by unlike dilations TensorFlow 2.21 infers the shape with two of them exchanged."""
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
        """For TPUs too TensorFlow moves its pixels."""
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
