"""Optimisation barriers of XLA: XLA fuses no operations across a barrier, does not change the type of the value there,
and does not merge equal operations on its two sides."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..internals.frameworks import tf


def apart(tensor: Any) -> Any:
    """Put the tensor behind a barrier. The result has no gradient."""
    from tensorflow.compiler.tf2xla.python import xla

    return xla.optimization_barrier(tensor)[0]


@tf.custom_gradient
def forward_apart(tensor: Any) -> tuple[Any, Callable[[Any], Any]]:
    """Put the tensor behind a barrier. The gradient passes unchanged, without a barrier."""
    return apart(tensor), lambda upstream: upstream
