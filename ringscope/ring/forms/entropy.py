"""Cross-entropy of integer labels that reads its logits twice in the forward and once in the backward pass.

From TensorFlow's form XLA computes the gradient in the forward pass and keeps it: eight passes over the logits, 8.4 GB
in a step of a decoder with 32 000 words. Here the forward pass keeps two numbers per row, the largest logit and the log
of the sum of exponentials, and the backward pass computes the probabilities again: four passes, which takes 3 % off
that step's time on an H200 (docs/results/index.md).
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

from ..internals.frameworks import tf
from ..internals.laid_over import laid_over


def short() -> AbstractContextManager[None]:
    """Within this context, `tf.nn.sparse_softmax_cross_entropy_with_logits`, which Keras's sparse losses call, has this
    form."""
    own = tf.nn.sparse_softmax_cross_entropy_with_logits

    def entropy(labels: Any, logits: Any, name: str | None = None) -> Any:
        labels, logits = tf.convert_to_tensor(labels), tf.convert_to_tensor(logits)
        known = logits.shape.is_fully_defined() and logits.shape.rank > 0
        fits = known and logits.dtype == tf.float32 and labels.shape == logits.shape[:-1]
        return of_labels(labels, logits) if fits else own(labels, logits, name)

    return laid_over(tf.nn, sparse_softmax_cross_entropy_with_logits=entropy)


def of_labels(labels: Any, logits: Any) -> Any:
    """-log of the probability that softmax gives each label; NaN, also in the gradient, for a label outside the
    classes. labels: (...) integers. logits: (..., classes) float32 with a known shape. Returns (...) float32."""
    classes = logits.shape[-1]
    known = tf.where((labels >= 0) & (labels < classes), 0.0, float("nan"))
    is_label = tf.range(classes) == tf.cast(labels, tf.int32)[..., tf.newaxis]

    @tf.custom_gradient
    def run(logits: Any) -> tuple[Any, Callable[[Any], Any]]:
        most = tf.reduce_max(logits, axis=-1, keepdims=True)
        total = tf.math.log(tf.reduce_sum(tf.exp(logits - most), axis=-1, keepdims=True))
        chosen = tf.reduce_sum(tf.where(is_label, logits, 0.0), axis=-1, keepdims=True)

        def gradient(upstream: Any) -> Any:
            share = tf.exp(logits - most - total)
            return (share - tf.cast(is_label, tf.float32)) * (upstream + known)[..., tf.newaxis]

        return tf.squeeze(total - (chosen - most), axis=-1) + known, gradient

    return run(logits)


def of_one_hot(classes: Any, on: Any, off: Any, logits: Any) -> Any:
    """TensorFlow's `softmax_cross_entropy_with_logits` of labels that are `on` for each row's class and `off` for the
    others. classes: (rows) integers. on, off: scalars of the logits' type. logits: (rows, classes) float32. Returns
    (rows) float32."""
    is_class = tf.range(logits.shape[-1]) == tf.cast(classes, tf.int32)[..., tf.newaxis]

    @tf.custom_gradient
    def run(logits: Any) -> tuple[Any, Callable[[Any], Any]]:
        most = tf.reduce_max(logits, axis=-1, keepdims=True)
        total = tf.math.log(tf.reduce_sum(tf.exp(logits - most), axis=-1, keepdims=True))
        shares = tf.where(is_class, on, off)

        def gradient(upstream: Any) -> Any:
            return (tf.exp(logits - most - total) - tf.where(is_class, on, off)) * upstream[..., tf.newaxis]

        return tf.reduce_sum(shares * (total - (logits - most)), axis=-1), gradient

    return run(logits)
