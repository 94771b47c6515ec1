"""Attention masks kept in the shape in which they are given, also in steps that XLA does not compile.

Keras broadcasts each mask over batch and heads before it uses the mask. If the batch size is known, TensorFlow does so
on the host before the first step and keeps the result as a constant of the graph, which each graph pass copies: with 12
heads of 256 x 256 scores some 78 MB of host memory per sample of a batch.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from ..internals.frameworks import backend_ops, tf
from ..internals.laid_over import laid_over
from .choice import wanted


@contextmanager
def unspread() -> Iterator[None]:
    """Within this context, attention broadcasts masks only where they are applied; the numbers are equal."""
    if not wanted("masks"):
        yield
        return
    nn = backend_ops.nn

    def masked(logits: Any, mask: Any, is_causal: bool) -> Any:
        if is_causal:
            queries, keys = tf.unstack(tf.shape(logits)[2:])
            causal = tf.linalg.band_part(tf.ones((queries, keys), tf.bool), -1, 0)
            mask = causal if mask is None else tf.logical_and(mask, causal)
        return logits if mask is None else tf.where(mask, logits, nn._get_large_negative(logits.dtype))

    with laid_over(nn, _apply_masks=masked):
        yield
