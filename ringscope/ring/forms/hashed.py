"""Dropout by a hash of each number's place and of a seed, inside of the kernel that uses it.

As Keras and TensorFlow draw it, XLA writes 32 random bits for each number to memory, in two kernels, makes a mask of
them in a third, and keeps the mask for the way back: 0.28 GB of traffic for 12.6 million numbers, where this has 0.15.
A hash is computed anew on the way back, from the same seed. Seeds still come from Keras's `SeedGenerator`, one for
each layer, which counts its steps and is saved with the model; the numbers drawn from them differ from Keras's and have
the same distribution.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from math import prod
from typing import Any, NamedTuple

from ..internals.frameworks import tf
from ..internals.laid_over import laid_over
from .half_precision import wide_type

GOLDEN = 0x9E3779B1  # 2^32 by the golden ratio
# Shifts and factors of the mixing function of 32 bits that Chris Wellons' search found least biased (lowbias32).
SHIFTS, FACTORS = (16, 15, 16), (0x7FEB352D, 0x846CA68B)
MOST = 1 << 32  # places that 32 bits tell apart
MADE = "dropped_by_ring"  # an attribute of what is made so


class Dropped(NamedTuple):
    """Numbers, each of which is dropped with a chance of `rate`; seed: two words."""

    inputs: Any
    rate: float
    seed: Any


def dropped_of(tensor: Any) -> Dropped | None:
    """The inputs, rate and seed of a tensor that this dropout made."""
    found: Dropped | None = getattr(tensor, MADE, None)
    return found


@contextmanager
def dropout() -> Iterator[None]:
    """While it lasts, `keras.random.dropout`, which Keras's layers call, is traced so."""
    from keras.src import backend
    from keras.src.random.seed_generator import draw_seed

    keras_own = backend.random.dropout

    def dropped(inputs: Any, rate: Any, noise_shape: Any = None, seed: Any = None) -> Any:
        inputs = tf.convert_to_tensor(inputs)
        fits = isinstance(rate, float) and 0 < rate < 1 and inputs.dtype.is_floating and inputs.shape.rank
        if not fits:
            return keras_own(inputs, rate, noise_shape, seed)
        sizes = tf.shape(inputs)
        shape = [size or sizes[axis] for axis, size in enumerate(inputs.shape)]
        if noise_shape is not None:
            shape = [own if given is None else given for own, given in zip(shape, noise_shape, strict=True)]
        words = tf.convert_to_tensor(draw_seed(seed))
        made = of(inputs, rate, shape, words)
        if noise_shape is None:
            setattr(made, MADE, Dropped(inputs, rate, words))
        return made

    with laid_over(backend.random, dropout=dropped):
        yield


def of(inputs: Any, rate: float, shape: Sequence[Any], seed: Any) -> Any:
    """The inputs, of which a share `rate` is zero and the rest 1 / (1 - rate) times as large. shape: of the mask, which
    is spread over the inputs. seed: two words."""

    @tf.custom_gradient
    def run(inputs: Any) -> tuple[Any, Callable[[Any], Any]]:
        return masked(inputs, seed), lambda upstream: masked(upstream, apart(seed))

    def masked(numbers: Any, seed: Any) -> Any:
        larger = tf.cast(tf.cast(numbers, wide_type(numbers.dtype)) / (1 - rate), numbers.dtype)
        return tf.where(kept(seed, shape, rate), larger, tf.zeros((), numbers.dtype))

    return run(inputs)


def apart(seed: Any) -> Any:
    """The seed, of which XLA does not see that it is the same: else it would keep what it has made of it."""
    from tensorflow.compiler.tf2xla.python import xla

    return xla.optimization_barrier(seed)[0]


def kept(seed: Any, shape: Sequence[Any], rate: float) -> Any:
    """Which numbers stay: a mask of this shape, whose sizes may be tensors. seed: two words."""
    known = all(isinstance(size, int) for size in shape) and prod(shape) < MOST
    first, second = tf.unstack(tf.cast(seed, tf.uint32))
    second = _mixed(second, first)
    if not known:  # a seed for each part of the first axis
        second = _mixed(_places([shape[0], *[1] * (len(shape) - 1)], first), second)
        shape = [1, *shape[1:]]
    return _mixed(_places(shape, first), second) >= _word(int(rate * MOST))


def _places(shape: Sequence[Any], seed: Any) -> Any:
    """The seed plus each number's place (from 0) times GOLDEN. The sum runs along one axis after the other, from the
    seed on: XLA would keep a part that does not depend on the seed as a constant, in memory."""
    places, step = tf.reshape(seed, [1] * len(shape)), _word(GOLDEN)
    for axis, size in reversed(list(enumerate(shape))):
        if isinstance(size, int) and size == 1:  # one place, the first
            continue
        along = tf.cast(tf.range(size), tf.uint32) * step
        places = places + tf.reshape(along, [-1 if each == axis else 1 for each in range(len(shape))])
        step = step * tf.cast(size, tf.uint32)
    return places


def _mixed(words: Any, seed: Any) -> Any:
    """Each bit of a word or of the seed turns each of these with a chance of a half. The seed comes after a shift: else
    one seed's words would be another's, moved."""
    words = tf.bitwise.bitwise_xor(_folded(words, SHIFTS[0]), seed)
    for shift, factor in zip(SHIFTS[1:], FACTORS, strict=True):
        words = _folded(words * _word(factor), shift)
    return words


def _folded(words: Any, bits: int) -> Any:
    return tf.bitwise.bitwise_xor(words, tf.bitwise.right_shift(words, _word(bits)))


def _word(number: int) -> Any:
    return tf.constant(number, tf.uint32)
