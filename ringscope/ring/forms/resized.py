"""Resize images of a known size by weights from TensorFlow's own kernel, in two passes: rows, then columns.

XLA has no kernels for bicubic, Lanczos, area and antialiased resizing, nor for the gradient of nearest-neighbour
resizing: one such layer would leave a whole step uncompiled. It has bilinear resizing, but

* its gradient is a scatter, nine float32 atomics per new pixel, for a sum that the weights give as well;
* for 16-bit images TensorFlow gives float32, and XLA compiles a float32 gradient where the graph says otherwise:
  TensorFlow 2.21 compiles no step with an `UpSampling2D` in mixed precision whose input needs a gradient;
* where a new pixel's centre falls on an old one's, as with an odd factor, XLA computes the first pixel to read twice,
  for the pixels and for their weights, and rounds both up. If one of the two programs uses a fused multiply-add, which
  differs by one rounding, the weights belong to the next pixel (tensorflow/tensorflow#118344).

To get the weights, TensorFlow's kernel resizes a row of pixels, each of which is 1 in its own channel and 0 elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import numpy as np

from ..internals.frameworks import backend_ops, keras, tf
from ..internals.laid_over import laid_over
from .barriers import apart
from .half_precision import NARROW, wide_type

METHODS = ("resize_area", "resize_bicubic", "resize_bilinear", "resize_nearest_neighbor")


@contextmanager
def by_own_weights() -> Iterator[None]:
    """Within this context, `tf.image.resize`, which Keras's layers and `keras.ops` call, resizes by such weights, and
    Keras gets bilinear results in the images' own type."""
    with _by_own_weights(), _not_clipped():
        yield


def _not_clipped() -> AbstractContextManager[None]:
    """Keras clips TensorFlow's float32 to the range of the images' 16-bit type, and the gradient reads two masks. Means
    of pixels, as bilinear results are, lie in this range. In a DeepLabV3+'s step of 11.3 GiB the float32 numbers and
    the masks took 4.9."""
    keras_own = backend_ops.image.resize

    def resize(images: Any, size: Any, interpolation: str = "bilinear", *how: Any, **options: Any) -> Any:
        made, images = keras_own(images, size, interpolation, *how, **options), tf.convert_to_tensor(images)
        return tf.cast(made, images.dtype) if interpolation == "bilinear" and images.dtype in NARROW else made

    return laid_over(backend_ops.image, resize=resize)


def _by_own_weights() -> AbstractContextManager[None]:
    # The public function stays: it chooses among the functions that are replaced here.
    from tensorflow.python.ops import gen_image_ops

    def by_weights(name: str) -> Callable[..., Any]:
        own = getattr(gen_image_ops, name)

        def resize(images: Any, size: Any, *how: Any, **options: Any) -> Any:
            images = tf.convert_to_tensor(images)
            is_nearest = name == "resize_nearest_neighbor"
            # TensorFlow's kernel has no gradient, or the images are float64
            if is_nearest and images.dtype not in (*NARROW, tf.float32):
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
    return laid_over(gen_image_ops, scale_and_translate=scale_and_translate, **forms)


def _known(tensor: Any) -> Any:
    """The tensor's value if it follows from shapes, by the operations with which `tf.image.resize` computes a scale;
    else None."""
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
    """(new, old): the share of each old pixel in each new pixel of a row, from TensorFlow's kernel on the host."""
    with tf.init_scope(), tf.device("CPU:0"):
        each_apart = np.eye(before, dtype=np.float32)[np.newaxis, :, np.newaxis]
        made: np.ndarray = kernel(each_apart, [after, 1], *how, **options).numpy()
        return made[0, :, 0]


def _resized(images: Any, weights: list[np.ndarray]) -> Any:
    """(batch, rows, columns, channels) of any type, resized, as float32.

    In a mixed-precision model float32 images are logits. XLA would compute each of them again wherever the loss reads
    it, and the loss's gradient eight times for a factor of 4: 2 ms of an HRNet's step of 11 on an H200. Barriers make
    it store both. With them, 16-bit images, whose gradients are cheap, took a DeepLabV3+ 9 to 15 % longer.
    """
    stored = (
        apart if images.dtype == tf.float32 and keras.config.dtype_policy().compute_dtype in NARROW else tf.identity
    )

    @tf.custom_gradient
    def resized(images: Any) -> Any:
        new = stored(_mixed(images, weights))
        return new, lambda gradient: _mixed(stored(gradient), [each.T for each in weights])

    return resized(tf.cast(images, tf.float32))


def _mixed(images: Any, weights: list[np.ndarray]) -> Any:
    """Resize rows, then columns, by (new, old) weights. A matrix product would also read the zeros, and round to
    TF32."""
    for axis, each in enumerate(weights, 1):
        most = int(np.count_nonzero(each, axis=1).max())
        read = np.argsort(each == 0, axis=1, kind="stable")[:, :most]
        shares = np.take_along_axis(each, read, 1)
        read = np.where(shares == 0, read[:, :1], read)
        images = tf.gather(images, read, axis=axis) * shares.reshape(*shares.shape, *[1] * (3 - axis))
        images = tf.reduce_sum(images, axis + 1)
    return images
