"""Bilinear resizing, where XLA's own is refused or wrong.

Of 16-bit images: TensorFlow computes it in float32 anyway, and gives float32. But as XLA compiles its gradient, that of
16-bit images is float32 too, where the graph says otherwise: TensorFlow 2.21 compiles no step with an `UpSampling2D` in
mixed precision whose gradient goes on. Cast before, the cast's own gradient rounds it.

Where a new pixel's centre falls on an old one's, as with an odd factor: XLA computes from which pixel on to read twice,
once for the pixels and once for their weights, and rounds up both. Where one of the two programs multiplies and adds in
one instruction, one rounding apart, the weights are the next pixel's (tensorflow/tensorflow#118344). There the weights
are computed here, as TensorFlow's own kernel does, and are constants of the step.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from fractions import Fraction
from typing import Any

import numpy as np

from ..exchange import tf
from ..laid_over import laid_over
from .narrow import wide_type

NEAR = 1e-3  # of a pixel: float32 tells those of 8 000 in a row as exactly


@contextmanager
def by_own_weights() -> Iterator[None]:
    """While it lasts, `tf.image.resize`, which Keras's layers and `keras.ops` call, resizes so."""
    from tensorflow.python.ops import gen_image_ops  # the public function does not tell which way it takes

    own = gen_image_ops.resize_bilinear

    def resize_bilinear(
        images: Any, size: Any, align_corners: bool = False, half_pixel_centers: bool = False, name: str | None = None
    ) -> Any:
        images = tf.convert_to_tensor(images)
        before, after = images.shape[1:3], tf.get_static_value(size)
        if before.is_fully_defined() and after is not None:
            scales = [_scale(*sizes, align_corners) for sizes in zip(before, after, strict=True)]
            places = [_places(*each, half_pixel_centers) for each in zip(scales, after, strict=True)]
            if any(map(_in_doubt, scales, places)):
                return _resized(images, [_weights(*each) for each in zip(places, before, strict=True)])
        return own(tf.cast(images, wide_type(images.dtype)), size, align_corners, half_pixel_centers, name)

    with laid_over(gen_image_ops, resize_bilinear=resize_bilinear):
        yield


def _scale(before: int, after: int, align_corners: bool) -> Fraction:
    """How many pixels of a row of `before` lie between two of `after`."""
    return Fraction(before - 1, after - 1) if align_corners and after > 1 else Fraction(before, after)


def _places(scale: Fraction, after: int, half_pixel_centers: bool) -> np.ndarray:
    """Where in the old row each of the `after` new pixels is read, in pixels, as TensorFlow's kernel rounds it."""
    step, half = np.float32(scale.numerator) / np.float32(scale.denominator), np.float32(0.5)
    new = np.arange(after, dtype=np.float32)
    return (new + half) * step - half if half_pixel_centers else new * step


def _in_doubt(scale: Fraction, places: np.ndarray) -> bool:
    """Whether a place is a pixel's but for rounding. With a scale of halves, quarters and so on nothing is rounded."""
    exact = scale.denominator & (scale.denominator - 1) == 0
    return not exact and bool(np.any(np.abs(places - np.round(places)) < NEAR))


def _weights(places: np.ndarray, before: int) -> np.ndarray:
    """(new, old): of which pixels a new one is made, and how much of each."""
    below = np.floor(places)
    upper = np.minimum(np.ceil(places), before - 1).astype(int)
    lower = np.clip(below.astype(int), 0, upper)
    weights, new, share = np.zeros((len(places), before), np.float32), np.arange(len(places)), places - below
    weights[new, lower] += 1 - share
    weights[new, upper] += share
    return weights


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
