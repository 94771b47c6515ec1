"""The masks of attention as they are given, in a step that is not compiled by XLA too.

Keras spreads each mask over the batch and the heads before it is used. Where the size of a batch is known, TensorFlow
computes that before the first step, on the host, and keeps it as a constant of the graph, which each of its passes
copies: with 12 heads of 256 x 256 scores some 78 MB of host memory for each sample of a batch.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from ..internals.frameworks import tf
from ..internals.laid_over import laid_over
from .choice import wanted


@contextmanager
def unspread() -> Iterator[None]:
    """While it lasts, attention is traced so that masks meet the scores in their own shape; the same numbers."""
    if not wanted("masks"):
        yield
        return
    from keras.src.backend import nn

    def masked(logits: Any, mask: Any, is_causal: bool) -> Any:
        if is_causal:
            queries, keys = tf.unstack(tf.shape(logits)[2:])
            causal = tf.linalg.band_part(tf.ones((queries, keys), tf.bool), -1, 0)
            mask = causal if mask is None else tf.logical_and(mask, causal)
        return logits if mask is None else tf.where(mask, logits, nn._get_large_negative(logits.dtype))

    with laid_over(nn, _apply_masks=masked):
        yield
