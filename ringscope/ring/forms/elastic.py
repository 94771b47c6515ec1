"""Keras's RandomElasticTransform in a form that XLA can compile.

Keras blurs the shifts of the pixels by a convolution whose kernel has another size for each batch, which XLA refuses,
and reads the shifted pixels image by image and channel by channel: 370 operations for each RGB image. Here the blur
is two products with matrices of a fixed size, and all images are read at once.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

from ..internals.frameworks import backend_ops, tf
from ..internals.laid_over import laid_over

MODES = ("constant", "nearest", "wrap", "reflect")  # "mirror" reads beyond the image in Keras 3.15


def at_once() -> AbstractContextManager[None]:
    """Within this context, RandomElasticTransform is traced without shapes that XLA cannot know."""
    from keras.layers import RandomElasticTransform

    own = RandomElasticTransform._transform_images
    of_keras = backend_ops.image.elastic_transform

    def transform_images(layer: Any, images: Any, transformation: Any, interpolation: str) -> Any:
        with laid_over(backend_ops.image, elastic_transform=_moved(of_keras)):
            return own(layer, images, transformation, interpolation)

    return laid_over(RandomElasticTransform, _transform_images=transform_images)


def _moved(of_keras: Callable[..., Any]) -> Callable[..., Any]:
    """Keras's `elastic_transform`, for shifts that are blurred over less than the image (the layer's are)."""

    def moved(images: Any, **options: Any) -> Any:
        from keras.src.backend import standardize_data_format
        from keras.src.random.seed_generator import draw_seed

        images = tf.convert_to_tensor(images)
        first = standardize_data_format(options["data_format"]) == "channels_first"
        mode, interpolation = options["fill_mode"], options["interpolation"]
        if images.shape.rank != 4 or not images.shape.is_fully_defined() or mode not in MODES:
            return of_keras(images, **options)
        pixels = tf.transpose(images, (0, 2, 3, 1)) if first else images
        batch, rows, columns, _ = pixels.shape
        alpha, sigma = (tf.cast(options[name], images.dtype) for name in ("alpha", "sigma"))
        seed = draw_seed(options["seed"])  # Keras draws both shifts from it, so they are equal
        drawn = tf.random.stateless_normal((batch, rows, columns), seed, dtype=images.dtype) * sigma
        shift = alpha * _blurred(drawn, sigma)
        row = tf.range(rows, dtype=images.dtype)[tf.newaxis, :, tf.newaxis] + shift
        column = tf.range(columns, dtype=images.dtype)[tf.newaxis, tf.newaxis, :] + shift
        made = _read(pixels, row, column, interpolation, mode, tf.cast(options["fill_value"], images.dtype))
        return tf.transpose(made, (0, 3, 1, 2)) if first else made

    return moved


def _blurred(shifts: Any, sigma: Any) -> Any:
    """(batch, rows, columns), blurred by Keras's Gaussian of 6 * int(sigma) + 1 pixels in each direction; 0 lies
    outside. Summed in float32."""
    down, right = (_gaussian(size, sigma) for size in shifts.shape[1:])
    made = tf.einsum("ij,bjk,lk->bil", down, tf.cast(shifts, tf.float32), right)
    return tf.cast(made, shifts.dtype)


def _gaussian(size: int, sigma: Any) -> Any:
    """(size, size): the weight of each pixel of a row in each blurred pixel."""

    def weights(distance: Any) -> Any:
        reach = 3 * tf.cast(sigma, tf.int32)
        kernel = tf.exp(-0.5 * (tf.cast(distance, sigma.dtype) / sigma) ** 2)
        return tf.where(tf.abs(distance) <= reach, tf.cast(kernel, tf.float32), 0.0)

    place = tf.range(size)
    total = tf.reduce_sum(weights(tf.range(1 - size, size)))
    return weights(place[:, tf.newaxis] - place) / total


def _read(pixels: Any, row: Any, column: Any, interpolation: str, mode: str, fill: Any) -> Any:
    """`pixels`, of shape (batch, rows, columns, channels), at the positions `row` and `column`, each of shape (batch,
    rows, columns)."""
    batch, rows, columns, channels = pixels.shape
    flat = tf.reshape(pixels, (batch, rows * columns, channels))
    made = 0
    for down, of_row in _neighbours(row, interpolation):
        for right, of_column in _neighbours(column, interpolation):
            (y, has_row), (x, has_column) = _inside(down, rows, mode), _inside(right, columns, mode)
            place = tf.reshape(y * columns + x, (batch, rows * columns))
            found = tf.reshape(tf.gather(flat, place, batch_dims=1), pixels.shape)
            if mode == "constant":
                found = tf.where((has_row & has_column)[..., tf.newaxis], found, fill)
            made += (of_row * of_column)[..., tf.newaxis] * found
    return made


def _neighbours(place: Any, interpolation: str) -> list[tuple[Any, Any]]:
    """The pixels of an axis that a position lies between, as whole numbers, and their weights."""
    if interpolation == "nearest":
        return [(tf.cast(tf.round(place), tf.int32), tf.ones((), place.dtype))]
    below = tf.floor(place)
    index = tf.cast(below, tf.int32)
    return [(index, 1 - (place - below)), (index + 1, place - below)]


def _inside(index: Any, size: int, mode: str) -> tuple[Any, Any]:
    """(the index of the pixel to read for `index`, which may lie outside the axis; True where `index` lies inside), by
    Keras's rules for this mode."""
    is_there = (index >= 0) & (index < size)
    if mode == "wrap":
        index = tf.math.floormod(index, size)
    elif mode == "reflect":
        index = tf.math.floormod(tf.abs(index), 2 * size)
        index = tf.minimum(index, 2 * size - 1 - index)
    return tf.clip_by_value(index, 0, size - 1), is_there
