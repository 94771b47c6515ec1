"""Attention that drops scores, by a hash of each score's place and a seed, which the way back draws again.

cuDNN's kernel can drop scores itself, but XLA's call of it has the seed as a constant of the program. Two ways without:

* `twice`: the two calls that plain attention makes (attention.py), made once without and once with a mask of the scores
  that are kept. Of the first comes the logarithm of each query's sum, l, of the second O' and l' over the kept scores
  alone: O = O' exp(l' - l) / (1 - p). On the way back the kernel takes its statistics, and O for the rows' sums
  D = sum(dO O), from its operands. With l + log(1 - p), the mask and O := 0 it gives dV and the part P M / (1 - p) dP
  of dS, without a mask and with V := 0 the part -P D; dQ and dK are the two calls' sums.
* `by_xla`: the products and softmax by themselves, in memory in 16 bits one after the other, and computed anew on the
  way back, where Keras keeps three times as much.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from ..exchange import has_gpu, tf
from . import attention
from .choice import wanted
from .hashed import apart, kept
from .narrow import wide_type

NONE = -1e30  # a score that is masked, in float32


def drops(layer: Any) -> bool:
    """Whether it is an attention of Keras's that drops scores as Keras does."""
    import keras

    kinds = (keras.layers.MultiHeadAttention, keras.layers.GroupQueryAttention)
    own = any(type(layer)._compute_attention is kind._compute_attention for kind in kinds if isinstance(layer, kind))
    seeded = getattr(getattr(layer, "_dropout_layer", None), "seed_generator", None) is not None
    return own and seeded and 0 < layer.dropout < 1


def dropped(
    layer: Any,
    otherwise: Callable[..., Any],
    query: Any,
    key: Any,
    value: Any,
    attention_mask: Any = None,
    training: Any = None,
    return_attention_scores: bool = False,
    **options: Any,
) -> Any:
    """A layer's `_compute_attention`: its output (batch, queries, heads, size), and no scores.

    query: (batch, queries, heads, size); key and value: (batch, keys, heads that divide the query's, size);
    attention_mask: (batch, queries, keys), or with an axis of heads before the queries.
    """
    query, key, value = map(tf.convert_to_tensor, (query, key, value))
    known = all(each.shape.rank == 4 and each.shape.is_fully_defined() for each in (query, key, value))
    mask = None if attention_mask is None else tf.cast(attention_mask, tf.bool)
    if mask is not None and mask.shape.rank == 3:
        mask = mask[:, tf.newaxis]
    asked = return_attention_scores or getattr(layer, "_return_attention_scores", False)
    if training is not True or asked or not known or (mask is not None and mask.shape.rank != 4):
        if return_attention_scores:
            options["return_attention_scores"] = True
        return otherwise(query, key, value, attention_mask, training=training, **options)
    seed = tf.convert_to_tensor(layer._dropout_layer.seed_generator.next())
    causal, scale = bool(options.get("use_causal_mask")), query.shape[3] ** -0.5
    take = twice if fits_twice(query, key, value, mask) else by_xla
    return take(query, key, value, mask, seed, rate=layer.dropout, scale=scale, causal=causal), None


def fits_twice(query: Any, key: Any, value: Any, mask: Any) -> bool:
    """Whether this machine and cuDNN have the kernels: of a mask of all scores, too."""
    queries, keys = query.shape[1], key.shape[1]
    even = queries % 2 == keys % 2 == 0
    return has_gpu() and wanted("twice") and even and attention.fits(query, key, value, mask)


def twice(query: Any, key: Any, value: Any, mask: Any, seed: Any, *, rate: float, scale: float, causal: bool) -> Any:
    """By cuDNN's calls; types and shapes as `attention.fits` wants them."""
    lets, bias = None, []
    if mask is not None:
        query, lets = attention.let_through(query, key, mask, causal=causal)
        bias, causal = [attention.added(lets, query.dtype)], False
    (batch, queries, heads, _), keys = query.shape, key.shape[1]

    def of_kept(seed: Any) -> Any:
        stays = kept(seed, [batch, heads, queries, keys], rate)
        return attention.added(stays if lets is None else tf.logical_and(stays, lets), query.dtype)

    @tf.custom_gradient
    def attend(query: Any, key: Any, value: Any) -> Any:
        _, every = attention.forward([query, key, value, *bias], scale, causal)
        part, those = attention.forward([query, key, value, of_kept(seed)], scale, causal)
        share = tf.exp(those - every) / (1 - rate)  # (batch, heads, queries)
        wide = tf.cast(part, tf.float32) * tf.transpose(share, [0, 2, 1])[..., tf.newaxis]
        out = tf.cast(wide, query.dtype)

        def gradient(upstream: Any) -> Any:
            operands = [query, key, value, every + math.log1p(-rate), upstream, of_kept(apart(seed))]
            first = attention.backward([*operands, tf.zeros_like(out)], scale, causal)
            operands = [query, key, tf.zeros_like(value), every, upstream, *bias]
            second = attention.backward([*operands, out], scale, causal)
            return first[0] + second[0], first[1] + second[1], first[2]

        return out, gradient

    return attend(query, key, value)


def by_xla(query: Any, key: Any, value: Any, mask: Any, seed: Any, *, rate: float, scale: float, causal: bool) -> Any:
    """By products and softmax, for shapes and types that cuDNN has no kernel for, and without a GPU."""
    groups = query.shape[2] // key.shape[2]
    key, value = (tf.repeat(each, groups, axis=2) if groups > 1 else each for each in (key, value))
    query, lets = attention.let_through(query, key, mask, causal=causal)
    wide = wide_type(query.dtype)
    shape = [query.shape[0], query.shape[2], query.shape[1], key.shape[1]]

    def scores(query: Any, key: Any) -> Any:
        made = tf.cast(tf.matmul(query, key, transpose_b=True), wide) * scale
        return made if lets is None else tf.where(lets, made, tf.constant(NONE, wide))

    def those(shares: Any, seed: Any) -> Any:
        return tf.where(kept(seed, shape, rate), shares / (1 - rate), tf.zeros((), wide))

    @tf.custom_gradient
    def attend(query: Any, key: Any, value: Any) -> Any:
        made = scores(query, key)
        most = tf.reduce_max(made, axis=-1, keepdims=True)
        every = most + tf.math.log(tf.reduce_sum(tf.exp(made - most), axis=-1, keepdims=True))
        out = tf.matmul(tf.cast(those(tf.exp(made - every), seed), query.dtype), value)

        def gradient(upstream: Any) -> Any:
            again, seed_again = apart(query), apart(seed)  # else XLA would keep scores and mask of the way there
            share = tf.exp(scores(again, key) - every)
            of_value = tf.matmul(tf.cast(those(share, seed_again), query.dtype), upstream, transpose_a=True)
            through = those(tf.cast(tf.matmul(upstream, value, transpose_b=True), wide), seed_again)
            both = tf.cast(upstream, wide) * tf.cast(out, wide)
            through = share * (through - tf.reduce_sum(both, axis=-1, keepdims=True)) * scale
            through = tf.cast(through, query.dtype)
            return tf.matmul(through, key), tf.matmul(through, again, transpose_a=True), of_value

        return out, gradient

    turned = [tf.transpose(each, [0, 2, 1, 3]) for each in (query, key, value)]
    return tf.transpose(attend(*turned), [0, 2, 1, 3])
