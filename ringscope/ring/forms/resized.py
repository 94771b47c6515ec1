"""Resizing of images of a known size by weights that TensorFlow's own kernel gives, in two passes, rows and columns.

XLA has no kernels of bicubic, Lanczos, area and antialiased resizing, and none for the way back of the nearest pixel's:
one such layer would leave a whole step uncompiled. Bilinear resizing it has, but

* its way back is a scatter, nine float32 atomics for each new pixel, of a sum that weights give as well;
* of 16-bit images TensorFlow gives float32, and as XLA compiles the gradient, it is float32 too, where the graph says
  otherwise: TensorFlow 2.21 compiles no step with an `UpSampling2D` in mixed precision whose gradient goes on;
* where a new pixel's centre falls on an old one's, as with an odd factor, XLA computes from which pixel on to read
  twice, once for the pixels and once for their weights, and rounds up both. Where one of the two programs multiplies
  and adds in one instruction, one rounding apart, the weights are the next pixel's (tensorflow/tensorflow#118344).

A row of pixels that are each 1 in a channel of its own, resized by TensorFlow's kernel, is the weights.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from ..internals.frameworks import tf
from ..internals.laid_over import laid_over
from .half_precision import NARROW, wide_type

METHODS = ("resize_area", "resize_bicubic", "resize_bilinear", "resize_nearest_neighbor")


@contextmanager
def by_own_weights() -> Iterator[None]:
    """While it lasts, `tf.image.resize`, which Keras's layers and `keras.ops` call, resizes so."""
    from tensorflow.python.ops import gen_image_ops  # the public function does not tell which way it takes

    def by_weights(name: str) -> Callable[..., Any]:
        own = getattr(gen_image_ops, name)

        def resize(images: Any, size: Any, *how: Any, **options: Any) -> Any:
            images = tf.convert_to_tensor(images)
            is_nearest = name == "resize_nearest_neighbor"
            if is_nearest and images.dtype not in (*NARROW, tf.float32):  # nothing goes back, or more than float32 has
                return own(images, size, *how, **options)
            before, after = images.shape[1:3], tf.get_static_value(size)
            if not before.is_fully_defined() or after is None:
                wide = images if is_nearest else tf.cast(images, wide_type(images.dtype))
                return own(wide, size, *how, **options)
            options.pop("name", None)
            weights = [_weights(own, *each, *how, **options) for each in zip(before, after, strict=True)]
            resized = _resized(images, weights)
            return tf.cast(resized, images.dtype) if is_nearest else resized

        return resize

    own_scaled = gen_image_ops.scale_and_translate

    def scale_and_translate(images: Any, size: Any, scale: Any, translation: Any, *how: Any, **options: Any) -> Any:
        images = tf.convert_to_tensor(images)
        before, known = images.shape[1:3], [_known(each) for each in (size, scale, translation)]
        if not before.is_fully_defined() or any(each is None for each in known):
            return own_scaled(tf.cast(images, wide_type(images.dtype)), size, scale, translation, *how, **options)
        options.pop("name", None)
        weights = []
        for old, new, times, more in zip(before, *known, strict=True):
            weights.append(_weights(own_scaled, old, new, [times, 1.0], [more, 0.0], *how, **options))
        return _resized(images, weights)

    forms = {name: by_weights(name) for name in METHODS}
    with laid_over(gen_image_ops, scale_and_translate=scale_and_translate, **forms):
        yield


def _known(tensor: Any) -> Any:
    """Its value, as far as it follows from shapes by the operations by which `tf.image.resize` computes a scale; None
    where it does not."""
    from tensorflow.python.framework import tensor_util

    value = tf.get_static_value(tensor)
    if value is not None:
        return value
    if tensor.dtype.is_integer:
        shape = tensor_util.constant_value_as_shape(tensor)
        return np.array(shape) if shape.is_fully_defined() else None
    parts = [_known(each) for each in tensor.op.inputs if tensor.op.type in ("Cast", "RealDiv")]
    if not parts or any(each is None for each in parts):
        return None
    parts = [np.asarray(each, np.float32) for each in parts]
    return parts[0] if tensor.op.type == "Cast" else parts[0] / parts[1]


def _weights(kernel: Callable[..., Any], before: int, after: int, *how: Any, **options: Any) -> np.ndarray:
    """(new, old): how much of each old pixel is in a new one of a row, as TensorFlow computes it on the host."""
    with tf.init_scope(), tf.device("CPU:0"):
        each_apart = np.eye(before, dtype=np.float32)[np.newaxis, :, np.newaxis]
        made: np.ndarray = kernel(each_apart, [after, 1], *how, **options).numpy()
        return made[0, :, 0]


def _resized(images: Any, weights: list[np.ndarray]) -> Any:
    """(batch, rows, columns, channels), of any type, as float32."""

    @tf.custom_gradient
    def resized(images: Any) -> Any:
        return _mixed(images, weights), lambda gradient: _mixed(gradient, [each.T for each in weights])

    return resized(tf.cast(images, tf.float32))


def _mixed(images: Any, weights: list[np.ndarray]) -> Any:
    """Rows, then columns, by (new, old) weights; a product of matrices would read zeros, and round to TF32."""
    for axis, each in enumerate(weights, 1):
        most = int(np.count_nonzero(each, axis=1).max())
        read = np.argsort(each == 0, axis=1, kind="stable")[:, :most]
        shares = np.take_along_axis(each, read, 1)
        read = np.where(shares == 0, read[:, :1], read)
        images = tf.gather(images, read, axis=axis) * shares.reshape(*shares.shape, *[1] * (3 - axis))
        images = tf.reduce_sum(images, axis + 1)
    return images
