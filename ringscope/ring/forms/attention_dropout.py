"""Attention with dropout that stores no mask: the backward pass draws an equal mask from the seed.

* `fused`: one cuDNN kernel forward and one backward, by ring's own call (cudnn_dropout.py).
* `by_xla`, where cuDNN has no kernel: products and softmax as separate operations with 16-bit intermediates, computed
  again in the backward pass, where Keras keeps three times as many bytes. The mask is a hash of each score's position.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..internals.frameworks import has_gpu, tf
from ..say import once
from . import attention, constants, cudnn_dropout
from .barriers import apart
from .choice import wanted
from .half_precision import wide_type
from .hashed import kept

NONE = -1e30  # the score of a masked key, in float32


def drops(layer: Any) -> bool:
    """True if this is a Keras attention layer that drops scores by Keras's own method."""
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
    """Replaces a layer's `_compute_attention`. Returns (output (batch, queries, heads, size), None instead of the
    scores).

    query: (batch, queries, heads, size). key and value: (batch, keys, heads that divide the query's, size).
    attention_mask: (batch, queries, keys), or with an axis of heads before the queries.
    """
    query, key, value = map(tf.convert_to_tensor, (query, key, value))
    known = all(each.shape.rank == 4 and each.shape.is_fully_defined() for each in (query, key, value))
    mask = None if attention_mask is None else tf.cast(attention_mask, tf.bool)
    if mask is not None and mask.shape.rank == 3:
        mask = tf.expand_dims(mask, 1)
    asked = return_attention_scores or getattr(layer, "_return_attention_scores", False)
    if training is not True or asked or not known or (mask is not None and mask.shape.rank != 4):
        if return_attention_scores:
            options["return_attention_scores"] = True
        return otherwise(query, key, value, attention_mask, training=training, **options)
    seed = tf.convert_to_tensor(layer._dropout_layer.seed_generator.next())
    causal, scale = bool(options.get("use_causal_mask")), query.shape[3] ** -0.5
    how: dict[str, Any] = {"rate": layer.dropout, "scale": scale, "causal": causal}
    made = fused(query, key, value, mask, seed, **how) if attention.fits(query, key, value, mask) else None
    return (by_xla(query, key, value, mask, seed, **how) if made is None else made), None


def _has_kernel(operands: list[Any], bias: list[Any], **how: Any) -> bool:
    if has_gpu() and cudnn_dropout.library() is None:
        once("attention with dropout has no fused kernel here; to build one: python scripts/build_attention.py")
    planes = bias[0].shape[:2] if bias else None
    return wanted("cudnn_dropout") and cudnn_dropout.has_kernel(operands, planes, **how)


def fused(
    query: Any,
    key: Any,
    value: Any,
    mask: Any,
    seed: Any,
    *,
    rate: float,
    scale: float,
    causal: bool,
    plus: Any | None = None,
    zeroes: bool = True,
) -> Any:
    """Attention with dropout by cuDNN's kernels; None if there is no kernel. Shapes and types must pass
    `attention.fits`.

    seed: two 32-bit words. plus: as for `attention.fitted`. zeroes: True if a query that may see no key gives zeros;
    False if it sees all keys equally.
    """
    skips = zeroes or mask is None or constants.is_lower_triangle(mask)  # each query then sees the first key at least
    operands, bias, causal, seen = attention.fitted(query, key, value, mask, causal=causal, plus=plus, zeroes=skips)
    if not _has_kernel(operands, bias, rate=rate, scale=scale, causal=causal):
        return None
    dropout = cudnn_dropout.Dropout(rate, tf.reshape(tf.bitcast(tf.cast(seed, tf.uint32), tf.int64), [1]))

    @tf.custom_gradient
    def attend(query: Any, key: Any, value: Any) -> Any:
        out, statistics = cudnn_dropout.forward([query, key, value], bias, scale, causal, dropout)

        def gradient(upstream: Any) -> Any:
            operands = [query, key, value, out, upstream, statistics]
            return cudnn_dropout.backward(operands, bias, scale, causal, dropout)

        return out, attention.once_only(gradient, query, key, value)

    out = attend(*operands)[:, : query.shape[1], :, : value.shape[3]]
    return _zero_unseen(out, None if seen is None or not zeroes else tf.transpose(seen, [0, 2, 1, 3]))


def _zero_unseen(out: Any, seen: Any | None) -> Any:
    """Zeros for queries that may see no key, as Keras's softmax gives in layers with dropout of scores."""
    return out if seen is None else tf.where(seen, out, tf.zeros((), out.dtype))


def by_xla(query: Any, key: Any, value: Any, mask: Any, seed: Any, *, rate: float, scale: float, causal: bool) -> Any:
    """Attention with dropout as products and softmax, for shapes and types without a cuDNN kernel, and without a
    GPU."""
    groups = query.shape[2] // key.shape[2]
    key, value = (tf.repeat(each, groups, axis=2) if groups > 1 else each for each in (key, value))
    query, lets, seen = attention.let_through(query, key, mask, causal=causal)
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
            # computed again; otherwise XLA would keep the forward pass's scores and mask
            again, seed_again = apart(query), apart(seed)
            share = tf.exp(scores(again, key) - every)
            of_value = tf.matmul(tf.cast(those(share, seed_again), query.dtype), upstream, transpose_a=True)
            through = those(tf.cast(tf.matmul(upstream, value, transpose_b=True), wide), seed_again)
            both = tf.cast(upstream, wide) * tf.cast(out, wide)
            through = share * (through - tf.reduce_sum(both, axis=-1, keepdims=True)) * scale
            through = tf.cast(through, query.dtype)
            return tf.matmul(through, key), tf.matmul(through, again, transpose_a=True), of_value

        return out, gradient

    turned = [tf.transpose(each, [0, 2, 1, 3]) for each in (query, key, value)]
    return tf.transpose(_zero_unseen(attend(*turned), seen), [0, 2, 1, 3])
