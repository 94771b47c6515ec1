"""The exact GELU, x * P(X <= x) of a standard normal X, which keeps only its derivative for the backward pass.

From TensorFlow's form XLA keeps the input and a part of the derivative, and computes erfc in two branches: 0.137 ms for
a layer of a decoder's step on an H200, where one read and one write of its 50 million elements take 0.05 ms. Here the
forward pass writes the derivative beside the result. The backward pass is one product, which XLA fuses with the sum for
the bias's gradient.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import reduce
from typing import Any

from ..internals.frameworks import tf
from ..internals.laid_over import laid_over
from .barriers import forward_apart
from .half_precision import NARROW, wide_type

# P(X > |x|) = exp(-x^2 / 2) t polynomial(t) with t = 1 / (1 + SLOPE |x|), constant term first. Fitted so that the
# largest relative error over all x is least: 4e-6, while rounding to float16 changes a number by up to 5e-4.
SLOPE = 0.28
TAIL = (0.111703844, 0.11174066, 0.101935835, 0.0944555703, 0.0249506655, 0.105442474, -0.050230889)


def light() -> AbstractContextManager[None]:
    """Within this context, the exact GELU of `keras.ops`, which Keras's layers and activations call, is traced in this
    form."""
    from keras.src import backend

    keras_own = backend.nn.gelu

    def gelu(x: Any, approximate: bool = True) -> Any:
        x = backend.convert_to_tensor(x)
        return keras_own(x, approximate) if approximate or not x.dtype.is_floating else exact(x)

    return laid_over(backend.nn, gelu=gelu)


@tf.custom_gradient
def exact(x: Any) -> tuple[Any, Callable[[Any], Any]]:
    """x * P(X <= x) of a standard normal X, in x's type and shape; only for XLA."""
    wide = tf.cast(x, wide_type(x.dtype))  # computed within the kernel, so that it takes no memory
    share = _share(wide, x.dtype)
    # rounded to its type: without the barrier XLA would keep it in float32, or compute it twice
    slope = forward_apart(tf.cast(share + wide * _density(wide), x.dtype))
    return tf.cast(wide * share, x.dtype), lambda upstream: upstream * slope


def _density(x: Any) -> Any:
    return tf.exp(-0.5 * tf.square(x)) * (1 / math.sqrt(2 * math.pi))


def _share(x: Any, dtype: Any) -> Any:
    """P(X <= x) of a standard normal X, to the precision of `dtype`."""

    @tf.custom_gradient
    def share(x: Any) -> tuple[Any, Callable[[Any], Any]]:
        below = _by_polynomial(x) if dtype in NARROW else 0.5 * tf.math.erfc(-math.sqrt(0.5) * x)
        return below, lambda upstream: upstream * _density(x)

    return share(x)


def _by_polynomial(x: Any) -> Any:
    t = 1 / (1 + SLOPE * tf.abs(x))
    beyond = tf.exp(-0.5 * tf.square(x)) * t * reduce(lambda total, factor: total * t + factor, reversed(TAIL))
    return tf.where(x < 0, beyond, 1 - beyond)
