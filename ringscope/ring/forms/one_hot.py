"""Shares of classes, found in the graph, that are one number for a row's class and another for all others: a one-hot
encoding, and what smoothing the labels makes of it."""

from __future__ import annotations

from typing import Any, NamedTuple

from ..internals.frameworks import tf


class OneHot(NamedTuple):
    """The shares `on` of each row's class and `off` of the others. classes: (...) integers. on, off: numbers of the
    shares' type, as tensors."""

    classes: Any
    on: Any
    off: Any


def found(shares: Any) -> OneHot | None:
    """The classes and numbers that the shares (..., classes) are made of; None if unknown operations make them."""
    op = getattr(shares, "op", None)
    if op is None:
        return None
    if op.type == "OneHot":
        classes, _, on, off = op.inputs
        is_last = op.get_attr("axis") in (-1, classes.shape.rank)
        return OneHot(classes, on, off) if is_last else None
    if op.type in ("Identity", "Cast"):
        inner = found(op.inputs[0])
        return inner and OneHot(inner.classes, *(tf.cast(each, shares.dtype) for each in (inner.on, inner.off)))
    if op.type in ("Mul", "AddV2", "RealDiv", "Sub"):
        left, right = op.inputs
        inner = found(left) if right.shape.rank == 0 else None
        if inner is None and left.shape.rank == 0 and op.type in ("Mul", "AddV2"):
            left, right = right, left
            inner = found(left)
        compute = getattr(tf.raw_ops, op.type)
        return inner and OneHot(inner.classes, *(compute(x=each, y=right) for each in (inner.on, inner.off)))
    return None
