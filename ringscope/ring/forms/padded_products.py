"""Matrix products padded with zeros to row lengths that tensor cores can read.

Tensor cores read 16-bit rows in multiples of 8 (NVIDIA's deep learning performance guide). For other lengths cuBLAS
uses kernels of older GPUs: on an H100 a layer of 525 inputs takes 0.55 ms forward and backward, a layer of 1 024 takes
0.08 ms (docs/results, 2026-11-25). XLA pads products for cuBLAS (`CublasPadForGemms`), but not the many products that
it plans to give to Triton, although it may then choose cuBLAS. XLA never pads float32, whose rows tensor cores read as
TF32 in multiples of 4; BERT's 30 522 words are no multiple of 4.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from math import prod
from typing import Any, NamedTuple

from ..internals.frameworks import backend_ops, tf
from ..internals.laid_over import laid_over
from . import wide
from .half_precision import NARROW

BYTES = 16  # a row's length in bytes must be a multiple of this
MADE = "_ringscope_product"  # attribute of a tensor that `wide_product` made: Product
LEAST = 1 << 28  # multiplications; a smaller product is not worth two more passes over its operands


class Product(NamedTuple):
    """The operands of a product by `wide_product`. rows: bfloat16 (rows, inputs). matrix: float32 (inputs, outputs)."""

    rows: Any
    matrix: Any


def multiples() -> AbstractContextManager[None]:
    """Within this context, `keras.ops.matmul` with a matrix, as `Dense` calls it, is traced with padded operands."""
    keras_own = backend_ops.numpy.matmul

    def matmul(x1: Any, x2: Any) -> Any:
        made = _multiplied(as_tensor(x1), as_tensor(x2))
        return keras_own(x1, x2) if made is None else made

    return laid_over(backend_ops.numpy, matmul=matmul)


def as_tensor(operand: Any) -> Any:
    """An operand of a Keras operation as a tensor: a weight in the type in which layers read it; sparse and ragged
    tensors unchanged. Keras's own conversion does not convert its variables."""
    return operand if isinstance(operand, (tf.SparseTensor, tf.RaggedTensor)) else tf.convert_to_tensor(operand)


def product(given: Any, matrix: Any) -> Any:
    """(..., inputs) . (inputs, outputs) with its gradients, computed with padding or in bfloat16 where that is
    faster."""
    made = _multiplied(given, matrix)
    if made is None:
        made = tf.matmul(tf.reshape(given, [-1, matrix.shape[0]]), matrix)
        made = tf.reshape(made, [*(-1 if size is None else size for size in given.shape[:-1]), matrix.shape[1]])
    return made


def _multiplied(given: Any, matrix: Any) -> Any | None:
    """(..., inputs) . (inputs, outputs) with padding or in bfloat16; None if the plain product is as fast."""
    if not _is_large(given, matrix):
        return None
    narrow = wide.narrow_of(given, matrix)
    if narrow is None and not any(size * matrix.dtype.size % BYTES for size in matrix.shape):
        return None
    rows = tf.reshape(given if narrow is None else narrow, [-1, given.shape[-1]])
    made = _in_multiples(rows, matrix, tf.matmul) if narrow is None else wide_product(rows, matrix)
    made = tf.reshape(made, [*given.shape[:-1], matrix.shape[1]])
    if narrow is not None:
        setattr(made, MADE, Product(rows, matrix))
    return made


def wide_product(rows: Any, matrix: Any) -> Any:
    """The product of bfloat16 (rows, inputs) and float32 (inputs, outputs) in float32, multiplied in bfloat16."""
    return _in_multiples(rows, matrix, wide.product)


def wide_product_of(tensor: Any) -> Product | None:
    """The operands of `wide_product`, if the tensor is its result in another shape; else None."""
    found: Product | None = getattr(tensor, MADE, None)
    return found


def _in_multiples(rows: Any, matrix: Any, multiplied: Callable[[Any, Any], Any]) -> Any:
    inputs, outputs = matrix.shape
    more, wider = (-size % (BYTES // rows.dtype.size) for size in (inputs, outputs))
    if not more and not wider:
        return multiplied(rows, matrix)
    return multiplied(tf.pad(rows, [[0, 0], [0, more]]), tf.pad(matrix, [[0, more], [0, wider]]))[:, :outputs]


def _is_large(given: Any, matrix: Any) -> bool:
    """True for a large product of known shape with a matrix of the same type, on tensor cores."""
    dense = isinstance(given, tf.Tensor) and isinstance(matrix, tf.Tensor)
    if not dense or given.dtype != matrix.dtype:
        return False
    if given.dtype not in NARROW and not (given.dtype == tf.float32 and wide.is_tf32()):
        return False
    known = given.shape.is_fully_defined() and matrix.shape.is_fully_defined()
    if not known or given.shape.rank < 2 or matrix.shape.rank != 2 or given.shape[-1] != matrix.shape[0]:
        return False
    return bool(prod(given.shape) * matrix.shape[1] >= LEAST)
