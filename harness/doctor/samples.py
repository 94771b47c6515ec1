"""Digests of the samples and the weights of a rank, which doctor compares between ranks."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

ROWS = 1024  # samples of a batch that are digested, at most
SAMPLED = 64  # values compared for each weight, to tell how large a difference is


def values_of(values: Any) -> list[Any]:
    """[digest of the bits, SAMPLED values at fixed places] of a NumPy array."""
    import numpy as np

    places = np.linspace(0, values.size - 1, min(SAMPLED, values.size)).astype(np.int64)
    bits = hashlib.blake2b(np.ascontiguousarray(values).tobytes(), digest_size=8).hexdigest()
    return [bits, values.reshape(-1)[places].astype(np.float64).tolist()]


def rows_of(leaves: Sequence[Any]) -> list[str] | None:
    """A digest of each of the first ROWS samples of a batch; None if there is no batch. Arrays of another length than
    the first are left out."""
    import numpy as np

    arrays = [np.asarray(leaf) for leaf in leaves if _is_batch(leaf)]
    if not arrays:
        return None
    batch = [array for array in arrays if len(array) == len(arrays[0])]
    found = []
    for number in range(min(ROWS, len(batch[0]))):
        digest = hashlib.blake2b(digest_size=8)
        for array in batch:
            row = array[number]
            digest.update(repr(row).encode() if array.dtype == object else row.tobytes())
        found.append(digest.hexdigest())
    return found


def _is_batch(leaf: Any) -> bool:
    if not hasattr(leaf, "shape") or not (hasattr(leaf, "numpy") or type(leaf).__module__ == "numpy"):
        return False
    # tf.Variables and iterators have the dtype `resource`, and Keras's variables have `assign`: none of them is a
    # batch.
    return len(leaf.shape) > 0 and getattr(leaf, "dtype", None) != "resource" and not hasattr(leaf, "assign")


class Batches:
    """Wraps a data set for Keras's `fit`, and keeps the digests of its samples in order."""

    def __init__(self, dataset: Any) -> None:
        self._rows: list[list[str]] = []
        self._dataset = self._tapped(dataset)
        self.iterator: Any = None

    def __iter__(self) -> Any:
        self._rows.clear()  # forget batches that an earlier iterator prepared and nobody used
        self.iterator = iter(self._dataset)
        return self.iterator

    def take(self, count: int) -> list[str]:
        """The digests of the samples in the next `count` batches, which are then forgotten."""
        taken, self._rows[:count] = self._rows[:count], []
        return [row for rows in taken for row in rows]

    def _tapped(self, dataset: Any) -> Any:
        import tensorflow as tf

        def keep(*leaves: Any) -> Any:
            self._rows.append(rows_of(leaves) or [])
            return True

        def tap(*element: Any) -> Any:
            leaves = [leaf for leaf in tf.nest.flatten(element, expand_composites=True) if leaf is not None]
            kept = tf.numpy_function(keep, leaves, tf.bool)
            with tf.control_dependencies([kept]):
                same = tf.nest.map_structure(
                    lambda leaf: None if leaf is None else tf.identity(leaf), element, expand_composites=True
                )
            return same if isinstance(dataset.element_spec, tuple) else same[0]

        try:
            return dataset.map(tap)
        except (TypeError, ValueError):
            return dataset
