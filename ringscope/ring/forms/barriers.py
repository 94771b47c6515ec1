"""Optimisation barriers of XLA: it plans nothing across one, keeps its value as typed, and finds no equal work on both
sides."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..internals.frameworks import tf


def apart(tensor: Any) -> Any:
    """The tensor behind a barrier, which has no gradient."""
    from tensorflow.compiler.tf2xla.python import xla

    return xla.optimization_barrier(tensor)[0]


@tf.custom_gradient
def forward_apart(tensor: Any) -> tuple[Any, Callable[[Any], Any]]:
    """The tensor behind a barrier, past which its gradient goes unchanged."""
    return apart(tensor), lambda upstream: upstream
