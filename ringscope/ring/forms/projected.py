"""Images resampled at projected positions, as Keras's random rotation, zoom, translation, shear and perspective do it.

TensorFlow's operation has no kernel in XLA, and one such layer would leave a model's whole step uncompiled: a ResNet-50
with a rotation and a zoom trained at a twelfth of its speed on an H200. Here each new pixel is gathered from the one or
four old pixels around its position, with coordinates and sums in float32, as in TensorFlow's kernel.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

from ..internals.frameworks import tf
from ..internals.laid_over import laid_over


def gathered() -> AbstractContextManager[None]:
    """Within this context, `tf.raw_ops.ImageProjectiveTransformV3`, which Keras's layers call, is traced as a
    gather."""
    own = tf.raw_ops.ImageProjectiveTransformV3

    def transform(**options: Any) -> Any:
        images = tf.convert_to_tensor(options["images"])
        if images.shape.rank != 4:
            return own(**options)
        transforms, fill = (tf.cast(options[name], tf.float32) for name in ("transforms", "fill_value"))
        after, how = options["output_shape"], (options["interpolation"], options.get("fill_mode", "CONSTANT"))
        return transformed(images, transforms, after, fill, *how)

    return laid_over(tf.raw_ops, ImageProjectiveTransformV3=transform)


def transformed(images: Any, transforms: Any, after: Any, fill: Any, interpolation: str, mode: str) -> Any:
    """(batch, rows, columns, channels) -> (batch, *after, channels) of an equal type. The pixel at (x, y) is read at
    the old position ((a x + b y + c) / k, (d x + e y + f) / k), k = g x + h y + 1. transforms: (batch or 1, 8), a to h.

    The gradient is TensorFlow's: the new pixels' gradient, transformed by the inverse.
    """
    before = _sizes(images)

    @tf.custom_gradient
    def run(images: Any) -> tuple[Any, Callable[[Any], Any]]:
        def gradient(upstream: Any) -> Any:
            return _read(upstream, _inverse(transforms), before, tf.constant(0.0), interpolation, mode)

        return _read(images, transforms, after, fill, interpolation, mode), gradient

    return run(images)


def _sizes(images: Any) -> tuple[Any, Any]:
    """(rows, columns), as numbers if they are known while the step is traced."""
    rows, columns = images.shape[1:3]
    return rows or tf.shape(images)[1], columns or tf.shape(images)[2]


def _read(images: Any, transforms: Any, after: Any, fill: Any, interpolation: str, mode: str) -> Any:
    rows, columns = _sizes(images)
    known = tf.get_static_value(after)
    tall, wide = tf.unstack(tf.convert_to_tensor(after)) if known is None else map(int, known)
    a, b, c, d, e, f, g, h = (each[:, tf.newaxis, tf.newaxis] for each in tf.unstack(transforms, 8, axis=1))
    y = tf.cast(tf.range(tall), tf.float32)[tf.newaxis, :, tf.newaxis]
    x = tf.cast(tf.range(wide), tf.float32)[tf.newaxis, tf.newaxis, :]
    k = g * x + h * y + 1
    column, row = _inside((a * x + b * y + c) / k, columns, mode), _inside((d * x + e * y + f) / k, rows, mode)
    flat, batch, channels = _rows_of(images), tf.shape(images)[0], images.shape[3]
    nothing = tf.cast(fill, images.dtype)  # `fill` is rounded before it is mixed with pixels, as in TensorFlow's kernel

    def at(row: Any, column: Any) -> Any:
        """The pixels at (row, column); both hold integer values. Outside the image it is `fill`."""
        is_there = (row >= 0) & (row < _float(rows)) & (column >= 0) & (column < _float(columns))
        place = _whole(row, rows) * columns + _whole(column, columns)
        places = tf.broadcast_to(tf.reshape(place, [-1, tall * wide]), [batch, tall * wide])
        pixels = tf.reshape(tf.gather(flat, places, batch_dims=1), [batch, tall, wide, channels or tf.shape(flat)[2]])
        return tf.where(is_there[..., tf.newaxis], pixels, nothing)

    if interpolation == "NEAREST":
        made = at(_rounded(row), _rounded(column))
    else:
        made = tf.cast(_between(lambda *place: tf.cast(at(*place), tf.float32), row, column), images.dtype)
    return tf.where((k == 0)[..., tf.newaxis], nothing, made)


def _between(at: Callable[[Any, Any], Any], row: Any, column: Any) -> Any:
    """Bilinear interpolation of four pixels."""
    top, left = tf.floor(row), tf.floor(column)
    down, right = (row - top)[..., tf.newaxis], (column - left)[..., tf.newaxis]
    lines = [(1 - right) * at(line, left) + right * at(line, left + 1) for line in (top, top + 1)]
    return (1 - down) * lines[0] + down * lines[1]


def _inverse(transforms: Any) -> Any:
    """The inverse of each 3 x 3 matrix, scaled so that its last number is 1: its adjugate, since the determinant
    cancels."""
    a, b, c, d, e, f, g, h = tf.unstack(transforms, 8, axis=1)
    adjugate = [e - f * h, c * h - b, b * f - c * e, f * g - d, a - c * g, c * d - a * f, d * h - e * g, b * g - a * h]
    return tf.stack(adjugate, axis=1) / (a * e - b * d)[:, tf.newaxis]


def _inside(place: Any, size: Any, mode: str) -> Any:
    """The position to read along an axis of `size` pixels for a position that may lie outside, as TensorFlow's kernel
    maps it."""
    size = _float(size)
    last = size - 1
    if mode == "CONSTANT":
        return place
    if mode == "REFLECT":  # (d c b a | a b c d | d c b a)
        twice = 2 * size
        before = tf.where(place < twice, twice * tf.floor(-place / twice) + place, place)
        before = tf.where(before < -size, before + twice, -before - 1)
        beyond = place - twice * tf.floor(place / twice)
        beyond = tf.where(beyond >= size, twice - beyond - 1, beyond)
        place = tf.where(place < 0, before, tf.where(place > last, beyond, place))
    elif mode == "WRAP":  # (a b c d | a b c d | a b c d)
        around = tf.maximum(last, 1)  # with one pixel, every position reads that pixel
        before = place + size * (tf.floor(-place / around) + 1)
        beyond = place - size * tf.floor(place / around)
        place = tf.where(place < 0, before, tf.where(place > last, beyond, place))
    elif mode != "NEAREST":  # (a a a a | a b c d | d d d d)
        raise ValueError(f"fill mode {mode!r} is none of CONSTANT, REFLECT, WRAP and NEAREST")
    return tf.clip_by_value(place, 0.0, last)


def _rounded(place: Any) -> Any:
    """Round as C does: halves away from zero."""
    return tf.where(place >= 0, tf.floor(place + 0.5), tf.math.ceil(place - 0.5))


def _rows_of(images: Any) -> Any:
    rows, columns = _sizes(images)
    return tf.reshape(images, [-1, rows * columns, images.shape[3] or tf.shape(images)[3]])


def _whole(place: Any, size: Any) -> Any:
    return tf.cast(tf.clip_by_value(place, 0.0, _float(size) - 1), tf.int32)


def _float(size: Any) -> Any:
    return tf.cast(size, tf.float32)
