"""GELU, x * P(X <= x) of a standard normal X, which keeps only its derivative for the backward pass.

From TensorFlow's form of the exact one XLA keeps the input and a part of the derivative, and computes erfc in two
branches: 0.137 ms for a layer of a decoder's step on an H200, where one read and one write of its 50 million elements
take 0.05 ms. From TensorFlow's approximation by tanh it keeps the input and, beside the result, a product of it. Here
the forward pass writes the derivative beside the result. The backward pass is one product, which XLA fuses with the sum
for the bias's gradient.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import reduce
from typing import Any

from ..internals.frameworks import backend_ops, keras, tf
from ..internals.laid_over import laid_over
from .barriers import forward_apart
from .half_precision import NARROW, wide_type

# P(X > |x|) = exp(-x^2 / 2) t polynomial(t) with t = 1 / (1 + SLOPE |x|), constant term first. Fitted so that the
# largest relative error over all x is least: 4e-6, while rounding to float16 changes a number by up to 5e-4.
SLOPE = 0.28
TAIL = (0.111703844, 0.11174066, 0.101935835, 0.0944555703, 0.0249506655, 0.105442474, -0.050230889)
CUBED = 0.044715  # of the approximation by tanh
TWICE = 2 * math.sqrt(2 / math.pi)  # the logistic function of y is (1 + tanh(y / 2)) / 2


def light() -> AbstractContextManager[None]:
    """Within this context, the GELU of `keras.ops`, which Keras's layers and activations call, is traced in this
    form."""
    keras_own = backend_ops.nn.gelu

    def gelu(x: Any, approximate: bool = True) -> Any:
        x = keras.ops.convert_to_tensor(x)
        if not x.dtype.is_floating:
            return keras_own(x, approximate)
        return by_tanh(x) if approximate else exact(x)

    return laid_over(backend_ops.nn, gelu=gelu)


@tf.custom_gradient
def exact(x: Any) -> tuple[Any, Callable[[Any], Any]]:
    """x * P(X <= x) of a standard normal X, in x's type and shape; only for XLA."""
    wide = tf.cast(x, wide_type(x.dtype))  # computed within the kernel, so that it takes no memory
    share = _share(wide, x.dtype)
    return _with_slope(wide * share, share + wide * _density(wide), x.dtype)


@tf.custom_gradient
def by_tanh(x: Any) -> tuple[Any, Callable[[Any], Any]]:
    """x * (1 + tanh(s (x + CUBED x^3))) / 2 with s = sqrt(2 / pi), in x's type and shape; only for XLA."""
    wide = tf.cast(x, wide_type(x.dtype))
    square = tf.square(wide)
    share = tf.sigmoid(TWICE * wide * (1 + CUBED * square))  # (1 + tanh(y)) / 2, without 1 - 1 where y is low
    slope = share + wide * share * (1 - share) * TWICE * (1 + 3 * CUBED * square)
    return _with_slope(wide * share, slope, x.dtype)


def _with_slope(value: Any, slope: Any, dtype: Any) -> tuple[Any, Callable[[Any], Any]]:
    """The value, and its gradient by the slope, both in this type."""
    # rounded to its type: without the barrier XLA would keep it in float32, or compute it twice
    slope = forward_apart(tf.cast(slope, dtype))
    return tf.cast(value, dtype), lambda upstream: upstream * slope


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
