"""Make cuDNN's LSTM and GRU compute bfloat16 inputs in float32, with a gradient that is right.

TensorFlow's own kernel casts them to float32 as well. Its gradient then reads memory that nobody has written in the
place of what the forward pass has kept (TensorFlow 2.21): an LSTM in mixed_bfloat16 learns nothing, or its loss is NaN.
Cast before the kernel, the same numbers have a right gradient.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .frameworks import tf
from .laid_over import laid_for_good


def compute_in_float32() -> None:
    """Make Keras's calls of cuDNN's recurrent kernels compute bfloat16 in float32 and return bfloat16, in this
    process."""
    laid_for_good(tf.raw_ops, "CudnnRNNV3", _in_float32)


def _in_float32(own: Callable[..., Any]) -> Callable[..., Any]:
    def call(**given: Any) -> Any:
        if given["input"].dtype != tf.bfloat16:
            return own(**given)
        wide = {name: tf.cast(given[name], tf.float32) for name in ("input", "input_h", "input_c", "params")}
        found = own(**given | wide)
        outputs, rest = found[:3], found[3:]
        return type(found)(*(tf.cast(each, tf.bfloat16) for each in outputs), *rest)

    return call
