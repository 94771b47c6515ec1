"""Convolutions with a dilation as such, which TensorFlow computes by moving pixels on all devices but TPUs.

It spreads the images over a batch for each phase of the dilation, convolves these without one, and puts them together
again. At 32 x 32 pixels and a dilation of 18 XLA is so given maps of 4 x 4, three quarters of them zeros: five times
the products for the gradient of the input, and each map written twice more. XLA and cuDNN have the dilation itself;
results and gradients are the same.

What XLA does not tell apart is the gradient of such a filter, whose window moves by the dilation: it is computed as a
forward convolution by a filter as large as the map (`MatchBackwardFilter` in its conv_rewriter.cc). Here it is a
product of matrices for each place of the filter, over the part of the map that this place sees.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from types import SimpleNamespace
from typing import Any

from ..exchange import tf
from ..laid_over import laid_over
from .choice import wanted


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
        images, kernel = tf.convert_to_tensor(input), tf.convert_to_tensor(filters)
        along = _of_an_image(images, kernel, strides, padding, data_format, dilations)
        is_uneven = isinstance(dilations, (list, tuple)) and len(dilations) == 3 and len({*dilations}) > 1
        with laid_over(nn_ops, device_context=here) if is_uneven else nullcontext():
            if along is None or not wanted("dilated_filters"):
                return own(images, kernel, strides, padding, data_format, dilations, name)
            made = own(images, tf.stop_gradient(kernel), strides, padding, data_format, dilations, name)
            return _with_filter_gradient(made, kernel, tf.stop_gradient(images), along, padding == "SAME")

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


def _of_an_image(
    images: Any, kernel: Any, strides: Any, padding: Any, data_format: str | None, dilations: Any
) -> tuple[int, int] | None:
    """The dilations of rows and columns, where it is a convolution of images of known size by all channels at once."""
    is_plain = images.shape.rank == kernel.shape.rank == 4 and data_format in (None, "NHWC")
    if not is_plain or padding not in ("SAME", "VALID") or set(tf.nest.flatten(strides or 1)) != {1}:
        return None
    along = (tf.nest.flatten(dilations) * 2)[:2] if dilations is not None else [1, 1]
    known = images.shape[1:].is_fully_defined() and kernel.shape.is_fully_defined()
    if not known or max(along) == 1 or images.shape[3] != kernel.shape[2] or len(tf.nest.flatten(dilations)) > 2:
        return None
    return along[0], along[1]


def _with_filter_gradient(made: Any, kernel: Any, images: Any, along: tuple[int, int], same: bool) -> Any:
    """What the convolution has made, whose gradient goes on to the kernel too."""

    @tf.custom_gradient
    def given(made: Any, kernel: Any) -> tuple[Any, Callable[[Any], Any]]:
        return tf.identity(made), lambda upstream: (upstream, of_filter(upstream))

    def of_filter(upstream: Any) -> Any:
        rows, columns, inputs, outputs = kernel.shape
        seen = [
            [_overlap(place, size, *each, same) for place in range(size)]
            for size, each in zip(kernel.shape[:2], zip(along, images.shape[1:3], strict=True), strict=True)
        ]
        parts = [_of_place(images, upstream, down, across) for down in seen[0] for across in seen[1]]
        return tf.reshape(tf.stack(parts), [rows, columns, inputs, outputs])

    return given(made, kernel)


def _overlap(place: int, places: int, dilation: int, size: int, same: bool) -> tuple[slice, slice]:
    """Which of `size` pixels a place of the filter reads, and for which of the new ones it reads them."""
    reach = (places - 1) * dilation
    away = place * dilation - (reach // 2 if same else 0)
    new = size if same else size - reach
    first, last = max(0, -away), max(0, -away, min(new, size - away))
    return slice(first + away, last + away), slice(first, last)


def _of_place(images: Any, upstream: Any, down: tuple[slice, slice], across: tuple[slice, slice]) -> Any:
    """(channels, filters): the gradient of the weights at one place of the filter."""
    one, other = (each[:, rows, columns] for each, rows, columns in zip((images, upstream), down, across, strict=True))
    one, other = (tf.reshape(each, [-1, each.shape[3]]) for each in (one, other))
    return tf.matmul(one, other, transpose_a=True)
