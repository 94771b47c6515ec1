"""Floating-point numbers of 16 bits, which forms compute with in float32."""

from __future__ import annotations

from typing import Any

from ..exchange import tf

NARROW = (tf.bfloat16, tf.float16)


def wide_type(kind: Any) -> Any:
    """The type to compute numbers of this type in."""
    return tf.float32 if kind in NARROW else kind
