"""Send gradients in the type in which they were computed."""

from __future__ import annotations

from functools import cache
from typing import Any

from .. import exchange
from ..internals.frameworks import has_gpu, hvd, tf

# These operations return the values of an input, whatever their type.
SAME = ("Identity", "IdentityN", "Reshape", "StopGradient", "PreventGradient")


def as_computed(gradient: Any) -> Any:
    """The bfloat16 tensor that a traced gradient was cast from, in the gradient's shape; if there is none, the
    gradient itself. A sum of several casts, as for tied weights, was computed in the wider type, so it is kept."""
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
    """The type in which ranks sum gradients of type `kind`. Only here is bfloat16 passed to Horovod unchanged.

    NCCL can sum bfloat16 in place on TensorFlow's own stream (`in_stream`). Tensors that Horovod copies into its
    buffer, scales, or sums by MPI or Gloo would raise an error.
    """
    plain = in_stream and op in ("average", "sum") and predivide_factor == 1.0
    return kind if plain and kind == tf.bfloat16 and sums_bfloat16() else exchange.summed_as(kind)


@cache
def sums_bfloat16() -> bool:
    """True if ranks can sum bfloat16 here: there is a GPU, and Horovod has NCCL and ring's edits. The operations
    that scripts/build_horovod.py builds accept bfloat16 only if both are built in."""
    if not has_gpu():
        return False
    with tf.Graph().as_default():
        try:
            hvd.grouped_allreduce([tf.zeros([1], tf.bfloat16)], op=hvd.Sum, name="of_bfloat16")
        except (TypeError, ValueError):  # Horovod's operation does not accept bfloat16
            return False
    return True
