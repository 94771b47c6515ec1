"""Three operations of Keras's image augmentation, in forms that XLA can compile (projected.py has a fourth).

They are gamma-distributed random numbers (MixUp, CutMix, AugMix), histograms whose number of bins XLA cannot find out
(Equalization inside RandAugment), and RandomCrop's slice, for which XLA would compile the step again each time. Without
this form, one such layer leaves a model's whole step uncompiled.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from ..internals.frameworks import backend_ops, tf
from ..internals.laid_over import laid_over
from .half_precision import wide_type

ROUNDS = 12  # tries per number; each is accepted with a probability of 95 % or more, so for one number in 4e15 none is


@contextmanager
def compiled() -> Iterator[None]:
    """Within this context, `tf.random.stateless_gamma`, and what Keras's Equalization and RandomCrop call, are traced
    as operations that XLA can compile."""
    from keras.layers import Equalization, RandomCrop

    own, own_crop = Equalization._custom_histogram_fixed_width, RandomCrop.transform_images

    def histogram(layer: Any, values: Any, value_range: Any, nbins: int = 256) -> Any:
        """Keras's histogram with a fixed number of bins. Keras has already clipped the bin numbers."""

        def bincount(x: Any, minlength: int = 0, **_: Any) -> Any:
            none = tf.zeros([0], tf.int32)
            return tf.raw_ops.DenseBincount(input=x, size=minlength, weights=none, binary_output=False)

        with laid_over(backend_ops.numpy, bincount=bincount):
            return own(layer, values, value_range, nbins)

    def crop(layer: Any, images: Any, transformation: Any, training: bool = True) -> Any:
        if not training or not all(tf.is_tensor(place) for place in transformation):
            return own_crop(layer, images, transformation, training=training)
        return cropped(tf.cast(images, layer.compute_dtype), transformation, layer)

    with (
        laid_over(tf.random, stateless_gamma=gamma),
        laid_over(Equalization, _custom_histogram_fixed_width=histogram),
        laid_over(RandomCrop, transform_images=crop),
    ):
        yield


def cropped(images: Any, places: Any, layer: Any) -> Any:
    """RandomCrop's slice, by `tf.slice`, whose place may be computed in the step (sliced.py). images: (..., rows,
    columns, channels), or as `data_format` says. places: the first row and the first column."""
    begins, sizes = [0] * images.shape.rank, tf.unstack(tf.shape(images))
    for axis, begin, size in ((layer.height_axis, places[0], layer.height), (layer.width_axis, places[1], layer.width)):
        begins[axis], sizes[axis] = begin, size
    return tf.slice(images, begins, sizes)


def gamma(shape: Any, seed: Any, alpha: Any, beta: Any = None, dtype: Any = tf.float32, name: str | None = None) -> Any:
    """Gamma-distributed numbers by the method of Marsaglia and Tsang (ACM TOMS 26, 2000), with a fixed number of tries.

    The numbers of a seed differ from TensorFlow's. A gradient with respect to alpha raises NotImplementedError.
    """
    wide = wide_type(tf.as_dtype(dtype))
    alpha = tf.cast(alpha, wide)

    @tf.custom_gradient
    def drawn(alpha: Any) -> Any:
        def gradient(_: Any) -> Any:
            raise NotImplementedError(
                "a compiled step has no gradient of gamma-distributed numbers with respect to alpha"
            )

        return _drawn(shape, seed, alpha), gradient

    made = drawn(alpha)
    return tf.cast(made if beta is None else made / tf.cast(beta, wide), dtype)


def _drawn(shape: Any, seed: Any, alpha: Any) -> Any:
    of_normal, of_uniform, of_power = tf.unstack(tf.random.split(seed, 3))
    shape = tf.convert_to_tensor(shape, tf.int32)
    several = tf.concat([[ROUNDS], shape], axis=0)
    normal = tf.random.stateless_normal(several, of_normal, dtype=alpha.dtype)
    uniform = 1 - tf.random.stateless_uniform(several, of_uniform, dtype=alpha.dtype)  # in (0, 1]
    # For alpha below 1: a gamma number for alpha + 1, times a uniform number to the power of 1 / alpha.
    small = alpha < 1
    third = tf.where(small, alpha + 1, alpha) - 1 / 3
    cube = (1 + normal / tf.sqrt(9 * third)) ** 3
    positive = tf.maximum(cube, tf.constant(1e-30, alpha.dtype))
    bound = 0.5 * normal**2 + third * (1 - cube + tf.math.log(positive))
    is_taken = (cube > 0) & (tf.math.log(uniform) < bound)
    made = tf.ones(shape, alpha.dtype)
    for each, taken in reversed(list(zip(tf.unstack(cube), tf.unstack(is_taken), strict=True))):
        made = tf.where(taken, each, made)
    power = 1 - tf.random.stateless_uniform(shape, of_power, dtype=alpha.dtype)
    return third * made * tf.where(small, power ** (1 / alpha), tf.ones((), alpha.dtype))
