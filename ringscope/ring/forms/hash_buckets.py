"""Keras's `Hashing` of integers, without strings: the same bins by FarmHash, computed from the digits of each number.

XLA has no strings, so that one such layer would leave a model's whole step uncompiled. Keras writes each integer in
decimal digits and takes FarmHash's 64 bits of them (`farmhashna::Hash64`). That string has at most 20 bytes, which fit
into three words.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any

import numpy as np

from ..internals.frameworks import tf
from ..internals.laid_over import laid_over

K0, K1, K2 = (np.uint64(each) for each in (0xC3A5C85C97CB3127, 0xB492B66FBE98F273, 0x9AE16A3B2F90404F))
BYTES = 24  # length of the three words together; the string ends at their end
MINUS, ZERO = 45, 48  # the characters - and 0 in ASCII


def of_digits() -> AbstractContextManager[None]:
    """Within this context, Keras's Hashing layers are traced without strings where they hash integers without salt."""
    from keras.layers import Hashing

    own = Hashing._hash_values_to_bins

    def bins(layer: Any, values: Any) -> Any:
        if layer.strong_hash or not values.dtype.is_integer:
            return own(layer, values)
        if layer.mask_value is None or layer.num_bins == 1:
            return bucket(values, layer.num_bins)
        is_masked = tf.equal(values, layer.mask_value)
        return tf.where(is_masked, tf.zeros((), tf.int64), bucket(values, layer.num_bins - 1) + 1)

    return laid_over(Hashing, _hash_values_to_bins=bins)


def bucket(values: Any, buckets: int) -> Any:
    """int64: for each integer `tf.strings.to_hash_bucket_fast(tf.as_string(value), buckets)`."""
    hashed = _of_words(*_written(values))
    return tf.cast(tf.math.floormod(hashed, np.uint64(buckets)), tf.int64)


def _written(values: Any) -> tuple[Any, list[Any]]:
    """(length, words): each integer as a decimal string, which fills the end of three 64-bit words; a word's lowest
    byte comes first."""
    is_below = values < 0
    bits = tf.cast(values, tf.uint64)
    rest = tf.where(is_below, ~bits + np.uint64(1), bits)
    digits = tf.ones_like(rest)
    words: list[Any] = []
    for word in range(3):
        bytes_ = tf.zeros_like(rest)
        for place in range(8):
            from_end = 8 * word + place
            is_digit = (rest > 0) | (from_end == 0)
            digits = tf.where(is_digit, np.uint64(from_end + 1), digits)
            sign = tf.where(is_below & (digits == from_end), np.uint64(MINUS), np.uint64(0))
            byte = tf.where(is_digit, rest % np.uint64(10) + np.uint64(ZERO), sign)
            bytes_ |= _left(byte, 8 * (7 - place))
            rest //= np.uint64(10)
        words.insert(0, bytes_)
    return digits + tf.cast(is_below, tf.uint64), words


def _of_words(length: Any, words: list[Any]) -> Any:
    """farmhashna::Hash64 of strings of 1 to 24 bytes."""
    begin = np.uint64(BYTES) - length
    first, last = _from(words, begin), words[2]
    factor = K2 + length * np.uint64(2)

    # 1 to 3 bytes
    byte = np.uint64(0xFF)
    y = (first & byte) + _left(tf.bitwise.right_shift(first, _left(_right(length, 1), 3)) & byte, 8)
    z = length + _left(_right(last, 56), 2)
    to_3 = _mixed(y * K2 ^ z * K0) * K2
    # 4 to 7
    to_7 = _joined(length + _left(first & np.uint64(0xFFFFFFFF), 3), _right(last, 32), factor)
    # 8 to 16
    a = first + K2
    to_16 = _joined(_turned(last, 37) * factor + a, (_turned(a, 25) + last) * factor, factor)
    # 17 to 24
    a, b, c, d = first * K1, _from(words, begin + np.uint64(8)), last * factor, words[1] * K2
    to_24 = _joined(_turned(a + b, 43) + _turned(c, 30) + d, a + _turned(b + K2, 18) + c, factor)
    return tf.where(length < 4, to_3, tf.where(length < 8, to_7, tf.where(length < 17, to_16, to_24)))


def _from(words: list[Any], begin: Any) -> Any:
    """The word made of the 8 bytes from byte `begin` on; bytes beyond the last word are 0."""
    word, bits = _right(begin, 3), _left(begin & np.uint64(7), 3)
    none = tf.zeros_like(begin)
    low, high = none, none
    for place, pair in enumerate(zip(words, [*words[1:], none], strict=True)):
        is_here = word == place
        low, high = (tf.where(is_here, one, other) for one, other in zip(pair, (low, high), strict=True))
    # Two shifts, because one shift by 64 bits has no defined result.
    above = _left(tf.bitwise.left_shift(high, np.uint64(56) - bits), 8)
    return tf.bitwise.right_shift(low, bits) | above


def _joined(u: Any, v: Any, factor: Any) -> Any:
    return _mixed((v ^ _mixed((u ^ v) * factor)) * factor) * factor


def _mixed(x: Any) -> Any:
    return x ^ _right(x, 47)


def _turned(x: Any, bits: int) -> Any:
    return _right(x, bits) | _left(x, 64 - bits)


def _left(x: Any, bits: int) -> Any:
    return tf.bitwise.left_shift(x, np.uint64(bits))


def _right(x: Any, bits: int) -> Any:
    return tf.bitwise.right_shift(x, np.uint64(bits))
