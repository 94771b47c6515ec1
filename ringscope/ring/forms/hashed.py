"""Dropout by a hash of each number's position and a seed, inside the kernel that uses it.

For Keras's dropout XLA writes 32 random bits per number to memory in two kernels, makes a mask of them in a third, and
keeps the mask for the backward pass: 0.28 GB of traffic for 12.6 million numbers, against 0.15 GB here. The backward
pass computes the hash again from its seed. Seeds still come from Keras's `SeedGenerator` of each layer, which counts
its steps and is saved with the model. The random numbers differ from Keras's, with the same distribution.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from math import prod
from typing import Any, NamedTuple

from ..internals.frameworks import tf
from ..internals.laid_over import laid_over
from .barriers import apart
from .half_precision import wide_type

GOLDEN = 0x9E3779B1  # 2^32 divided by the golden ratio
# Shifts and factors of a 32-bit mixing function, the least biased one that Chris Wellons' search found (lowbias32).
SHIFTS, FACTORS = (16, 15, 16), (0x7FEB352D, 0x846CA68B)
MOST = 1 << 32  # number of positions that 32 bits can tell apart
ALONG = "places_by_ring"  # attribute of a graph that holds what `_along` has made in it
MADE = "dropped_by_ring"  # attribute of a tensor that this form's dropout has made


class Dropped(NamedTuple):
    """The arguments of a dropout: each of `inputs` is dropped with probability `rate`. seed: two 32-bit words."""

    inputs: Any
    rate: float
    seed: Any


def dropped_of(tensor: Any) -> Dropped | None:
    """The arguments of the dropout that made this tensor; None if another operation made it."""
    found: Dropped | None = getattr(tensor, MADE, None)
    return found


def dropout() -> AbstractContextManager[None]:
    """Within this context, `keras.random.dropout`, which Keras's layers call, is traced in this form."""
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

    return laid_over(backend.random, dropout=dropped)


def of(inputs: Any, rate: float, shape: Sequence[Any], seed: Any) -> Any:
    """Dropout: each input is set to zero with probability `rate`, else multiplied by 1 / (1 - rate). shape: of the
    mask, which is broadcast to the inputs. seed: two 32-bit words."""

    @tf.custom_gradient
    def run(inputs: Any) -> tuple[Any, Callable[[Any], Any]]:
        # without the barrier XLA would see that both passes compute one mask, and keep the mask
        return masked(inputs, seed), lambda upstream: masked(upstream, apart(seed))

    def masked(numbers: Any, seed: Any) -> Any:
        larger = tf.cast(tf.cast(numbers, wide_type(numbers.dtype)) / (1 - rate), numbers.dtype)
        return tf.where(kept(seed, shape, rate), larger, tf.zeros((), numbers.dtype))

    return run(inputs)


def kept(seed: Any, shape: Sequence[Any], rate: float) -> Any:
    """A mask of this shape, True for numbers that are kept; its sizes may be tensors. seed: two 32-bit words."""
    known = all(isinstance(size, int) for size in shape) and prod(shape) < MOST
    first, second = tf.unstack(tf.cast(seed, tf.uint32))
    second = _mixed(second, first)
    if not known:  # each index of the first axis gets a seed, since positions may exceed 32 bits
        second = _mixed(_places([shape[0], *[1] * (len(shape) - 1)], first), second)
        shape = [1, *shape[1:]]
    return _mixed(_places(shape, first), second) >= _word(int(rate * MOST))


def _places(shape: Sequence[Any], seed: Any) -> Any:
    """The seed plus each number's position (from 0) times GOLDEN. The sum starts with the seed and adds one axis after
    the other, because XLA would store any part that does not depend on the seed as a constant in memory."""
    places, step = tf.reshape(seed, [1] * len(shape)), GOLDEN
    for axis, size in reversed(list(enumerate(shape))):
        if isinstance(size, int) and size == 1:  # an axis of length 1: its only index is 0
            continue
        places = places + _along(size, step, [-1 if each == axis else 1 for each in range(len(shape))])
        if isinstance(size, int) and isinstance(step, int):
            step = step * size % MOST
        else:
            step = _word(step) * tf.cast(size, tf.uint32)
    return places


def _along(size: Any, step: Any, shape: list[int]) -> Any:
    """The indexes 0 to size - 1 of an axis, times `step`, in this shape. A graph holds one tensor for equal arguments:
    a GPT-2 medium asks 582 times on a CPU, for some ten axes."""

    def made() -> Any:
        return tf.reshape(tf.cast(tf.range(size), tf.uint32) * _word(step), shape)

    if tf.executing_eagerly() or not (isinstance(size, int) and isinstance(step, int)):
        return made()
    graph = tf.compat.v1.get_default_graph()
    if not hasattr(graph, ALONG):
        setattr(graph, ALONG, {})
    known = getattr(graph, ALONG)
    key = (size, step, *shape)
    if key not in known:
        known[key] = made()
    return known[key]


def _mixed(words: Any, seed: Any) -> Any:
    """Mix words with a seed: each bit of word or seed flips each bit of the result with a probability of a half. The
    seed enters after a shift; otherwise the words of one seed would be the shifted words of another seed."""
    words = tf.bitwise.bitwise_xor(_folded(words, SHIFTS[0]), seed)
    for shift, factor in zip(SHIFTS[1:], FACTORS, strict=True):
        words = _folded(words * _word(factor), shift)
    return words


def _folded(words: Any, bits: int) -> Any:
    return tf.bitwise.bitwise_xor(words, tf.bitwise.right_shift(words, _word(bits)))


def _word(number: Any) -> Any:
    return tf.convert_to_tensor(number, tf.uint32)
