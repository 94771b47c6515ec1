"""Attention as one fused kernel in a compiled step: cuDNN's flash attention, forward and backward.

Keras on TensorFlow computes all (queries x keys) scores and keeps them in memory. XLA takes cuDNN's kernels by custom
calls of these names, which JAX emits too (jax/_src/cudnn/fused_attention_stablehlo.py); TensorFlow has no operation
that makes one, but `XlaCallModule` takes a module's text as it is, its operands' and results' layouts included.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

from ..internals.frameworks import tf
from ..internals.laid_over import laid_over
from ..internals.stablehlo import call_module, layout, row_major, tensor_type
from ..say import once
from . import constants
from .choice import WITHOUT

WIDEST_HEAD = 256  # of cuDNN on Hopper; 128 before
HEADS_OF = 8  # a head's size is to be a multiple of
SAID = (
    f"attention with float32 and bfloat16 inputs in this mixed_bfloat16 model runs in bfloat16; {WITHOUT}=attention "
    "keeps it in float32"
)
TYPES = {tf.bfloat16: "BF16", tf.float16: "F16"}  # in the call's settings
# Added to the scores of keys that are masked. Two of the largest negative numbers would overflow in cuDNN's sum.
MASKED = {tf.bfloat16: -float(2 << 40), tf.float16: -float(2 << 14)}

# Dimension numbers of the matrix products inside, for (batch, length, head, size) in memory:
# contracting of the left and right operand, batch dimensions of the left and right.
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
HEADS_OUTSIDE = [3, 1, 2, 0]  # (batch, head, length, size) that lies in memory as (batch, length, head, size)

Shape = tuple[int, ...]


@contextmanager
def fused() -> Iterator[None]:
    """While it lasts, `keras.ops.dot_product_attention` is traced as the fused kernel where that fits."""
    from keras.src import backend

    keras_own = backend.nn.dot_product_attention

    def attend(query: Any, key: Any, value: Any, bias: Any = None, mask: Any = None, **options: Any) -> Any:
        given = [backend.convert_to_tensor(each) for each in (query, key, value)]
        mask = None if mask is None else backend.convert_to_tensor(mask, dtype="bool")
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

    with laid_over(backend.nn, dot_product_attention=attend):
        yield


def among(layers: Iterable[Any]) -> list[Any]:
    """The layers that attend."""
    import keras

    kinds = (keras.layers.MultiHeadAttention, keras.layers.GroupQueryAttention)
    return [layer for layer in layers if isinstance(layer, kinds)]


def in_bfloat16(given: list[Any]) -> list[Any]:
    """Query, key and value in bfloat16 where a model of mixed bfloat16 has some of them in it and others in float32, as
    PyTorch's autocast has them; else as they are. Angles of float32 by which a layer turns its queries and keys make
    these float32, which no such layer asks for: its values, and its weights, are bfloat16."""
    import keras

    if {each.dtype for each in given} != {tf.bfloat16, tf.float32}:
        return given
    if keras.config.dtype_policy().name != "mixed_bfloat16":
        return given
    return [tf.cast(each, tf.bfloat16) for each in given]


def fits(query: Any, key: Any, value: Any, mask: Any) -> bool:
    """True if cuDNN has the kernel for them as `fitted` makes them: an unsupported call would end the compilation, not
    be replaced."""
    shapes = [tensor.shape for tensor in (query, key, value)]
    if not all(shape.rank == 4 and shape.is_fully_defined() for shape in shapes):
        return False
    (batch, _, heads, size), (*of_keys, shared, key_size), (*of_values, value_size) = shapes
    alike = batch == of_keys[0] and size == key_size and [*of_keys, shared] == of_values
    alike = alike and {tensor.dtype for tensor in (query, key, value)} in ({t} for t in TYPES)
    fits = alike and max(size, value_size) <= WIDEST_HEAD and heads % shared == 0
    return fits and (mask is None or mask.shape.is_fully_defined())


class Fitted(NamedTuple):
    """operands: query, key and value. bias: what is added to the scores, if any. seen: (batch or 1, heads or 1,
    queries, 1), which queries may see any key; None for all."""

    operands: list[Any]
    bias: list[Any]
    causal: bool
    seen: Any | None


def fitted(query: Any, key: Any, value: Any, mask: Any | None, *, causal: bool, plus: Any | None = None) -> Fitted:
    """Attention in sizes that cuDNN's kernel has, by zeros: heads of a multiple of 8, the values' as large as the
    queries', and with a mask an even number of queries and of keys, the last of which nobody sees. What comes of it
    begins with what is asked for. plus: (batch or 1, heads or 1, queries or 1, keys or 1), to be added to the scores
    without a gradient."""
    seen, bias, more = None, [], (0, 0)
    if mask is not None and constants.is_lower_triangle(mask):
        mask, causal = None, True  # of which the kernel leaves out half
    if mask is None and plus is not None:
        mask = tf.ones([1, 1, query.shape[1], key.shape[1]], tf.bool)
    if mask is not None:
        query, lets, seen = let_through(query, key, mask, causal=causal)
        more = query.shape[1] % 2, key.shape[1] % 2
        scores = added(lets, query.dtype)
        if plus is not None:
            scores = tf.maximum(scores + tf.cast(plus, query.dtype), tf.constant(MASKED[query.dtype], query.dtype))
        scores = _longer(scores, {2: more[0]})  # a query that sees nothing makes no numbers
        bias, causal = [_longer(scores, {3: more[1]}, MASKED[query.dtype])], False
    size = -(-max(query.shape[3], value.shape[3]) // HEADS_OF) * HEADS_OF
    operands = [
        _longer(each, {1: length, 3: size - each.shape[3]})
        for each, length in ((query, more[0]), (key, more[1]), (value, more[1]))
    ]
    return Fitted(operands, bias, causal, seen)


def _longer(tensor: Any, more: dict[int, int], value: float = 0.0) -> Any:
    """With this many more of `value` at the ends of these axes."""
    if not any(more.values()):
        return tensor
    return tf.pad(tensor, [[0, more.get(axis, 0)] for axis in range(tensor.shape.rank)], constant_values=value)


def attention(
    query: Any, key: Any, value: Any, mask: Any | None, *, scale: float, causal: bool, plus: Any | None = None
) -> Any:
    """softmax(scale * query . key + plus, over the keys that the mask lets through) . value, shape (batch, queries,
    heads, the values' size). query: (batch, queries, heads, size); key and value: (batch, keys, heads that divide the
    query's, size, which may be another for values)."""
    operands, bias, causal, _ = fitted(query, key, value, mask, causal=causal, plus=plus)

    @tf.custom_gradient
    def attend(query: Any, key: Any, value: Any) -> Any:
        out, statistics = forward([query, key, value, *bias], scale, causal)

        def gradient(upstream: Any) -> Any:
            return backward([query, key, value, statistics, upstream, *bias, out], scale, causal)

        return out, once_only(gradient, query, key, value)

    return attend(*operands)[:, : query.shape[1], :, : value.shape[3]]


def once_only(gradient: Callable[[Any], Any], *operands: Any) -> Callable[[Any], Any]:
    """A gradient whose own gradient, by the operands too, is an error of this form's, for the kernel has none: the form
    is then left out (retrace.py)."""

    @tf.custom_gradient
    def run(upstream: Any, *operands: Any) -> Any:
        def second(*_: Any) -> Any:
            raise NotImplementedError("fused attention has no second derivative")

        return gradient(upstream), second

    return lambda upstream: run(upstream, *operands)


def let_through(query: Any, key: Any, mask: Any | None, *, causal: bool) -> tuple[Any, Any | None, Any | None]:
    """(query, which scores count, (batch or 1, heads or 1, queries, keys), which queries may see any, with 1 for keys),
    None for all. Of a query that a mask has see nothing cuDNN's result is no number; Keras has it see all keys alike,
    as a query of zeros does that may see all."""
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
    """Zero for scores that count, and a large negative number for the others: to be added to the scores."""
    return tf.where(lets, tf.zeros((), dtype), tf.constant(MASKED[dtype], dtype))


def forward(operands: list[Any], scale: float, causal: bool) -> list[Any]:
    """(the output, the logarithm of the sum of exponentials of each query's scores in float32, (batch, heads,
    queries)). operands: query, key, value, and what is added to the scores, if any."""
    batch, queries, heads, size = operands[0].shape
    results = [((batch, heads, queries, size), operands[0].dtype), ((batch, heads, queries), tf.float32)]
    return _call("", operands, results, _settings(operands, FORWARD, scale, causal))


def backward(operands: list[Any], scale: float, causal: bool) -> list[Any]:
    """The gradients of query, key and value. operands: these, statistics as `forward` gives them, the upstream
    gradient, what is added to the scores, if any, and the output."""
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
    """One custom call's results; results of rank 4 are (batch, length, head, size)."""
    masked = "ScaleBias" if len(operands) in (4, 7) else ""
    text, shapes = _module(f"__cudnn$fmha{masked}Softmax{which}", operands, results, settings)
    return call_module(text, operands, [(shape, dtype) for shape, (_, dtype) in zip(shapes, results, strict=True)])


def _module(
    name: str, operands: Sequence[Any], results: Sequence[tuple[Shape, Any]], settings: str
) -> tuple[str, list[Shape]]:
    """(a StableHLO module with the call and nothing else, the shapes it returns)."""
    given = [tensor_type(tensor.shape, tensor.dtype) for tensor in operands]
    made = [*(tensor_type(shape, dtype) for shape, dtype in results), "tensor<0xui8>"]  # the last: room that XLA takes
    shapes = [(s[0], s[2], s[1], s[3]) if len(s) == 4 else s for s, _ in results]
    returned = [tensor_type(shape, dtype) for shape, (_, dtype) in zip(shapes, results, strict=True)]
    layouts = [HEADS_OUTSIDE if len(shape) == 4 else row_major(shape) for shape, _ in results]
    lines = [
        f'%made:{len(made)} = stablehlo.custom_call @"{name}"({", ".join(f"%arg{i}" for i in range(len(given)))}) {{'
        f" api_version = 2 : i32, backend_config = {json.dumps(settings)}, operand_layouts = "
        f"[{', '.join(layout(row_major(tensor.shape)) for tensor in operands)}], result_layouts = "
        f"[{', '.join(map(layout, [*layouts, [0]]))}] }} : ({', '.join(given)}) -> ({', '.join(made)})"
    ]
    names = []
    for i, (shape, _) in enumerate(results):
        names.append(f"%made#{i}")
        if len(shape) == 4:
            lines.append(f"%out{i} = stablehlo.transpose %made#{i}, dims = [0, 2, 1, 3] : ({made[i]}) -> {returned[i]}")
            names[i] = f"%out{i}"
    lines.append(f"return {', '.join(names)} : {', '.join(returned)}")
    arguments = ", ".join(f"%arg{i}: {each}" for i, each in enumerate(given))
    body = "\n    ".join(lines)
    head = f"func.func public @main({arguments}) -> ({', '.join(returned)})"
    return f"module {{\n  {head} {{\n    {body}\n  }}\n}}\n", shapes
