"""Attention over some axes of several, as attention over one axis.

`MultiHeadAttention` over a map (batch, rows, columns, features) attends to all rows and columns, or to those that
`attention_axes` names. For the kernel (attention.py, attention_dropout.py) the attended axes become one axis, and the
others become part of the batch. Without it Keras keeps all scores: 0.5 GB in each layer of a MobileViT's first stage.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

from ..internals.frameworks import tf
from . import attention_dropout
from .choice import wanted


def has_others(layer: Any) -> bool:
    """True for a built `MultiHeadAttention` whose inputs have more axes than (batch, length, features), and whose
    attention is Keras's own."""
    import keras

    if not isinstance(layer, keras.layers.MultiHeadAttention) or not layer.built:
        return False
    own = type(layer)._compute_attention is keras.layers.MultiHeadAttention._compute_attention
    return own and len(layer._combine_equation.split("->")[1]) > 4


def folded(
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
    """Replaces a layer's `_compute_attention`. Returns (output in the query's layout, None instead of the scores).

    query, key, value: (batch, axes, heads, size). With a mask, with open shapes, or if scores are asked for, the
    layer's own attention stays.
    """
    every = query, key, value = [tf.convert_to_tensor(each) for each in (query, key, value)]
    drops = attention_dropout.drops(layer) and training is True
    asked = return_attention_scores or getattr(layer, "_return_attention_scores", False)
    masked = attention_mask is not None or options.get("use_causal_mask")
    known = all(each.shape.is_fully_defined() for each in every)
    if asked or masked or not known or (drops and not wanted("attention_dropout")):
        if return_attention_scores:
            options["return_attention_scores"] = True
        return otherwise(query, key, value, attention_mask, training=training, **options)
    along = layer._attention_axes
    order = [axis for axis in range(query.shape.rank - 2) if axis not in along]
    beside = len(order)
    order += [*along, query.shape.rank - 2, query.shape.rank - 1]
    turned = [tf.transpose(each, order) for each in every]
    rows = [
        tf.reshape(each, [prod(each.shape[:beside]), prod(each.shape[beside:-2]), *each.shape[-2:]]) for each in turned
    ]
    made, _ = attention_dropout.dropped(layer, _whole, rows[0], rows[1], rows[2], training=drops)
    made = tf.reshape(made, [*turned[0].shape[:-1], value.shape[-1]])
    return tf.transpose(made, [order.index(axis) for axis in range(len(order))]), None


def _whole(query: Any, key: Any, value: Any, *_: Any, **__: Any) -> tuple[Any, None]:
    """Attention without dropout and masks: (batch, length, heads, size)."""
    from keras import ops

    return ops.dot_product_attention(query, key, value), None
