"""float32 output layers in a mixed_bfloat16 model: their product takes bfloat16 operands and sums in float32.

Keras's guide recommends a float32 last layer, so that losses and metrics get float32. A `Dense(dtype="float32")` then
also multiplies in float32, on a GPU in TF32: at half the speed of bfloat16, with weights rounded to 10 bits, although
its inputs were bfloat16. Here weights, and the gradients of logits, are rounded to bfloat16 for the products. For 1 024
x 8 000 logits of standard deviation 2.6, the error is 0.004 for logits and for a token's loss, and 0.06 % for the
weight's gradient. For TF32 it is 0.0005 and 0.01 %, for the bfloat16 logits of PyTorch's autocast 0.006 and 0.24 %.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..internals.frameworks import has_gpu, tf
from ..say import once
from .choice import WITHOUT, wanted
from .half_precision import summed_over

SAID = (
    "a large float32 matrix product in this mixed_bfloat16 model multiplies in bfloat16 and sums in float32; "
    f"{WITHOUT}=wide makes it multiply in TF32"
)


def narrow_of(given: Any, matrix: Any) -> Any | None:
    """The bfloat16 tensor that `given` was cast from, if the product can use it; else None."""
    import keras

    is_cast = isinstance(given, tf.Tensor) and given.dtype == matrix.dtype == tf.float32 and is_tf32()
    if not is_cast or not hasattr(given, "op") or given.op.type != "Cast":
        return None
    (source,) = given.op.inputs
    is_mixed = keras.config.dtype_policy().name == "mixed_bfloat16"
    if source.dtype != tf.bfloat16 or not is_mixed or not wanted("wide"):
        return None
    once(SAID)
    return source


def is_tf32() -> bool:
    """True if float32 products are rounded to TF32 here."""
    return has_gpu() and bool(tf.config.experimental.tensor_float_32_execution_enabled())


@tf.custom_gradient
def product(rows: Any, matrix: Any) -> tuple[Any, Callable[[Any], tuple[Any, Any]]]:
    """The product of bfloat16 (rows, inputs) and float32 (inputs, outputs), as float32; only for XLA."""
    weight = tf.cast(matrix, tf.bfloat16)

    def gradient(upstream: Any) -> tuple[Any, Any]:
        upstream = tf.cast(upstream, tf.bfloat16)
        return tf.cast(summed_over(upstream, weight, 1, 1), tf.bfloat16), summed_over(rows, upstream, 0, 0)

    return summed_over(rows, weight, 1, 0), gradient
