"""Floating-point operations and bytes of PyTorch's operators and of XLA's instructions, from the shapes in a recording.

Counts follow torch.utils.flop_counter: a multiplication and an addition are two operations, a causal mask does not
halve attention, and the backward pass of flash attention is five matrix products, because it computes the scores again.
Bytes are the minimum: each input and output moves once.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from types import MappingProxyType
from typing import Any, Final

_MOST: Final = 1 << 56  # number of operations or elements above which a call's shapes must be damaged
# PyTorch's type names, in lower case and without "c10::": our name, and bytes per element.
_TYPES: Final[Mapping[str, tuple[str, int]]] = MappingProxyType(
    {
        "double": ("float64", 8), "float": ("float32", 4), "half": ("float16", 2), "bfloat16": ("bfloat16", 2),
        "float8_e4m3fn": ("float8", 1), "float8_e5m2": ("float8", 1), "float8_e4m3fnuz": ("float8", 1),
        "float8_e5m2fnuz": ("float8", 1), "signed char": ("int8", 1),
    }
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Work:
    """Work of one call: floating-point operations, the least bytes it must move, and the type it computes in."""

    flops: int
    bytes: int
    dtype: str
    shapes: str  # shapes of the operands, such as "[8, 16] x [16, 4]"


def of_call(name: str, inputs: str) -> Work | None:
    """The work of a call of an operator with these inputs (written as in `operators.inputs`); None if unknown."""
    count = _COUNTS.get(name)
    if count is None or not inputs:
        return None
    try:
        told = json.loads(inputs)
        found = count([_sizes(one) for one in told["dims"]], told["values"])
        kind = _TYPES.get(str(told["types"][found.operand]).lower().removeprefix("c10::"))
    except (ValueError, TypeError, KeyError, IndexError, AttributeError, ArithmeticError, RecursionError):
        return None
    if kind is None or not all(type(size) is int and size > 0 for shape in found.shapes for size in shape):
        return None
    if not 0 < found.flops < _MOST or found.elements >= _MOST:
        return None
    return Work(found.flops, found.elements * kind[1], kind[0], " x ".join(map(str, found.shapes)))


def of_program(text: str) -> Work | None:
    """The work of an XLA instruction from the text that readers.hlo writes; None if it is not known, or if its products
    have several types."""
    if not text:
        return None
    told = json.loads(text)
    products = told["products"]
    kinds = {product["type"] for product in products}
    flops = sum(2 * prod(product["spread"]) * product["contracted"] for product in products)
    if len(kinds) != 1 or not 0 < flops < _MOST or not 0 <= told["bytes"] < _MOST:
        return None
    shapes = " x ".join(map(str, products[0]["operands"])) if len(products) == 1 else f"{len(products)} products"
    return Work(flops, told["bytes"], kinds.pop(), shapes)


@dataclass(frozen=True, slots=True)
class _Count:
    flops: int
    elements: int
    shapes: tuple[list[int], ...]
    operand: int = 0  # index of the operand whose type the call computes in


def _sizes(shape: Any) -> list[int]:
    """The shape if it is a list of integers, else []: a text or list times a size could take all memory."""
    return shape if isinstance(shape, list) and all(type(size) is int and abs(size) < _MOST for size in shape) else []


def _mm(dims: Sequence[Any], _: Sequence[Any], first: int = 0) -> _Count:
    a, b = dims[first], dims[first + 1]
    *batch, m, k = a
    if b[-2] != k or list(b[:-2]) != batch:
        raise ValueError
    sizes = prod(a) + prod(b) + prod(batch) * m * b[-1]
    return _Count(2 * prod(batch) * m * k * b[-1], sizes, (a, b), first)


def _addmm(dims: Sequence[Any], values: Sequence[Any]) -> _Count:
    return _mm(dims, values, 1)


def _convolution(dims: Sequence[Any], values: Sequence[Any]) -> _Count:
    """Arguments: input, weight, bias, stride, padding, dilation, transposed, output_padding, groups."""
    image, weight = dims[0], dims[1]
    stride, padding, dilation = (_sizes(json.loads(values[at])) for at in (3, 4, 5))
    kernel = weight[2:]
    if values[6] == "True":
        more = _sizes(json.loads(values[7]))
        out = [
            (size - 1) * s - 2 * p + d * (k - 1) + o + 1
            for size, s, p, d, k, o in zip(image[2:], stride, padding, dilation, kernel, more, strict=True)
        ]
        out_channels = weight[1] * int(values[8])
        flops = 2 * prod(image) * weight[1] * prod(kernel)
    else:
        out = [
            (size + 2 * p - d * (k - 1) - 1) // s + 1
            for size, s, p, d, k in zip(image[2:], stride, padding, dilation, kernel, strict=True)
        ]
        out_channels = weight[0]
        flops = 2 * image[0] * out_channels * prod(out) * weight[1] * prod(kernel)
    return _Count(flops, prod(image) + prod(weight) + image[0] * out_channels * prod(out), (image, weight))


def _convolution_backward(dims: Sequence[Any], values: Sequence[Any]) -> _Count:
    """Arguments: grad_output, input, weight, bias_sizes, stride, padding, dilation, transposed, output_padding, groups,
    output_mask."""
    grad, image, weight = dims[0], dims[1], dims[2]
    spread = image if values[7] == "True" else grad
    wanted = [one.strip() == "True" for one in values[10].strip("[]").split(",")]
    once = 2 * prod(spread) * weight[1] * prod(weight[2:])
    # The kernel of each gradient reads the incoming gradient and the other operand, and writes the gradient.
    moved = [prod(grad) + prod(weight) + prod(image) for one in wanted[:2] if one]
    return _Count(once * sum(wanted[:2]), sum(moved), (grad, image, weight))


def _attention(dims: Sequence[Any], _: Sequence[Any], products: int = 2, first: int = 0) -> _Count:
    """Arguments: query, key, value, each [batch, heads, length, width]; in the backward pass the gradient comes first.
    products: matrix products, 2 forward and 5 backward."""
    query, key, value = dims[first : first + 3]
    batch, heads, length, width = query
    if len(key) != 4 or len(value) != 4 or key[3] != width:
        raise ValueError
    # Widths of the two kinds of products, half of them each; backward one more for the scores.
    scores, weighted = width, value[3]
    of_scores = products - products // 2
    flops = 2 * batch * heads * length * key[2] * (of_scores * scores + (products // 2) * weighted)
    out = batch * heads * length * weighted
    moved = prod(query) + prod(key) + prod(value) + out
    return _Count(flops, moved if products == 2 else 2 * moved, (query, key, value), first)


def _attention_backward(dims: Sequence[Any], values: Sequence[Any]) -> _Count:
    return _attention(dims, values, products=5, first=1)


_SDPA: Final = "aten::_scaled_dot_product_{}_attention"
_COUNTS: Final[Mapping[str, Callable[[Sequence[Any], Sequence[Any]], _Count]]] = MappingProxyType(
    {
        "aten::mm": _mm, "aten::bmm": _mm, "aten::_scaled_mm": _mm,
        "aten::addmm": _addmm, "aten::baddbmm": _addmm, "aten::_addmm_activation": _addmm,
        "aten::convolution": _convolution, "aten::convolution_backward": _convolution_backward,
        **{_SDPA.format(kind): _attention for kind in ("flash", "efficient", "cudnn")},
        **{_SDPA.format(kind) + "_backward": _attention_backward for kind in ("flash", "efficient", "cudnn")},
    }
)  # fmt: skip
