"""Integer lookup tables by binary search: `IntegerLookup`, `tf.lookup.StaticHashTable`.

XLA has no kernel for hash tables, so that one such layer would leave a model's whole step uncompiled. A table that
cannot change is a constant, so its keys can be sorted: a binary search finds a key among a million in some twenty
steps.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any

import numpy as np

from ..internals.frameworks import tf
from ..internals.laid_over import laid_over


def halving() -> AbstractContextManager[None]:
    """Within this context, lookups of integer keys in immutable tables are traced as binary searches."""
    from tensorflow.python.ops.lookup_ops import InitializableLookupTableBase, StaticHashTable

    own = InitializableLookupTableBase.lookup

    def lookup(table: Any, keys: Any, name: str | None = None) -> Any:
        numbers = table.key_dtype.is_integer and (table.value_dtype.is_integer or table.value_dtype.is_floating)
        if not numbers or not isinstance(table, StaticHashTable) or not isinstance(keys, tf.Tensor):
            return own(table, keys, name)
        with tf.init_scope():
            known, values = (each.numpy() for each in table.export())
        return found(tf.cast(keys, table.key_dtype), known, values, table.default_value)

    return laid_over(InitializableLookupTableBase, lookup=lookup)


def found(keys: Any, known: np.ndarray, values: np.ndarray, default: Any) -> Any:
    """For each key the value that belongs to the equal entry of `known`; `default` if there is none. No entry occurs
    twice."""
    order = np.argsort(known)
    known, values = known[order], values[order]
    below = tf.zeros_like(keys, tf.int32)  # entries known to be less than the key, bit by bit
    for bit in reversed(range(known.size.bit_length())):
        more = below + (1 << bit)
        is_less = tf.gather(known, tf.minimum(more, known.size) - 1) < keys
        below = tf.where((more <= known.size) & is_less, more, below)
    place = tf.minimum(below, known.size - 1)
    return tf.where(tf.gather(known, place) == keys, tf.gather(values, place), tf.cast(default, values.dtype))
