"""Gradients in the type that they were computed in.

Under mixed_bfloat16 Keras reads a float32 weight as bfloat16, so its gradient is computed in bfloat16 and is cast to
float32 at the very end. The cast adds nothing but bytes: to write, to sum over ranks, to read.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from .. import exchange
from ..internals.frameworks import has_gpu, hvd, tf

# Operations that hand on one of their inputs unchanged, in any type.
SAME = ("Identity", "IdentityN", "Reshape", "StopGradient", "PreventGradient")


def as_computed(gradient: Any) -> Any:
    """The bfloat16 tensor that a traced gradient was cast from, in the gradient's shape; itself where it was not.

    A sum of several casts, such as of tied weights, is a sum in the wider type and stays so.
    """
    if gradient is None or tf.executing_eagerly() or not gradient.dtype.is_floating:
        return gradient
    found = _cast_from(gradient)
    return gradient if found is None else found


def size_bytes(gradient: Any) -> int:
    """The bytes of a gradient whose shape is known."""
    return int(gradient.shape.num_elements() * gradient.dtype.size)


def _cast_from(tensor: Any) -> Any | None:
    op = tensor.op
    if op.type == "Cast":
        (before,) = op.inputs
        return before if before.dtype == tf.bfloat16 and tensor.dtype.size > 2 else None
    if op.type not in SAME:
        return None
    found = _cast_from(op.inputs[tensor.value_index])
    return tf.reshape(found, op.inputs[1]) if found is not None and op.type == "Reshape" else found


def summed_as(kind: Any, *, in_stream: bool, op: str, predivide_factor: float) -> Any:
    """The type in which ranks sum gradients of this one: the one place where bfloat16 is let through to Horovod.

    NCCL sums it on TensorFlow's own stream (`in_stream`), each tensor where it lies. Tensors that are copied into
    Horovod's buffer, scaled, or summed by MPI or Gloo would end in an error.
    """
    plain = in_stream and op in ("average", "sum") and predivide_factor == 1.0
    return kind if plain and kind == tf.bfloat16 and sums_bfloat16() else exchange.summed_as(kind)


@cache
def sums_bfloat16() -> bool:
    """True if ranks can sum bfloat16 here: there are GPUs, and Horovod has NCCL and the edits that have NCCL do it.

    The operations of scripts/build_horovod.py take bfloat16 where both are built in, and only there.
    """
    if not has_gpu():
        return False
    with tf.Graph().as_default():
        try:
            hvd.grouped_allreduce([tf.zeros([1], tf.bfloat16)], op=hvd.Sum, name="of_bfloat16")
        except (TypeError, ValueError):  # not among the types that it takes
            return False
    return True
