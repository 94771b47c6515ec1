"""The size of a rank's batch in relation to the other ranks' batches of the step."""

from __future__ import annotations

from typing import Any

from ..internals.frameworks import tf
from .totals import Share


class Batch:
    """The size of this rank's batch. share: this rank's number -> the sum over ranks."""

    def __init__(self, ranks: int, share: Share) -> None:
        self._ranks, self._share = ranks, share
        self._total: Any = None
        self.size: Any = None

    def measure(self, *data: Any) -> None:
        """Keep the batch size: the length of the first tensor in `data` that has an axis."""
        for leaf in tf.nest.flatten(data):
            shape = getattr(leaf, "shape", None)
            if shape is not None and len(shape):
                self.size = tf.cast(
                    leaf.nrows() if isinstance(leaf, tf.RaggedTensor) else tf.shape(leaf)[0], tf.float32
                )
                return

    def mean_size(self) -> Any:
        if self._total is None:
            self._total = self._share(self.size)
        return self._total / self._ranks

    def by_size(self, mean: Any) -> Any:
        """A mean over this batch, weighted so that the mean over ranks is the mean over the joined batch."""
        if self.size is None:
            return mean
        return mean * tf.cast(tf.math.divide_no_nan(self.size, self.mean_size()), mean.dtype)
