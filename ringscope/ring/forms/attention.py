"""Attention as one fused kernel in a compiled step: cuDNN's flash attention, forward and backward.

Keras on TensorFlow computes all (queries x keys) scores and keeps them in memory. XLA runs cuDNN's kernels for custom
calls of these names, which JAX emits, too (jax/_src/cudnn/fused_attention_stablehlo.py). No TensorFlow operation makes
such a call; but `XlaCallModule` takes a program as text, with the layouts of its operands and results.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from typing import Any, NamedTuple

from ..internals.frameworks import backend_ops, keras, tf
from ..internals.laid_over import laid_over
from ..internals.stablehlo import custom_call
from ..say import once
from . import constants, repeated
from .choice import WITHOUT

WIDEST_HEAD = 256  # cuDNN's largest head size on Hopper; on earlier GPUs it is 128
HEADS_OF = 8  # a head's size must be a multiple of this
SAID = (
    f"attention with float32 and bfloat16 inputs in this mixed_bfloat16 model runs in bfloat16; {WITHOUT}=attention "
    "keeps it in float32"
)
TYPES = {tf.bfloat16: "BF16", tf.float16: "F16"}  # names of masks in the call's settings
# Added to the scores of masked keys. Not the most negative number, because the sum of two would overflow in cuDNN.
MASKED = {tf.bfloat16: -float(2 << 40), tf.float16: -float(2 << 14)}

# Dimension numbers of the kernel's two matrix products for operands (batch, length, head, size): contracting dimensions
# of the left and right operand, then their batch dimensions.
FORWARD = {
    "bmm1_dot_dimension_numbers": ([3], [3], [0, 2], [0, 2]),
    "bmm2_dot_dimension_numbers": ([3], [1], [0, 1], [0, 2]),
}
BACKWARD = {
    "bmm1_grad_gemm1_dot_dimension_numbers": ([2], [1], [0, 1], [0, 2]),
    "bmm1_grad_gemm2_dot_dimension_numbers": ([3], [1], [0, 1], [0, 2]),
    "bmm2_grad_gemm1_dot_dimension_numbers": ([2], [1], [0, 1], [0, 2]),
    "bmm2_grad_gemm2_dot_dimension_numbers": ([3], [3], [0, 2], [0, 2]),
}
# order of the axes in which a result (batch, head, length, size) is stored: (batch, length, head, size)
HEADS_OUTSIDE = [0, 2, 1, 3]

Shape = tuple[int, ...]


def fused() -> AbstractContextManager[None]:
    """Within this context, `keras.ops.dot_product_attention` is traced as the fused kernel where the kernel exists."""
    keras_own = backend_ops.nn.dot_product_attention

    def attend(query: Any, key: Any, value: Any, bias: Any = None, mask: Any = None, **options: Any) -> Any:
        given = [keras.ops.convert_to_tensor(each) for each in (query, key, value)]
        mask = None if mask is None else keras.ops.convert_to_tensor(mask, dtype="bool")
        query, key, value = narrow = in_bfloat16(given)
        fits_here = bias is None and fits(query, key, value, mask) and options.get("attn_logits_soft_cap") is None
        if not fits_here:
            return keras_own(*given, bias=bias, mask=mask, **options)
        if narrow is not given:
            once(SAID)
        scale = options.get("scale")
        scale = query.shape[3] ** -0.5 if scale is None else float(scale)
        made = attention(query, key, value, mask, scale=scale, causal=bool(options.get("is_causal")))
        return tf.cast(made, tf.float32) if narrow is not given else made

    return laid_over(backend_ops.nn, dot_product_attention=attend)


def among(layers: Iterable[Any]) -> list[Any]:
    """The layers among `layers` that compute attention."""
    import keras

    kinds = (keras.layers.MultiHeadAttention, keras.layers.GroupQueryAttention)
    return [layer for layer in layers if isinstance(layer, kinds)]


def in_bfloat16(given: list[Any]) -> list[Any]:
    """Query, key and value in bfloat16 if a mixed_bfloat16 model has some of them in bfloat16 and some in float32, as
    PyTorch's autocast does; else unchanged. Rotary angles in float32 make queries and keys float32, although the layer
    computes in bfloat16."""
    import keras

    if {each.dtype for each in given} != {tf.bfloat16, tf.float32}:
        return given
    if keras.config.dtype_policy().name != "mixed_bfloat16":
        return given
    return [tf.cast(each, tf.bfloat16) for each in given]


def fits(query: Any, key: Any, value: Any, mask: Any) -> bool:
    """True if cuDNN has the kernel for query, key and value, in the sizes that `fitted` gives. With an unsupported call
    the compilation would end in an error."""
    shapes = [tensor.shape for tensor in (query, key, value)]
    if not all(shape.rank == 4 and shape.is_fully_defined() for shape in shapes):
        return False
    (batch, _, heads, size), (*of_keys, shared, key_size), (*of_values, value_size) = shapes
    alike = batch == of_keys[0] and size == key_size and [*of_keys, shared] == of_values
    alike = alike and {tensor.dtype for tensor in (query, key, value)} in ({t} for t in TYPES)
    fits = alike and max(size, value_size) <= WIDEST_HEAD and heads % shared == 0
    return fits and (mask is None or mask.shape.is_fully_defined())


class Fitted(NamedTuple):
    """The operands of attention, in sizes that the kernel accepts. operands: query, key and value. bias: what is added
    to the scores, if anything. seen: (batch or 1, heads or 1, queries, 1), True for queries that may see a key; None:
    all queries may."""

    operands: list[Any]
    bias: list[Any]
    causal: bool
    seen: Any | None


def fitted(
    query: Any,
    key: Any,
    value: Any,
    mask: Any | None,
    *,
    causal: bool,
    plus: Any | None = None,
    zeroes: bool = False,
) -> Fitted:
    """Pad attention's operands with zeros to sizes that cuDNN's kernel accepts.

    Head sizes become a multiple of 8, equal for values and queries. With a mask, the numbers of queries and of keys
    become even, and no query sees the added key. The kernel's result then begins with the wanted result. plus: (batch
    or 1, heads or 1, queries or 1, keys or 1), added to the scores without a gradient. zeroes: True if the caller sets
    the results of queries that may see no key to zero; then the kernel is causal with a mask, too, and skips half of
    the scores.
    """
    key, value = repeated.once(key, value)
    seen, bias, more = None, [], (0, 0)
    if mask is not None and constants.is_lower_triangle(mask):
        mask, causal = None, True  # a causal kernel skips the masked half
    if mask is None and plus is not None:
        mask = tf.ones([1, 1, query.shape[1], key.shape[1]], tf.bool)
    if mask is not None:
        skips_later = zeroes and (causal or constants.hides_later(mask))
        query, lets, seen = let_through(query, key, mask, causal=causal)
        more = query.shape[1] % 2, key.shape[1] % 2
        scores = added(lets, query.dtype)
        if plus is not None:
            plus = plus if seen is None else tf.where(seen, plus, tf.zeros((), plus.dtype))  # masks come after it
            scores = tf.maximum(scores + tf.cast(plus, query.dtype), tf.constant(MASKED[query.dtype], query.dtype))
            scores = constants.folded(scores)
        scores = _longer(scores, {2: more[0]})  # pads with zeros, because a query that sees no key would give NaN
        bias, causal = [_longer(scores, {3: more[1]}, MASKED[query.dtype])], skips_later
    size = -(-max(query.shape[3], value.shape[3]) // HEADS_OF) * HEADS_OF
    operands = [
        _longer(each, {1: length, 3: size - each.shape[3]})
        for each, length in ((query, more[0]), (key, more[1]), (value, more[1]))
    ]
    return Fitted(operands, bias, causal, seen)


def _longer(tensor: Any, more: dict[int, int], value: float = 0.0) -> Any:
    """The tensor with `value` appended along each axis, `more` entries per axis."""
    if not any(more.values()):
        return tensor
    return tf.pad(tensor, [[0, more.get(axis, 0)] for axis in range(tensor.shape.rank)], constant_values=value)


def attention(
    query: Any,
    key: Any,
    value: Any,
    mask: Any | None,
    *,
    scale: float,
    causal: bool,
    plus: Any | None = None,
    zeroes: bool = False,
) -> Any:
    """softmax(scale * query . key + plus, over the keys that the mask allows) . value: (batch, queries, heads, value
    size).

    query: (batch, queries, heads, size). key and value: (batch, keys, heads that divide the query's, size); the size
    may differ for values. zeroes: as for `fitted`.
    """
    operands, bias, causal, _ = fitted(query, key, value, mask, causal=causal, plus=plus, zeroes=zeroes)

    @tf.custom_gradient
    def attend(query: Any, key: Any, value: Any) -> Any:
        out, statistics = forward([query, key, value, *bias], scale, causal)

        def gradient(upstream: Any) -> Any:
            return backward([query, key, value, statistics, upstream, *bias, out], scale, causal)

        return out, once_only(gradient, query, key, value)

    return attend(*operands)[:, : query.shape[1], :, : value.shape[3]]


def once_only(gradient: Callable[[Any], Any], *operands: Any) -> Callable[[Any], Any]:
    """A gradient that raises an error when it is itself differentiated, since the kernel has no second derivative. The
    step is then traced again without this form (retrace.py)."""

    @tf.custom_gradient
    def run(upstream: Any, *operands: Any) -> Any:
        def second(*_: Any) -> Any:
            raise NotImplementedError("fused attention has no second derivative")

        return gradient(upstream), second

    return lambda upstream: run(upstream, *operands)


def let_through(query: Any, key: Any, mask: Any | None, *, causal: bool) -> tuple[Any, Any | None, Any | None]:
    """(query, allowed scores (batch or 1, heads or 1, queries, keys), 1 for queries that may see a key). None instead
    of a mask: all are allowed.

    For a query that may see no key cuDNN gives NaN, and Keras gives equal shares to all keys. So this query becomes
    zeros and may see all keys, which gives equal shares.
    """
    if mask is None and not causal:
        return query, None, None
    every = tf.linalg.band_part(tf.ones([1, 1, query.shape[1], key.shape[1]], tf.bool), -1, 0 if causal else -1)
    if mask is None:
        return query, every, None
    every = tf.logical_and(tf.reshape(mask, [*[1] * (4 - mask.shape.rank), *mask.shape]), every)
    seen = tf.reduce_any(every, axis=3, keepdims=True)
    query = tf.where(tf.transpose(seen, [0, 2, 1, 3]), query, tf.zeros((), query.dtype))
    return query, tf.logical_or(every, tf.logical_not(seen)), seen


def added(lets: Any, dtype: Any) -> Any:
    """The mask as numbers that are added to the scores: 0 for allowed scores, a large negative number for others."""
    return tf.where(lets, tf.zeros((), dtype), tf.constant(MASKED[dtype], dtype))


def forward(operands: list[Any], scale: float, causal: bool) -> list[Any]:
    """(the output, the log of the sum of exponentials of each query's scores in float32, (batch, heads, queries)).
    operands: query, key, value, and what is added to the scores, if anything."""
    batch, queries, heads, size = operands[0].shape
    results = [((batch, heads, queries, size), operands[0].dtype), ((batch, heads, queries), tf.float32)]
    return _call("", operands, results, _settings(operands, FORWARD, scale, causal))


def backward(operands: list[Any], scale: float, causal: bool) -> list[Any]:
    """The gradients of query, key and value. operands: query, key, value, statistics from `forward`, the upstream
    gradient, what is added to the scores, if anything, and the output."""
    results = []
    for tensor in operands[:3]:
        batch, length, heads, size = tensor.shape
        results.append(((batch, heads, length, size), tensor.dtype))
    return _call("Backward", operands, results, _settings(operands, BACKWARD, scale, causal))


def _settings(operands: list[Any], products: dict[str, Any], scale: float, causal: bool) -> str:
    query, key = operands[:2]
    names = [f"{side}_{kind}_dimensions" for kind in ("contracting", "batch") for side in ("lhs", "rhs")]
    attention = {
        "fmha_scale": scale,
        "dropout_rate": 0.0,
        "seed": "42",
        "is_flash_attention": True,
        "mask_type": "CAUSAL" if causal else "NO_MASK",
        "intermediate_tensor_shape": {
            "element_type": TYPES[query.dtype],
            "dimensions": [str(n) for n in (query.shape[0], query.shape[2], query.shape[1], key.shape[1])],
            "layout": {"minor_to_major": ["3", "2", "1", "0"]},
        },
        **{
            product: {name: [str(n) for n in part] for name, part in zip(names, numbers, strict=True)}
            for product, numbers in products.items()
        },
    }
    return json.dumps({"operation_queue_id": "0", "cudnn_fmha_backend_config": attention})


def _call(which: str, operands: Sequence[Any], results: Sequence[tuple[Shape, Any]], settings: str) -> list[Any]:
    """The results of one custom call. A result with four axes is (batch, length, head, size)."""
    masked = "ScaleBias" if len(operands) in (4, 7) else ""
    name = f"__cudnn$fmha{masked}Softmax{which}"
    attributes = f"api_version = 2 : i32, backend_config = {json.dumps(settings)}"
    return custom_call(name, operands, results, attributes, room=0, turned=HEADS_OUTSIDE)
