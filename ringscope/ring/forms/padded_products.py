"""Products of matrices whose rows tensor cores cannot read as they are, with zeros up to the next length that they can.

Tensor cores read 16-bit rows in multiples of 8 (NVIDIA's deep learning performance guide). For others cuBLAS falls back
to kernels of older GPUs: on an H100 a layer of 525 inputs takes 0.55 ms there and back, where one of 1 024 takes 0.08
(docs/results, 2026-11-25). XLA adds such zeros, but not for products that it would leave to Triton's kernels
(`CublasPadForGemms`), which are most, and of which it then takes cuBLAS's. Of float32 it adds none at all, whose rows
tensor cores read as TF32 in multiples of 4: the 30 522 words of BERT are none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from math import prod
from typing import Any

from ..internals.frameworks import tf
from ..internals.laid_over import laid_over
from . import wide
from .half_precision import NARROW

BYTES = 16  # a row's length is to be a multiple of
LEAST = 1 << 28  # multiplications in a product that is worth two passes over its operands


@contextmanager
def multiples() -> Iterator[None]:
    """While it lasts, `keras.ops.matmul` with a matrix, as `Dense` calls it, is traced in multiples."""
    from keras.src import backend

    keras_own = backend.numpy.matmul

    def matmul(x1: Any, x2: Any) -> Any:
        made = _multiplied(as_tensor(x1), as_tensor(x2))
        return keras_own(x1, x2) if made is None else made

    with laid_over(backend.numpy, matmul=matmul):
        yield


def as_tensor(operand: Any) -> Any:
    """What an operation of Keras's is given: a weight as its value, in the type that it is read in; what is sparse
    stays. Keras's own conversion takes its variables for tensors, which they are not."""
    return operand if isinstance(operand, (tf.SparseTensor, tf.RaggedTensor)) else tf.convert_to_tensor(operand)


def product(given: Any, matrix: Any) -> Any:
    """(..., inputs) . (inputs, outputs), in multiples or of bfloat16 where that fits; the gradients are computed so
    too."""
    made = _multiplied(given, matrix)
    if made is None:
        made = tf.matmul(tf.reshape(given, [-1, matrix.shape[0]]), matrix)
        made = tf.reshape(made, [*(-1 if size is None else size for size in given.shape[:-1]), matrix.shape[1]])
    return made


def _multiplied(given: Any, matrix: Any) -> Any | None:
    """(..., inputs) . (inputs, outputs), None where the product as it is serves as well."""
    if not _is_large(given, matrix):
        return None
    narrow = wide.narrow_of(given, matrix)
    if narrow is None and not _is_odd(matrix):
        return None
    rows = tf.reshape(given if narrow is None else narrow, [-1, given.shape[-1]])
    made = _in_multiples(rows, matrix, tf.matmul if narrow is None else wide.product)
    return tf.reshape(made, [*given.shape[:-1], matrix.shape[1]])


def _in_multiples(rows: Any, matrix: Any, multiplied: Callable[[Any, Any], Any]) -> Any:
    inputs, outputs = matrix.shape
    more, wider = (-size % (BYTES // rows.dtype.size) for size in (inputs, outputs))
    if not more and not wider:
        return multiplied(rows, matrix)
    return multiplied(tf.pad(rows, [[0, 0], [0, more]]), tf.pad(matrix, [[0, more], [0, wider]]))[:, :outputs]


def _is_large(given: Any, matrix: Any) -> bool:
    """True if it is a product of known shape with a matrix of the same type, for tensor cores and worth two passes."""
    dense = isinstance(given, tf.Tensor) and isinstance(matrix, tf.Tensor)
    if not dense or given.dtype != matrix.dtype:
        return False
    if given.dtype not in NARROW and not (given.dtype == tf.float32 and wide.is_tf32()):
        return False
    known = given.shape.is_fully_defined() and matrix.shape.is_fully_defined()
    if not known or given.shape.rank < 2 or matrix.shape.rank != 2 or given.shape[-1] != matrix.shape[0]:
        return False
    return bool(prod(given.shape) * matrix.shape[1] >= LEAST)


def _is_odd(matrix: Any) -> bool:
    return any(size * matrix.dtype.size % BYTES for size in matrix.shape)
